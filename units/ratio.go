package units

import (
	"fmt"
	"math"
)

// Ratio is a part of a whole, from 0 to 1: a drop ratio, or a floor of a job's tasks.
type Ratio float64

// ratioSlack is the rounding error allowed at a bound: in binary 1 - 0.9 is less than 0.1,
// and 0.1 of 30 is more than 3.
const ratioSlack = 1e-9

// Above reports whether the ratio is above the bound by more than rounding.
func (r Ratio) Above(bound Ratio) bool { return r > bound+ratioSlack }

// Reaches reports whether the ratio is at or above the bound, within rounding.
func (r Ratio) Reaches(bound Ratio) bool { return r >= bound-ratioSlack }

// Of returns the ratio of n tasks, rounded up; 0 of a ratio that is not a number.
func (r Ratio) Of(n int) int {
	if r != r || n <= 0 {
		return 0
	}
	return max(int(math.Ceil(float64(min(max(r, 0), 1))*float64(n)-ratioSlack)), 0)
}

// Kept returns how many of n tasks run at this ratio: rounded up, and at least one where
// there are any; 0 at a ratio that is not a number.
func (r Ratio) Kept(n int) int {
	if r != r || n <= 0 {
		return 0
	}
	return max(r.Of(n), 1)
}

// Least returns how many of n tasks this floor guarantees: Kept, and all of them where it
// is not between 0 and 1.
func (r Ratio) Least(n int) int {
	if !(r > 0 && r < 1) {
		return n
	}
	return r.Kept(n)
}

// Percent returns a ratio as a percentage with four digits.
func Percent(x float64) string { return fmt.Sprintf("%.4g %%", 100*x) }
