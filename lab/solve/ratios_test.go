// Claims: drop ratios are tried that leave another number of tasks, and of waves only those that drop whole ones.
package solve

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"headroom/jobs/queueing"
)

// Only ratios that leave another number of tasks are tried; of waves only whole ones.
func TestRatios(t *testing.T) {
	t.Parallel()
	if got := ratios(50, 20, true); !slices.Equal(got, []float64{0, 0.2, 0.6}) {
		t.Errorf("waves: %v", got)
	}
	if got := ratios(4, 2, false); !slices.Equal(got, []float64{0, 0.25, 0.5, 0.75}) {
		t.Errorf("4 tasks: %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		tasks, slots := rapid.IntRange(1, 5000).Draw(t, "tasks"), rapid.IntRange(1, 100).Draw(t, "slots")
		waves := rapid.Bool().Draw(t, "waves")
		got := ratios(tasks, slots, waves)
		if got[0] != 0 || len(got) > 16 || !slices.IsSorted(got) || got[len(got)-1] >= 1 {
			t.Fatalf("%v", got)
		}
		left := tasks + 1
		for _, theta := range got {
			n := queueing.Kept(tasks, theta)
			if n >= left || math.Abs(float64(tasks)*(1-theta)-float64(n)) > 1e-6 {
				t.Fatalf("theta %v leaves %d of %d tasks, before it %d", theta, n, tasks, left)
			}
			left = n
		}
	})
}
