package harness

import (
	"slices"
	"testing"
)

// A class has the cores of the applications that are named after it.
func TestCoresOfClasses(t *testing.T) {
	t.Parallel()
	got, err := classCores([]Job{{Class: "low"}, {Class: "high"}, {Class: "mid"}})(map[string]int{"high-1-ab": 2, "low-2-cd": 1, "low-1-ef": 3, "spark-shell": 4}, nil)
	if want := []Queue{{Name: "high", Used: 2}, {Name: "low", Used: 4}, {Name: "mid"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
