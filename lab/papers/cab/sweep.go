package cab

import (
	"context"
	"fmt"
	"io"

	"headroom/lab/papers"
	"headroom/lab/report"
)

// sweptSeeds are enough for --sweep, where verdicts are compared and not figures.
const sweptSeeds = 3

// swept are the servers of --sweep. The exponent is 1 with a voltage that is fixed, and
// above 2 where the voltage follows the frequency.
func swept() []physics {
	var all []physics
	for _, exponent := range []float64{1.0, 1.15, 1.5, 2.0, 2.4} {
		for _, busy := range []float64{0.6, 0.78, 1.0} {
			all = append(all, physics{exponent: exponent, busy: busy})
		}
	}
	return all
}

// sweep are the servers and what judges the study on each.
func (o *options) sweep(context.Context, io.Writer) ([]papers.Setting, error) {
	measured, err := profiled(profileOf)
	if err != nil {
		return nil, err
	}
	var all []papers.Setting
	for _, p := range swept() {
		all = append(all, papers.Setting{Name: fmt.Sprintf("%g/%g", p.exponent, p.busy), Targets: func(ctx context.Context) ([]report.Target, error) {
			s := whole(measured)
			s.machine, s.variants = p, variants()
			trials, err := s.run(ctx, o.Seed, o.Seeds)
			return (&figures{trials: trials, measured: measured}).targets(), err
		}})
	}
	return all, nil
}
