package command

import (
	"strings"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
)

// A brake in force stands on the screen with who set it and why; none says nothing.
func TestBrakeLine(t *testing.T) {
	t.Parallel()
	b := &headroomv1.BrakeStatus{Generation: 4, Set: true, Actor: "mia", Reason: "smoke in row 3"}
	if line := brakeLine(b); !strings.Contains(line, "SET, generation 4 by mia") || !strings.HasSuffix(line, "smoke in row 3") {
		t.Errorf("the screen tells %q", line)
	}
	b.Set = false
	if line := brakeLine(b) + brakeLine(nil); line != "" {
		t.Errorf("a lifted one tells %q", line)
	}
}
