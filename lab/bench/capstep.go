package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// newLaw makes a law for a node.
type newLaw func(b *bed) nodeLaw

// try runs every scene under the law.
func (l newLaw) try(ctx context.Context, scenes []scene) (all []verdict, err error) {
	const warmUp = 20 * time.Second
	for _, s := range scenes {
		b, err := newBed(s)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		law, changed := l(b), true
		turn := func() { law.turn(b, changed); changed = false }
		b.begin(loadFull)
		for b.now < warmUp {
			b.step(turn)
		}
		for _, step := range s.steps {
			b.begin(step.load)
			for end := b.now + step.wait; b.now < end; { // any phase of the loop
				b.tick(turn)
			}
			b.cap, changed = step.cap, true
			var points []point
			for end := b.now + stepWatched; b.now < end; {
				points = append(points, b.step(turn))
			}
			all = append(all, judge(points, step.cap.Watts()))
		}
	}
	return all, nil
}

// column is one value of every verdict, times a factor.
func column(all []verdict, factor float64, of func(verdict) float64) (out []float64) {
	for _, v := range all {
		out = append(out, factor*of(v))
	}
	return out
}

func settles(v verdict) float64 { return v.settle }

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// benchSeed is the seed of the steps in `powerlab bench`.
const benchSeed = 1

// capStep measures steps of the cap on one busy socket. The peer gets the gain that serves it best.
func capStep(ctx context.Context, r *run) error {
	scenes := stage(benchSeed, pick(r, 400, 40), true)
	ours, err := newLaw(newTwoSpeed).try(ctx, scenes)
	if err != nil {
		return err
	}
	var peer []verdict
	best, gains := 0.0, []float64{0.3, 0.5, 0.7, 0.9, 1.1}
	for _, g := range gains {
		all, err := newIntegral(g, true).try(ctx, scenes)
		if err != nil {
			return err
		}
		if best == 0 || quantile(column(all, 1, settles), 0.99) < quantile(column(peer, 1, settles), 0.99) {
			peer, best = all, g
		}
	}
	put := func(figure string, factor float64, of func(verdict) float64, note string) {
		r.put(figure, column(ours, factor, of), column(peer, factor, of), "%s", note)
	}
	put("cap-step", 1, settles, fmt.Sprintf("%d random steps, virtual time; peer: plain integrator, best of %d gains (%.1f)", len(ours), len(gains), best))
	put("cap-step-over", 100, func(v verdict) float64 { return v.over }, "50 ms means")
	put("cap-step-over-time", 1, func(v verdict) float64 { return v.longest }, "50 ms means")
	steady := func(v verdict) float64 { return v.steady }
	all, theirs := column(ours, 100, steady), column(peer, 100, steady)
	r.put("cap-step-mean", one(mean(all)), one(mean(theirs)), "single steps from %.2f to %.2f %%; peer from %.2f to %.2f %%", slices.Min(all), slices.Max(all), slices.Min(theirs), slices.Max(theirs))
	return nil
}

// wallStep measures steps of the cap under all loads, with a BMC. The peer is the integral from its readings.
func wallStep(ctx context.Context, r *run) error {
	scenes := stage(benchSeed, pick(r, 200, 20), false)
	ours, err := newLaw(newTwoSpeed).try(ctx, scenes)
	if err != nil {
		return err
	}
	peer, err := newIntegral(integralGain, false).try(ctx, scenes)
	if err != nil {
		return err
	}
	never := len(slices.DeleteFunc(slices.Clone(peer), func(v verdict) bool { return !math.IsInf(v.settle, 1) }))
	r.put("wall-step", column(ours, 1, settles), column(peer, 1, settles), "%d random steps, virtual time; peer: plain integral from wall power to RAPL, p50 %.2f s, %d steps never settled", len(ours), quantile(column(peer, 1, settles), 0.5), never)
	return nil
}
