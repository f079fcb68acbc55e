// Claims: a bound never allows more than its file.
package records

import (
	"testing"

	"pgregory.net/rapid"

	"headroom/units"
)

// Whatever two bounds allow, their union allows too, and no bound allows more
// than itself.
func TestCoverLaws(t *testing.T) {
	t.Parallel()
	draw := func(t *rapid.T, name string) Bound {
		watts := rapid.Int64Range(1, 300_000_000)
		c := Bound{Cap: units.Power(watts.Draw(t, name+"_cap")), Limits: make([]Limits, 2)}
		for i := range c.Limits {
			c.Limits[i] = Limits{Long: units.Power(watts.Draw(t, name+"_long")), Short: units.Power(watts.Draw(t, name+"_short"))}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		if u := a.Union(b); !u.Allows(a) || !u.Allows(b) || !a.Allows(a) {
			t.Fatalf("union %+v of %+v and %+v", u, a, b)
		}
		more := a
		more.Cap++
		if a.Allows(more) {
			t.Fatalf("%+v allows a higher cap", a)
		}
	})
}
