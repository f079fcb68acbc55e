package meter

import (
	"headroom/capping"
	"headroom/units"
)

// loadShare is the part of its rated power that a node's CPUs count for, as a reference,
// where nothing counts energy. It is kept low: at a low frequency all of their time
// is worth a few watts.
const loadShare = 0.1

// ByCounters is wall power by the counters and the configured model alone. What is learned
// from the BMC moves towards it, so it cannot be a reference; nor can a sum that changes
// when two dies turn out to share a counter: here each zone counts, for only changes do.
func (w *Meter) ByCounters() capping.Reading {
	in := w.Sample
	if len(w.machine.Packages) == 0 || !in.Package.Known || w.configured.HasDRAM && !in.DRAM.Known {
		return capping.Reading{}
	}
	var sum units.Power
	for _, s := range w.machine.Packages {
		sum += s.Power.Power
	}
	return capping.Reading{Power: w.configured.Wall(sum, in.DRAM.Power), Known: true}
}

// Reference is what stands beside the BMC's value, to tell a frozen one from the value
// of a steady node: counted power, else the load of the CPUs, 0 to 1.
func (w *Meter) Reference(busy float64, known bool) (units.Power, bool) {
	if len(w.machine.Packages) > 0 {
		return w.counted.Value()
	}
	return units.FromWatts(w.cfg.Power.Rated.Watts() * loadShare * busy * w.machine.Freq.Speed()), known
}
