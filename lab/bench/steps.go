package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/capping"
	"headroom/lab/emulator/plant"
	"headroom/units"
)

// Laws are compared on a node of one or two sockets of the plant. Each socket has a twin without a
// cap, which shows what the load would draw. The node has a BMC.
const (
	// loopPeriod is powerd's, plantStep the step of the plant.
	loopPeriod = 250 * time.Millisecond
	plantStep  = 5 * time.Millisecond
	// band around the new cap that counts as met.
	band = 0.02
	// judged is the length of the means of wall power that are judged.
	judged = 50 * time.Millisecond
	// bmcEvery, bmcLag and bmcSpan: how the BMC updates, how late, over what mean.
	bmcEvery, bmcLag, bmcSpan = 2 * time.Second, 500 * time.Millisecond, time.Second
	bmcHeld                   = int((bmcLag + bmcSpan) / judged)
	// A scene begins with warmUp; each step is followed for stepWatched. Power must stay in the band
	// for holdFor to count as settled. From steadyFrom on it is steady.
	warmUp, stepWatched = 20 * time.Second, 12 * time.Second
	holdFor, steadyFrom = 2 * time.Second, 4 * time.Second
	// benchSeed is the seed of the steps, and of the loads of the cluster's nodes.
	benchSeed = 1
)

// scene is a stretch of one node's life: the same for every law.
type scene struct {
	sockets int
	seed    uint64
	start   units.Power
	steps   []capStepTo
}

// capStepTo is one step of the cap, and the load beside it.
type capStepTo struct {
	cap  units.Power
	load workload
	wait time.Duration // before it, so that any phase of a loop is met
}

// workload is a kind of load.
type workload int

const (
	loadFull   workload = iota // all CPUs busy
	loadNoisy                  // busy, and never the same
	loadPhases                 // jumps between two levels every few seconds
	loadWave                   // swells and ebbs
	loadLopsided
	loads
)

// stage makes scenes with the given number of steps in all; plain ones have one socket that is always busy.
func stage(steps int, plain bool) (all []scene) {
	const perScene = 8
	rng := rand.New(rand.NewPCG(benchSeed, 21))
	for left := steps; left > 0; left -= perScene {
		s := scene{sockets: 1 + rng.IntN(2), seed: rng.Uint64()}
		if plain {
			s.sockets = 1
		}
		draw := func() units.Power { return units.Power(s.sockets) * units.FromWatts(85+125*rng.Float64()) }
		s.start = draw()
		for range min(left, perScene) {
			to := capStepTo{cap: draw(), load: workload(rng.IntN(int(loads))), wait: time.Duration(rng.IntN(50)) * plantStep}
			if plain {
				to.load = loadFull
			}
			s.steps = append(s.steps, to)
		}
		all = append(all, s)
	}
	return all
}

// socket is one socket, its twin, and its counters as they were read last.
type socket struct {
	*plant.Plant

	twin      *plant.Plant
	pkg, dram units.Energy
	power     units.Power // of the package since the reading before
}

// bed is the node that a law is tried on.
type bed struct {
	sockets []*socket
	config  capping.Config
	cap     units.Power
	now     time.Duration
	looked  time.Duration // when the counters were read; 0 at first

	rng   *rand.Rand
	load  workload
	level float64 // of the load, 0 to 1
	other float64 // the second level of phases, the swing of waves
	until time.Duration

	means   []float64 // of wall power
	bmcAt   time.Duration
	reading capping.WallReading
}

