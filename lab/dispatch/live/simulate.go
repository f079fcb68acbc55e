package live

import (
	"context"
	"math"

	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// simulate runs the load in the simulation of powerlab dispatch, once with each seed, and returns the spread of the figures.
func simulate(ctx context.Context, policy string, of shape, l *load, seed uint64, seeds int) (map[cell]spread, error) {
	var all []figures
	for i := range seeds {
		took := make([]float64, len(l.jobs))
		for k := range took {
			took[k] = math.NaN()
		}
		setup := dispatch.Setup{
			Policy: dispatch.Policy(policy), Workers: of.workers(), Groups: of.groups, Reserved: of.reserved, Cutoff: l.cutoff, Hop: dispatch.HopUsual,
			Distributors: of.distributors, Seed: seed + uint64(i), Ended: func(e dispatch.Ended) { took[e.Index] = e.Completion },
		}
		if _, err := dispatch.Run(ctx, setup, traces.All(l.jobs)); err != nil {
			return nil, err
		}
		all = append(all, figuresOf(l, took))
	}
	return spreadOf(all), nil
}
