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

// newLaw is a law of the comparison, with its name in the output.
type newLaw struct {
	name, what string
	make       func(b *bed) nodeLaw
}

// headroomLaw is the law of powerd.
func headroomLaw() newLaw {
	return newLaw{
		"headroom", "feed-forward by model, RAPL each 250 ms, wall power by BMC each 2 s",
		func(b *bed) nodeLaw { return newTwoSpeed(b) },
	}
}

// nodeLaws are Headroom's law and its peers, each as its system is described in
// public: what it measures, what it moves, how often.
func nodeLaws() []newLaw {
	return []newLaw{
		headroomLaw(),
		{
			"open-loop", "cap / sockets written once as package limit, 15 ms window (GEOPM's power governor)",
			func(*bed) nodeLaw { return openLoop{window: 15 * time.Millisecond} },
		},
		{
			"pstate-step", "one P-state each 0.5 s, two when more than 30 W over (EAR's dvfs capping)",
			func(b *bed) nodeLaw { return newPstateStep(b) },
		},
		{
			"integral", "plain integral from wall power by BMC to the package limits",
			func(b *bed) nodeLaw { return newIntegral(b, integralGain, false) },
		},
		{
			"hardware", "package limits at the cap, factory windows, nothing else",
			func(*bed) nodeLaw { return openLoop{} },
		},
	}
}

// fastIntegral is the peer of cap-step: no model of the node, every 250 ms a part of the difference
// between the cap and the wall power that RAPL implies, as loops closed on wall power do (Lefurgy,
// Wang and Ware, ICAC 2007, without its model).
func fastIntegral(gain float64) newLaw {
	return newLaw{make: func(b *bed) nodeLaw { return newIntegral(b, gain, true) }}
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

func newTwoSpeed(b *bed) *twoSpeed {
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

// openLoop writes the cap, in equal parts, as package limits; with a window of 0
// the factory's stay.
type openLoop struct{ window time.Duration }

func (o openLoop) turn(b *bed, changed bool) {
	if !changed {
		return
	}
	for _, p := range b.plants {
		if o.window > 0 {
			p.SetWindow(plant.LongTerm, o.window)
		}
		p.SetLimit(plant.LongTerm, b.cap/units.Power(len(b.plants)))
	}
}

// pstateStep walks down and up the P-states by measured package and DRAM power,
// which is made into wall power by the same model that Headroom has.
type pstateStep struct {
	counters
	next time.Duration
	step int // below the highest frequency
}

const (
	pstatePeriod = 500 * time.Millisecond
	pstateTwo    = 30.0 // W over the cap that take two steps
	pstateRoom   = 8.0  // W that a step up is expected to cost a socket
)

func newPstateStep(b *bed) *pstateStep {
	for _, p := range b.plants {
		p.SetEnabled(false)
	}
	return &pstateStep{}
}

func (p *pstateStep) turn(b *bed, _ bool) {
	if b.now < p.next {
		return
	}
	p.next = b.now + pstatePeriod
	in := p.look(b)
	if !in.Package.Known {
		return
	}
	switch over := (b.config.Wall(in.Package.Power, in.DRAM.Power) - b.cap).Watts(); {
	case over > pstateTwo:
		p.step += 2
	case over > 0:
		p.step++
	case over < -pstateRoom*float64(len(b.plants)):
		p.step--
	}
	ladder := b.plants[0].Spec().Frequencies()
	p.step = min(max(p.step, 0), len(ladder)-1)
	for _, socket := range b.plants {
		for cpu := range socket.Spec().Cores {
			socket.SetCeiling(cpu, ladder[p.step])
		}
	}
}

// integralGain is the part; with a reading as late as this BMC's a larger one rings.
const integralGain = 0.5

// integral adds a part of the difference between cap and wall power to the package limits: at
// each update of the BMC, or, if fast, every 250 ms by what RAPL implies.
type integral struct {
	counters
	gain  float64
	fast  bool
	limit float64       // W, all packages
	seen  time.Duration // update of the BMC that was used
}

func newIntegral(b *bed, gain float64, fast bool) *integral {
	windows(b, capping.LongWindow, capping.ShortWindow)
	start := b.config.PackageMax.Watts()
	if fast {
		start = b.cap.Watts() * b.config.Efficiency
	}
	return &integral{gain: gain, fast: fast, limit: start}
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
