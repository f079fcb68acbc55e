package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"headroom/capping"
	"headroom/emulator/plant"
	"headroom/units"
)

const (
	// lawPeriod is how often powerd's loop runs; instant is a step of the plant.
	lawPeriod = 250 * time.Millisecond
	instant   = 5 * time.Millisecond
	// settledBand is how close to the cap the power must stay to count as settled.
	settledBand = 0.02
	// watched is how long one step of the cap is watched, the last ten seconds of it for the mean.
	watched = 13 * time.Second
	// integratorGain is the best for the peer on this plant: the part of the
	// difference that it takes out in one period. Higher gains ring, lower ones
	// take longer.
	integratorGain = 0.5
)

// controller is a control law on the emulated plant.
type controller interface {
	// decide writes the limits that go with the cap, from the means since the last time.
	decide(now, elapsed time.Duration, pkg, dram, wall, granted units.Power, p *plant.Plant)
}

// ours is the law that powerd runs.
type ours struct {
	config capping.Config
	state  capping.State
}

func (o *ours) decide(now, elapsed time.Duration, pkg, dram, _, granted units.Power, p *plant.Plant) {
	in := capping.Sample{
		Elapsed: elapsed, Package: capping.Reading{Power: pkg, Known: elapsed > 0}, DRAM: capping.Reading{Power: dram, Known: elapsed > 0},
	}
	var act capping.Actions
	act, o.state = capping.Step(now, in, granted, o.state, o.config)
	p.SetLimit(plant.LongTerm, act.Long)
	p.SetLimit(plant.ShortTerm, act.Short)
}

// integrator closes the loop on wall power alone: each period it moves the limit
// by a part of what the wall is off (the controller that most tools have).
type integrator struct {
	spec  plant.Spec
	limit float64 // W
}

func (i *integrator) decide(_, elapsed time.Duration, _, _, wall, granted units.Power, p *plant.Plant) {
	if elapsed > 0 {
		i.limit += integratorGain * (granted - wall).Watts() * i.spec.Efficiency
	}
	i.limit = min(max(i.limit, 5), i.spec.TDP.Watts())
	p.SetLimit(plant.LongTerm, units.FromWatts(i.limit))
	p.SetLimit(plant.ShortTerm, units.FromWatts(i.limit*1.01))
}

// rig is one plant under one controller.
type rig struct {
	plant     *plant.Plant
	law       controller
	cap       units.Power
	now, last time.Duration
	energy    [3]units.Energy // package, DRAM, wall at the last look
}

func newRig(spec plant.Spec, law controller, granted units.Power) (*rig, error) {
	p, err := plant.New(spec)
	if err != nil {
		return nil, err
	}
	p.SetWindow(plant.LongTerm, capping.LongWindow)
	p.SetWindow(plant.ShortTerm, capping.ShortWindow)
	return &rig{plant: p, law: law, cap: granted, energy: [3]units.Energy{p.PackageEnergy(), p.DRAMEnergy(), p.WallEnergy()}}, nil
}

func (r *rig) step() {
	elapsed := r.now - r.last
	now := [3]units.Energy{r.plant.PackageEnergy(), r.plant.DRAMEnergy(), r.plant.WallEnergy()}
	var mean [3]units.Power
	if elapsed > 0 {
		for i := range mean {
			mean[i] = (now[i] - r.energy[i]).Over(elapsed)
		}
	}
	r.energy, r.last = now, r.now
	r.law.decide(r.now, elapsed, mean[0], mean[1], mean[2], r.cap, r.plant)
}

func (r *rig) run(d time.Duration, watch func(wall units.Power)) {
	for end := r.now + d; r.now < end; {
		if r.now-r.last >= lawPeriod || r.now == 0 {
			r.step()
		}
		r.plant.Step(instant, 1)
		r.now += instant
		if watch != nil {
			watch(r.plant.Wall())
		}
	}
}

// outcome is how one step of the cap went.
type outcome struct {
	settle  time.Duration // until the power stays within the band
	over    float64       // highest above the new cap once it was met, as a ratio
	overFor time.Duration // time above the cap by more than half the band once it was met
	mean    float64       // of the last ten seconds against the cap, as a ratio
}

// change steps the cap, at any phase of the loop: powerd acts on a lease at once.
func (r *rig) change(to units.Power, atOnce bool) outcome {
	from := r.cap
	r.cap = to
	if atOnce {
		r.step()
	}
	var o outcome
	began, last, reached := r.now, r.now, false
	sum, n := 0.0, 0
	r.run(watched, func(wall units.Power) {
		off := wall.Watts()/to.Watts() - 1
		if math.Abs(off) > settledBand {
			last = r.now
		}
		if reached = reached || (to > from) == (off > 0); reached {
			o.over = max(o.over, off)
			if off > settledBand/2 {
				o.overFor += instant
			}
		}
		if r.now-began > watched-10*time.Second {
			sum, n = sum+off, n+1
		}
	})
	o.settle, o.mean = last-began, sum/float64(n)
	return o
}