func newBed(s scene) (*bed, error) {
	b := &bed{rng: rand.New(rand.NewPCG(s.seed, 22)), cap: s.start, level: 1}
	spec := plant.DefaultSpec()
	for range s.sockets {
		spec.EnergyStart = units.Energy(b.rng.Int64N(int64(plant.DRAMRange)))
		p, err := plant.New(spec)
		twin, errTwin := plant.New(spec)
		if err := errors.Join(err, errTwin); err != nil {
			return nil, err
		}
		twin.SetEnabled(false)
		p.SetWindow(plant.LongTerm, capping.LongWindow)
		p.SetWindow(plant.ShortTerm, capping.ShortWindow)
		b.sockets = append(b.sockets, &socket{Plant: p, twin: twin, pkg: p.PackageEnergy(), dram: p.DRAMEnergy()})
	}
	n := units.Power(s.sockets)
	b.config = capping.Config{
		Other: n * spec.Other, Efficiency: spec.WorstEfficiency(), PackageMin: n * 5 * units.Watt, PackageMax: n * spec.TDP, HasDRAM: true,
	}
	return b, nil
}

// begin starts another load.
func (b *bed) begin(l workload) {
	b.load, b.level, b.other, b.until = l, 0.95+0.05*b.rng.Float64(), 0.75+0.15*b.rng.Float64(), b.now
}

// busy is how busy one socket is now.
func (b *bed) busy(socket int) float64 {
	changes := b.now >= b.until
	switch {
	case b.load == loadNoisy && changes:
		b.level = min(1, max(0.8, b.level+0.2*(0.93-b.level)+0.02*b.rng.NormFloat64()))
		b.until = b.now + 20*time.Millisecond
	case b.load == loadPhases && changes:
		b.level, b.other = b.other, b.level
		b.until = b.now + time.Duration(2+b.rng.IntN(4))*time.Second
	case b.load == loadWave:
		return b.level - (b.level-b.other)*(0.5-0.5*math.Cos(b.now.Seconds()*2*math.Pi/8))
	case b.load == loadLopsided && socket > 0:
		return b.other
	}
	return b.level
}

// tick advances the plants by one step and adds a part of their wall power, with and without a cap, to a mean.
func (b *bed) tick(turn func(), p *point, part float64) {
	turn()
	wall, free := 0.0, 0.0
	for i, s := range b.sockets {
		busy := b.busy(i)
		s.Step(plantStep, busy)
		s.twin.Step(plantStep, busy)
		wall, free = wall+s.Wall().Watts(), free+s.twin.Wall().Watts()
	}
	b.now += plantStep
	p.wall, p.free = p.wall+wall/part, p.free+free/part
}

// step advances by one judged mean, of which the BMC makes a new reading every bmcEvery.
func (b *bed) step(turn func()) (p point) {
	const n = int(judged / plantStep)
	for range n {
		b.tick(turn, &p, float64(n))
	}
	b.means = append(b.means, p.wall)
	if b.now < b.bmcAt || len(b.means) < bmcHeld {
		return p
	}
	b.bmcAt = b.now + bmcEvery
	late := b.means[len(b.means)-bmcHeld:][:int(bmcSpan/judged)]
	if p := units.FromWatts(sum(late)/float64(len(late))) / units.Watt * units.Watt; p != b.reading.Power {
		b.reading = capping.WallReading{Power: p, Known: true, Serial: b.reading.Serial + 1, ChangedAt: b.now}
	}
	return p
}

func sum(values []float64) (all float64) {
	for _, v := range values {
		all += v
	}
	return all
}

// counters reads what the sockets drew since the time before, as a sample of the law.
func (b *bed) counters() capping.Sample {
	in := capping.Sample{Elapsed: b.now - b.looked}
	grown := func(at *units.Energy, to, span units.Energy) units.Power {
		from := *at
		*at = to
		if to < from {
			to += span // it wrapped
		}
		return (to - from).Over(in.Elapsed)
	}
	if in.Elapsed > 0 {
		for _, s := range b.sockets {
			s.power = grown(&s.pkg, s.PackageEnergy(), plant.PackageRange)
			in.Package.Power += s.power
			in.DRAM.Power += grown(&s.dram, s.DRAMEnergy(), plant.DRAMRange)
		}
	}
	in.Package.Known, in.DRAM.Known = in.Elapsed > 0, in.Elapsed > 0
	b.looked = b.now
	return in
}

// law makes what holds a node at its cap. That is called at each step of the plant and keeps its own
// period; changed reports that the cap has just been set.
type law func(b *bed) func(changed bool)

