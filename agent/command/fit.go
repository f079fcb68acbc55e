package command

import (
	"fmt"
	"math"
	"time"

	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/ipmi"
	"headroom/units"
)

// window adds up power until it holds a mean over length.
type window struct {
	length time.Duration
	energy units.Energy
	spent  time.Duration
}

// add takes one sample; it returns the mean once the window is full.
func (w *window) add(p units.Power, d time.Duration) (mean units.Power, full bool) {
	w.energy, w.spent = w.energy+p.For(d), w.spent+d
	if w.spent < w.length {
		return 0, false
	}
	mean = w.energy.Over(w.spent)
	w.energy, w.spent = 0, 0
	return mean, true
}

// rangeOver is the window of the least and greatest power: a shorter one shows how
// counters advance, not what the machine draws.
const rangeOver = time.Second

// rangeOf is the least and greatest power of one source over rangeOver, and its mean.
type rangeOf struct {
	window      window
	seen        bool
	least, most units.Power
	energy      units.Energy
	elapsed     time.Duration
}

func (r *rangeOf) add(p *units.Power, d time.Duration) {
	if p == nil {
		return
	}
	r.energy, r.elapsed, r.window.length = r.energy+p.For(d), r.elapsed+d, rangeOver
	mean, full := r.window.add(*p, d)
	switch {
	case !full:
	case !r.seen:
		r.least, r.most, r.seen = mean, mean, true
	default:
		r.least, r.most = min(r.least, mean), max(r.most, mean)
	}
}

// row returns what was measured; a measurement below one window has no least and greatest.
func (r *rangeOf) row(source string) sourceJSON {
	row := sourceJSON{Source: source, MeanW: r.energy.Over(r.elapsed).Watts()}
	if r.seen {
		row.MinW, row.MaxW = new(r.least.Watts()), new(r.most.Watts())
	}
	return row
}

// sourceJSON is the power of one source over a measurement: the least and greatest of its
// means over 1 s, and the mean of all.
type sourceJSON struct {
	Source string   `json:"source"`
	MinW   *float64 `json:"min_w"`
	MeanW  float64  `json:"mean_w"`
	MaxW   *float64 `json:"max_w"`
}

// wallOf returns the reading of the BMC, nil without one that can be believed.
func wallOf(s *headroomv1.GetAgentStatusResponse) (source string, power *units.Power) {
	for _, r := range s.GetSensors() {
		if (r.GetSource() == string(ipmi.SourceDCMI) || r.GetSource() == string(ipmi.SourceSDR)) && r.GetState() == status.OK && r.PowerUw != nil {
			return r.GetSource(), new(units.Power(r.GetPowerUw()))
		}
	}
	return "", nil
}

const (
	// fitOver is the window that package and memory power is compared in.
	fitOver = 5 * time.Second
	// steadyFor is how long package and memory power must be steady before it is compared
	// with the BMC, whose reading is up to 10 s old or a mean over some seconds.
	steadyFor = 15 * time.Second
	// steadyWithin is the change of either power that ends a steady time, as a part of it.
	steadyWithin = 0.05
	// steadyLeast is the change that does not, for idle machines: counters are that noisy.
	steadyLeast = 3 * units.Watt
	// spreadLeast is the least difference of package and memory power between idle and
	// load: with less, the noise of the BMC (about 1 W) decides the slope.
	spreadLeast = 20 * units.Watt
)

// fit finds power.other and power.supply_efficiency by least squares from
// wall = (package + dram + other) / efficiency, over the times in which both are steady.
type fit struct {
	window     window
	at, wallAt units.Power // package and memory, and the BMC, when the steady time began
	steady     time.Duration
	n          int
	sumX, sumY float64
	xx, xy     float64

	least, most float64
}

// add takes one sample: the power of packages and memory, and the BMC's reading.
func (f *fit) add(elapsed time.Duration, behind, wall *units.Power) {
	f.window.length = fitOver
	if behind == nil || wall == nil {
		f.window, f.steady = window{}, 0
		return
	}
	mean, full := f.window.add(*behind, elapsed)
	if !full {
		return
	}
	if !near(mean, f.at) || !near(*wall, f.wallAt) {
		f.at, f.wallAt, f.steady = mean, *wall, fitOver
		return
	}
	if f.steady += fitOver; f.steady < steadyFor {
		return
	}
	x, y := mean.Watts(), wall.Watts()
	if f.n == 0 {
		f.least, f.most = x, x
	}
	f.least, f.most = min(f.least, x), max(f.most, x)
	f.n, f.sumX, f.sumY, f.xx, f.xy = f.n+1, f.sumX+x, f.sumY+y, f.xx+x*x, f.xy+x*y
}

// near reports whether p is still the steady power at.
func near(p, at units.Power) bool {
	within := max(steadyLeast, units.FromWatts(steadyWithin*at.Watts()))
	return at-within <= p && p <= at+within
}

// fitJSON is what a measurement says about the node's model; null with the reason in text.
type fitJSON struct {
	OtherW     *float64 `json:"other_w"`
	Efficiency *float64 `json:"supply_efficiency"`
	Samples    int      `json:"samples"`
	Text       string   `json:"text"`
}

// result returns the fit, or the reason why there is none.
func (f *fit) result() fitJSON {
	out := fitJSON{Samples: f.n}
	spread := units.FromWatts(f.most - f.least)
	switch {
	case f.n == 0:
		out.Text = fmt.Sprintf("no steady power for %v with a BMC reading", steadyFor)
		return out
	case spread < spreadLeast:
		out.Text = fmt.Sprintf("package + dram changed by %s, %s are needed; measure idle time and full load, each for 30 s or longer", cli.Watts(spread), cli.Watts(spreadLeast))
		return out
	}
	n := float64(f.n)
	slope := (n*f.xy - f.sumX*f.sumY) / (n*f.xx - f.sumX*f.sumX)
	efficiency := 1 / slope
	other := (f.sumY - slope*f.sumX) / n * efficiency
	out.Text = fmt.Sprintf("%d samples, package + dram %.1f W to %.1f W", f.n, f.least, f.most)
	if !(efficiency > 0 && efficiency <= 1) || other < 0 || math.IsInf(other, 0) {
		out.Text += fmt.Sprintf("; efficiency %.3f with other %.1f W is not plausible", efficiency, other)
		return out
	}
	out.OtherW, out.Efficiency = &other, &efficiency
	return out
}