// outcomes of many steps.
type outcomes struct {
	settle          spread[time.Duration]
	over            float64
	overFor         time.Duration
	meanLow, meanUp float64
}

// stepMany runs plants of different ages and phases through random steps of the cap.
func stepMany(ctx context.Context, plants int, atOnce bool, law func(plant.Spec) controller) (outcomes, error) {
	const steps = 6
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same steps for both laws
	all := outcomes{meanLow: math.Inf(1), meanUp: math.Inf(-1)}
	var settle []time.Duration
	spec := plant.DefaultSpec()
	low, high := int(spec.Floor().Watts())+15, int(spec.Rated().Watts())-25
	for range plants {
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		r, err := newRig(spec, law(spec), 150*units.Watt)
		if err != nil {
			return all, err
		}
		r.run(5*time.Second, nil)
		for range steps {
			r.run(time.Duration(rng.IntN(50))*instant, nil)
			o := r.change(units.Power(low+rng.IntN(high-low))*units.Watt, atOnce)
			settle = append(settle, o.settle)
			all.over, all.overFor = max(all.over, o.over), max(all.overFor, o.overFor)
			all.meanLow, all.meanUp = min(all.meanLow, o.mean), max(all.meanUp, o.mean)
		}
	}
	all.settle = spreadOf(settle)
	return all, nil
}

func measureCapStep(ctx context.Context, l *lab) ([]Row, error) {
	plants := l.pick(300, 40)
	law, err := stepMany(ctx, plants, true, func(s plant.Spec) controller {
		return &ours{config: capping.Config{
			Other: s.Other, Efficiency: s.WorstEfficiency(), PackageMin: 5 * units.Watt, PackageMax: s.TDP, HasDRAM: true,
		}}
	})
	if err != nil {
		return nil, err
	}
	peer, err := stepMany(ctx, plants, false, func(s plant.Spec) controller { return &integrator{spec: s, limit: s.TDP.Watts()} })
	if err != nil {
		return nil, err
	}
	return capStepRows(law, peer), nil
}

func capStepRows(law, peer outcomes) []Row {
	n := len(law.settle.sorted)
	return []Row{
		{
			Figure: "cap-step", What: fmt.Sprintf("%d random steps, until within 2 %% of the new cap for good", n), Goal: "p99 <= 1 s",
			Measured: fmt.Sprintf("p50 %s, p99 %s", shown(law.settle.median()), shown(law.settle.p99())),
			Peer:     fmt.Sprintf("plain integrator: p50 %s, p99 %s", shown(peer.settle.median()), shown(peer.settle.p99())),
			Ratio:    ratio(law.settle.p99().Seconds(), peer.settle.p99().Seconds()), Verdict: verdict(law.settle.p99() <= time.Second),
			Values: map[string]float64{
				"p50_s": law.settle.median().Seconds(), "p99_s": law.settle.p99().Seconds(),
				"peer_p50_s": peer.settle.median().Seconds(), "peer_p99_s": peer.settle.p99().Seconds(), "steps": float64(n),
			},
		},
		{
			Figure: "cap-step", What: "highest power above the new cap, and for how long", Goal: "<= 3 %, <= 250 ms",
			Measured: fmt.Sprintf("%.2f %%, %s", 100*law.over, shown(law.overFor)), Verdict: verdict(law.over <= 0.03 && law.overFor <= 250*time.Millisecond),
			Peer:   fmt.Sprintf("plain integrator: %.2f %%, %s", 100*peer.over, shown(peer.overFor)),
			Values: map[string]float64{"over_ratio": law.over, "over_s": law.overFor.Seconds(), "peer_over_ratio": peer.over, "peer_over_s": peer.overFor.Seconds()},
		},
		{
			Figure: "cap-step", What: "mean of ten steady seconds against the cap", Goal: "-2 to 0 %",
			Measured: fmt.Sprintf("%+.2f to %+.2f %%", 100*law.meanLow, 100*law.meanUp), Verdict: verdict(law.meanLow >= -0.02 && law.meanUp <= 0),
			Peer:   fmt.Sprintf("plain integrator: %+.2f to %+.2f %%", 100*peer.meanLow, 100*peer.meanUp),
			Values: map[string]float64{"mean_low_ratio": law.meanLow, "mean_high_ratio": law.meanUp},
		},
	}
}