// twoSpeed is Headroom's law as powerd runs it: RAPL fast, the BMC slow, sockets by demand.
func twoSpeed(b *bed) func(changed bool) {
	learner, state, sockets := capping.NewLearner(b.config), capping.State{}, make([]capping.Socket, len(b.sockets))
	return func(changed bool) {
		if !changed && b.now-b.looked < loopPeriod && b.now > 0 {
			return
		}
		in := b.counters()
		learner.Observe(b.now, in)
		b.reading.AskedAt = b.now
		learner.Learn(b.now, b.reading)
		var act capping.Actions
		act, state = capping.Step(b.now, in, b.cap, state, learner.Config())
		for i, p := range b.sockets {
			s := &sockets[i]
			s.Power.Power += units.Power(float64(p.power-s.Power.Power) * min(1, in.Elapsed.Seconds()))
			s.Power.Known, s.Max = s.Power.Power > 0, p.Spec().TDP
		}
		above := act.Short.Watts() / act.Long.Watts()
		for i, long := range capping.Share(act.Long, sockets) {
			sockets[i].Limit = b.sockets[i].SetLimit(plant.LongTerm, long)
			b.sockets[i].SetLimit(plant.ShortTerm, units.FromWatts(long.Watts()*above))
		}
	}
}

// integralGain is the part that the slow integral adds; with a reading as late as this BMC's a larger one rings.
const integralGain = 0.5

// integral is the peer: without a model of the node, it adds a part of the difference between the cap
// and wall power to the package limits: at each update of the BMC, or, if fast, every 250 ms by what
// RAPL implies, as loops closed on wall power do (Lefurgy, Wang and Ware, ICAC 2007, without its model).
func integral(gain float64, fast bool) law {
	return func(b *bed) func(bool) {
		seen, limit := time.Duration(0), b.config.PackageMax.Watts()
		if fast {
			limit = b.cap.Watts() * b.config.Efficiency
		}
		return func(bool) {
			wall := b.reading.Power
			if fast {
				if b.now > 0 && b.now-b.looked < loopPeriod {
					return
				}
				in := b.counters()
				if !in.Package.Known {
					return
				}
				wall = b.config.Wall(in.Package.Power, in.DRAM.Power)
			} else if !b.reading.Known || b.bmcAt == seen {
				return
			}
			seen = b.bmcAt
			limit += gain * b.config.Efficiency * (b.cap - wall).Watts()
			limit = min(max(limit, b.config.PackageMin.Watts()), b.config.PackageMax.Watts()) // anti-windup
			for _, s := range b.sockets {
				long := limit / float64(len(b.sockets))
				s.SetLimit(plant.LongTerm, units.FromWatts(long))
				s.SetLimit(plant.ShortTerm, units.FromWatts(1.01*long))
			}
		}
	}
}

// try runs every scene under the law.
func (l law) try(ctx context.Context, scenes []scene) (all verdicts, err error) {
	for _, s := range scenes {
		b, err := newBed(s)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		turn, changed := l(b), true
		next := func() { turn(changed); changed = false }
		b.begin(loadFull)
		for b.now < warmUp {
			b.step(next)
		}
		for _, step := range s.steps {
			b.begin(step.load)
			for end := b.now + step.wait; b.now < end; { // any phase of the loop
				b.tick(next, &point{}, 1)
			}
			b.cap, changed = step.cap, true
			var points []point
			for end := b.now + stepWatched; b.now < end; {
				points = append(points, b.step(next))
			}
			all = append(all, judge(points, step.cap.Watts()))
		}
	}
	return all, nil
}

// point is one judged mean.
type point struct{ wall, free float64 }

// verdict is how one step of the cap went.
type verdict struct {
	settle  float64 // s; +Inf: never
	over    float64 // highest mean above the cap once the band had been entered, ratio
	longest float64 // s: longest stretch above the cap by half the band or more, from then on
	steady  float64 // mean difference to what the node should draw, ratio to the cap
}

