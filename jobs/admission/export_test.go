// Claims: none of its own; what other tests look at and no program needs.
package admission

import "iter"

// Running yields the running jobs and the slots that each holds.
func (c *Controller) Running() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, j := range c.running {
			if !yield(j.ID, j.slots) {
				return
			}
		}
	}
}
