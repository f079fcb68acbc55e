package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"headroom/agent/config"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/gossip/brake"
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

// A node that would not believe a brake says so in its check, before the day it is needed.
func TestCheckTellsWhetherABrakeIsHeard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, other := filepath.Join(dir, "brake.pub"), filepath.Join(dir, "other")
	if err := brake.WriteKey(filepath.Join(dir, "brake.key"), public); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ file, want string }{
		"no key":   {"", checkWarn},
		"a key":    {public, checkOK},
		"no file":  {filepath.Join(dir, "none"), checkFail},
		"not keys": {other, checkFail},
	} {
		cfg := config.Config{Coordinators: []string{"127.0.0.1:1"}, Brake: config.Brake{PublicKeyFile: c.file}}
		if f := checkBrake(site{cfg: &cfg}); f.State != c.want || f.State != checkOK && f.Hint == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