// judge looks at the means from the moment of the step on. What the node should
// draw is the cap, or what its load draws with no cap where that is less.
func judge(points []point, granted float64) verdict {
	v := verdict{settle: math.Inf(1)}
	within, above, entered, steady := 0, 0, false, []float64{}
	for i, p := range points {
		off := (p.wall - min(granted, p.free)) / granted
		within++
		if math.Abs(off) > band {
			within = 0
		}
		entered = entered || within > 0
		if within == int(holdFor/judged) && math.IsInf(v.settle, 1) {
			v.settle = (time.Duration(i+1-within) * judged).Seconds()
		}
		if ratio := p.wall/granted - 1; entered {
			above++
			if ratio <= band/2 {
				above = 0
			}
			v.over, v.longest = max(v.over, ratio), max(v.longest, (time.Duration(above)*judged).Seconds())
		}
		if time.Duration(i)*judged >= steadyFrom {
			steady = append(steady, off)
		}
	}
	v.steady = sum(steady) / float64(max(len(steady), 1))
	return v
}

// verdicts are those of all steps.
type verdicts []verdict

// settles are the times of all steps, s.
func (all verdicts) settles() []float64 {
	return all.of(1, func(v verdict) float64 { return v.settle })
}

// of is one value of every verdict, times a factor.
func (all verdicts) of(factor float64, value func(verdict) float64) (out []float64) {
	for _, v := range all {
		out = append(out, factor*value(v))
	}
	return out
}

func mean(values []float64) (mean float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	return mean
}

// capStep measures steps of the cap on one busy socket. The peer gets the gain that serves it best.
func capStep(ctx context.Context, r *run) error {
	scenes := stage(pick(r, 400, 40), true)
	ours, err := law(twoSpeed).try(ctx, scenes)
	if err != nil {
		return err
	}
	var peer verdicts
	best, gains := 0.0, []float64{0.3, 0.5, 0.7, 0.9, 1.1}
	for _, g := range gains {
		all, err := integral(g, true).try(ctx, scenes)
		if err != nil {
			return err
		}
		if best == 0 || quantile(all.settles(), 0.99) < quantile(peer.settles(), 0.99) {
			peer, best = all, g
		}
	}
	put := func(figure string, factor float64, of func(verdict) float64, note string) {
		r.put(figure, ours.of(factor, of), peer.of(factor, of), "%s", note)
	}
	put("cap-step", 1, func(v verdict) float64 { return v.settle }, fmt.Sprintf("%d random steps, virtual time; peer: plain integrator, best of %d gains (%.1f)", len(ours), len(gains), best))
	put("cap-step-over", 100, func(v verdict) float64 { return v.over }, "50 ms means")
	put("cap-step-over-time", 1, func(v verdict) float64 { return v.longest }, "50 ms means")
	steady := func(v verdict) float64 { return v.steady }
	all, theirs := ours.of(100, steady), peer.of(100, steady)
	r.put("cap-step-mean", one(mean(all)), one(mean(theirs)), "single steps from %.2f to %.2f %%; peer from %.2f to %.2f %%", slices.Min(all), slices.Max(all), slices.Min(theirs), slices.Max(theirs))
	return nil
}

// wallStep measures steps of the cap under all loads, with a BMC. The peer is the integral from its readings.
func wallStep(ctx context.Context, r *run) error {
	scenes := stage(pick(r, 200, 20), false)
	ours, err := law(twoSpeed).try(ctx, scenes)
	if err != nil {
		return err
	}
	peer, err := integral(integralGain, false).try(ctx, scenes)
	if err != nil {
		return err
	}
	theirs, never := peer.settles(), 0
	for _, s := range theirs {
		if math.IsInf(s, 1) {
			never++
		}
	}
	r.put("wall-step", ours.settles(), theirs, "%d random steps, virtual time; peer: plain integral from wall power to RAPL, p50 %.2f s, %d steps never settled", len(ours), quantile(theirs, 0.5), never)
	return nil
}
