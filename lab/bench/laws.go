package bench

import (
	"time"

	"headroom/capping"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

// nodeLaw holds a node at its cap. It is called at each step of the plant and keeps its own
// period; changed reports that the cap has just been set.
type nodeLaw interface {
	turn(b *bed, changed bool)
}

// counters reads what each socket drew since the time before.
type counters struct {
	at        time.Duration
	pkg, dram []units.Energy
	packages  []units.Power // mean of each socket
}

// look answers the sums, as a sample of the law.
func (c *counters) look(b *bed) capping.Sample {
	in := capping.Sample{Elapsed: b.now - c.at}
	if c.pkg == nil {
		c.pkg, c.dram, c.packages = make([]units.Energy, len(b.plants)), make([]units.Energy, len(b.plants)), make([]units.Power, len(b.plants))
		in.Elapsed = 0
	}
	for i, p := range b.plants {
		pkg, dram := p.PackageEnergy(), p.DRAMEnergy()
		if in.Elapsed > 0 {
			c.packages[i] = grown(c.pkg[i], pkg, plant.PackageRange).Over(in.Elapsed)
			in.Package.Power += c.packages[i]
			in.DRAM.Power += grown(c.dram[i], dram, plant.DRAMRange).Over(in.Elapsed)
		}
		c.pkg[i], c.dram[i] = pkg, dram
	}
	in.Package.Known, in.DRAM.Known = in.Elapsed > 0, in.Elapsed > 0
	c.at = b.now
	return in
}

// windows sets the averaging windows of every socket.
func windows(b *bed, long, short time.Duration) {
	for _, p := range b.plants {
		p.SetWindow(plant.LongTerm, long)
		p.SetWindow(plant.ShortTerm, short)
	}
}

// twoSpeed is Headroom's law as powerd runs it: RAPL fast, the BMC slow, sockets by demand.
type twoSpeed struct {
	counters
	learner *capping.Learner
	state   capping.State
	sockets []capping.Socket
}

func newTwoSpeed(b *bed) nodeLaw {
	windows(b, capping.LongWindow, capping.ShortWindow)
	return &twoSpeed{learner: capping.NewLearner(b.config), sockets: make([]capping.Socket, len(b.plants))}
}

func (t *twoSpeed) turn(b *bed, changed bool) {
	if !changed && b.now-t.at < loopPeriod && b.now > 0 {
		return
	}
	in := t.look(b)
	t.learner.Observe(b.now, in)
	b.reading.AskedAt = b.now
	t.learner.Learn(b.now, b.reading)
	act, next := capping.Step(b.now, in, b.cap, t.state, t.learner.Config())
	t.state = next
	for i, p := range t.packages {
		s := &t.sockets[i]
		part := min(1, in.Elapsed.Seconds())
		s.Power.Power += units.Power(float64(p-s.Power.Power) * part)
		s.Power.Known, s.Max = s.Power.Power > 0, b.plants[i].Spec().TDP
	}
	above := act.Short.Watts() / act.Long.Watts()
	for i, long := range capping.Share(act.Long, t.sockets) {
		t.sockets[i].Limit = b.plants[i].SetLimit(plant.LongTerm, long)
		b.plants[i].SetLimit(plant.ShortTerm, units.FromWatts(long.Watts()*above))
	}
}

// integralGain is the part; with a reading as late as this BMC's a larger one rings.
const integralGain = 0.5

// integral is the peer: without a model of the node, it adds a part of the difference between the cap
// and wall power to the package limits: at each update of the BMC, or, if fast, every 250 ms by what
// RAPL implies, as loops closed on wall power do (Lefurgy, Wang and Ware, ICAC 2007, without its model).
type integral struct {
	counters
	gain  float64
	fast  bool
	limit float64       // W, all packages
	seen  time.Duration // update of the BMC that was used
}

func newIntegral(gain float64, fast bool) newLaw {
	return func(b *bed) nodeLaw {
		windows(b, capping.LongWindow, capping.ShortWindow)
		start := b.config.PackageMax.Watts()
		if fast {
			start = b.cap.Watts() * b.config.Efficiency
		}
		return &integral{gain: gain, fast: fast, limit: start}
	}
}

func (w *integral) turn(b *bed, _ bool) {
	wall := b.reading.Power
	if w.fast {
		if b.now > 0 && b.now-w.at < loopPeriod {
			return
		}
		in := w.look(b)
		if !in.Package.Known {
			return
		}
		wall = b.config.Wall(in.Package.Power, in.DRAM.Power)
	} else if !b.reading.Known || b.bmcAt == w.seen {
		return
	}
	w.seen = b.bmcAt
	w.limit += w.gain * b.config.Efficiency * (b.cap - wall).Watts()
	w.limit = min(max(w.limit, b.config.PackageMin.Watts()), b.config.PackageMax.Watts()) // anti-windup
	for _, p := range b.plants {
		long := w.limit / float64(len(b.plants))
		p.SetLimit(plant.LongTerm, units.FromWatts(long))
		p.SetLimit(plant.ShortTerm, units.FromWatts(1.01*long))
	}
}

// grown returns the gain of a counter that wraps at most once.
func grown(from, to, span units.Energy) units.Energy {
	if to < from {
		return to + span - from
	}
	return to - from
}
