// Claims: time over the cap counts only above the stated tolerance and with the energy
// above the cap; what is not known, and a node without a cap in force, count nothing;
// no moment counts twice. Drawn energy counts each moment of known power once.
package agent

import (
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/meter"
	"headroom/capping"
	"headroom/units"
)

func TestOverCap(t *testing.T) {
	t.Parallel()
	const quarter = 250 * time.Millisecond
	known := func(p units.Power) capping.Reading { return capping.Reading{Power: p, Known: true} }
	for name, c := range map[string]struct {
		mean     capping.Reading
		inForce  units.Power
		d        time.Duration
		time     time.Duration
		energyUJ int64
	}{
		"below":                {known(99 * units.Watt), 100 * units.Watt, quarter, 0, 0},
		"within the tolerance": {known(102 * units.Watt), 100 * units.Watt, quarter, 0, 0},
		"above the tolerance":  {known(103 * units.Watt), 100 * units.Watt, quarter, quarter, 750_000},
		"far above":            {known(200 * units.Watt), 100 * units.Watt, time.Second, time.Second, 100_000_000},
		"unknown power":        {capping.Reading{Power: 200 * units.Watt}, 100 * units.Watt, quarter, 0, 0},
		"before the first cap": {known(200 * units.Watt), 0, quarter, 0, 0},
		"no time":              {known(200 * units.Watt), 100 * units.Watt, 0, 0, 0},
		"a clock that jumps":   {known(200 * units.Watt), 100 * units.Watt, -quarter, 0, 0},
	} {
		over, energy := overCap(c.mean, c.inForce, c.d)
		if over != c.time || int64(energy) != c.energyUJ {
			t.Errorf("%s: %v and %v, want %v and %d uJ", name, over, energy, c.time, c.energyUJ)
		}
	}
}

func TestOverCapIsCountedOnce(t *testing.T) {
	t.Parallel()
	meter, counts := meter.New(&config.Config{}, nil, nil), newTally()
	n := &node{meter: meter, tally: counts, control: &controller{mode: holding, meter: meter, tally: counts}}
	n.control.caps.now = 100 * units.Watt
	now := time.Hour
	look := func(p units.Power, known bool) {
		now += period
		n.meter.Mean.Add(capping.Reading{Power: p, Known: known}, period)
		n.control.noteOver(now)
	}
	for range 4 { // the first second has no mean before its end
		look(150*units.Watt, true)
	}
	for range 8 {
		look(150*units.Watt, true)
	}
	if got := n.tally.counters; got.overTime != 9*period || got.overEnergy != (50*units.Watt).For(9*period) {
		t.Errorf("%v and %v over the cap, want %v", got.overTime, got.overEnergy, 9*period)
	}
	before := n.tally.counters
	for range 3 {
		look(0, false)
	}
	n.control.mode = observing
	for range 8 {
		look(150*units.Watt, true)
	}
	if n.tally.counters != before {
		t.Errorf("unknown power, or a node that only observes, counted: %+v after %+v", n.tally.counters, before)
	}
	if w := n.tally.counters.wire(); w.GetOverCapMs() != 2250 || w.GetOverCapUj() != 112_500_000 {
		t.Errorf("told as %d ms and %d uJ", w.GetOverCapMs(), w.GetOverCapUj())
	}
}
