// Claims: a cover never allows more than its file.
package agent

import (
	"testing"

	"pgregory.net/rapid"

	"headroom/units"
)

// Whatever two covers allow, their union allows too, and no cover allows more
// than itself.
func TestCoverLaws(t *testing.T) {
	t.Parallel()
	draw := func(t *rapid.T, name string) cover {
		watts := rapid.Int64Range(1, 300_000_000)
		c := cover{cap: units.Power(watts.Draw(t, name+"_cap")), limits: make([]limit, 2)}
		for i := range c.limits {
			c.limits[i] = limit{long: units.Power(watts.Draw(t, name+"_long")), short: units.Power(watts.Draw(t, name+"_short"))}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		if u := a.union(b); !u.allows(a) || !u.allows(b) || !a.allows(a) {
			t.Fatalf("union %+v of %+v and %+v", u, a, b)
		}
		more := a
		more.cap++
		if a.allows(more) {
			t.Fatalf("%+v allows a higher cap", a)
		}
	})
}
