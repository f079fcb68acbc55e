package dispatch

import (
	"math"

	"headroom/units"
)

// Cap is what a node may draw now, as the coordinators' cap directive tells it.
type Cap struct {
	// Cap is the node's target at the wall.
	Cap units.Power
	// Floor is the least that the node draws: at this cap one slot is left.
	Floor units.Power
	// Max is what the node uses at full speed: from this cap on all slots are used.
	Max units.Power
}

// UsableSlots returns how many of a node's slots may run tasks under cap: in
// proportion to the watts between floor and max, rounded to the nearest, at
// least 1 and at most slots. A node without slots has none to use. Where floor
// and max leave nothing in between, the cap either reaches max or leaves one.
func UsableSlots(cap Cap, slots int) int {
	if slots <= 0 {
		return 0
	}
	if cap.Cap >= cap.Max {
		return slots
	}
	if cap.Max <= cap.Floor {
		return 1
	}
	share := float64(cap.Cap-cap.Floor) / float64(cap.Max-cap.Floor)
	return min(slots, max(1, int(math.Round(float64(slots)*share))))
}
