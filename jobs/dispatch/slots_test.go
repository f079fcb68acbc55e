package dispatch

// A cap leaves slots in proportion to its watts, never none and never more than
// there are; a fraction of tasks is rounded up, and only really up.

import (
	"testing"

	"pgregory.net/rapid"

	"headroom/units"
)

func TestUsableSlots(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cap, floor, max units.Power
		slots, want     int
	}{
		"full speed":         {220, 70, 220, 4, 4},
		"above full speed":   {500, 70, 220, 4, 4},
		"at the floor":       {70, 70, 220, 4, 1},
		"below the floor":    {10, 70, 220, 4, 1},
		"in between":         {157, 70, 220, 4, 2},
		"rounded up":         {165, 70, 220, 4, 3},
		"no slots":           {220, 70, 220, 0, 0},
		"nothing between":    {70, 70, 70, 4, 4},
		"below the only":     {60, 70, 70, 4, 1},
		"max below floor":    {80, 90, 70, 4, 4},
		"an empty cap":       {0, 0, 0, 4, 4},
		"one slot is enough": {70, 70, 220, 1, 1},
	} {
		cap := Cap{c.cap * units.Watt, c.floor * units.Watt, c.max * units.Watt}
		if got := UsableSlots(cap, c.slots); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestUsableSlotsLaws(t *testing.T) {
	t.Parallel()
	watts := rapid.Int64Range(-1, 1000)
	rapid.Check(t, func(t *rapid.T) {
		power := func(name string) units.Power { return units.Power(watts.Draw(t, name)) * units.Watt }
		c := Cap{power("cap"), power("floor"), power("max")}
		slots := rapid.IntRange(1, 200).Draw(t, "slots")
		n := UsableSlots(c, slots)
		if n < 1 || n > slots {
			t.Fatalf("%d of %d slots", n, slots)
		}
		more := c
		more.Cap += units.Power(rapid.Int64Range(0, 100).Draw(t, "more")) * units.Watt
		if m := UsableSlots(more, slots); m < n {
			t.Fatalf("%v leaves %d slots, more watts only %d", c, n, m)
		}
	})
}

func TestNeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f    float64
		n    int
		want int
	}{{1, 7, 7}, {0.7, 10, 7}, {0.71, 10, 8}, {0.1, 3, 1}, {0.3, 10, 3}, {1e-12, 5, 0}, {0.5, 1, 1}} {
		if got := units.Ratio(c.f).Of(c.n); got != c.want {
			t.Errorf("%g of %d: %d, want %d", c.f, c.n, got, c.want)
		}
	}
}
