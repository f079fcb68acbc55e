// Claim: ratios of tasks round up, and binary fractions neither add a task nor break a
// floor that is met.
package units_test

import (
	"math"
	"testing"

	"headroom/units"
)

func TestRatioOfTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ratio           units.Ratio
		tasks           int
		of, kept, least int
	}{
		{0.1, 40, 4, 4, 4},
		{0.3, 10, 3, 3, 3},
		{0.31, 10, 4, 4, 4},
		{0.001, 10, 1, 1, 1},
		{1, 7, 7, 7, 7},
		{2, 7, 7, 7, 7},
		{0.5, 0, 0, 0, 0},
		{units.Ratio(math.NaN()), 5, 0, 0, 5},
		{0.7, 10, 7, 7, 7},
		{0, 5, 0, 1, 5},
		{-1, 5, 0, 1, 5},
		{1e-12, 5, 0, 1, 1},
	} {
		if of, kept, least := c.ratio.Of(c.tasks), c.ratio.Kept(c.tasks), c.ratio.Least(c.tasks); of != c.of || kept != c.kept || least != c.least {
			t.Errorf("%v of %d tasks: %d, kept %d, least %d; want %d, %d and %d", c.ratio, c.tasks, of, kept, least, c.of, c.kept, c.least)
		}
	}
}

func TestRatioBounds(t *testing.T) {
	t.Parallel()
	floor := 0.9 // 1 - floor is below 0.1 in binary
	left, nan := units.Ratio(1-floor), units.Ratio(math.NaN())
	for _, c := range []struct {
		r, bound       units.Ratio
		above, reaches bool
	}{{0.1, left, false, true}, {left, 0.1, false, true}, {0.11, left, true, true}, {0.09, left, false, false}, {nan, left, false, false}, {left, nan, false, false}} {
		if above, reaches := c.r.Above(c.bound), c.r.Reaches(c.bound); above != c.above || reaches != c.reaches {
			t.Errorf("%v to %v: above %v, reaches %v", c.r, c.bound, above, reaches)
		}
	}
}
