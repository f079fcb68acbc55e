// Claims: a node counts its own energy only where its power is known, and no time twice.
package meter

import (
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/capping"
	"headroom/units"
)

// A node's own count is power over time, from the second reading on: nothing for unknown power,
// for a suspend, or for a clock that stands or falls.
func TestDrawnEnergy(t *testing.T) {
	t.Parallel()
	var d Drawn
	known := capping.Reading{Power: 100 * units.Watt, Known: true}
	now := time.Hour
	for i, step := range []struct {
		r      capping.Reading
		after  time.Duration
		energy units.Energy
		time   time.Duration
	}{
		{known, 0, 0, 0},
		{known, config.Period, 25 * units.Joule, config.Period},
		{known, 2 * time.Second, 225 * units.Joule, 2*time.Second + config.Period},
		{capping.Reading{Power: 100 * units.Watt}, time.Second, 225 * units.Joule, 2*time.Second + config.Period},
		{known, time.Hour, 225 * units.Joule, 2*time.Second + config.Period},
		{known, 0, 225 * units.Joule, 2*time.Second + config.Period},
		{known, -time.Second, 225 * units.Joule, 2*time.Second + config.Period},
		{capping.Reading{Power: -1, Known: true}, time.Second, 225 * units.Joule, 2*time.Second + config.Period},
		{known, time.Second, 325 * units.Joule, 3*time.Second + config.Period},
	} {
		now += step.after
		d.add(step.r, now)
		if d.Energy != step.energy || d.Time != step.time {
			t.Errorf("step %d: %v over %v, want %v over %v", i, d.Energy, d.Time, step.energy, step.time)
		}
	}
}
