// Package ipso is `powerlab paper ipso`: the results of IPSO (Li, Duan, Nguyen, Che, Lei, Jiang:
// "IPSO: A Scaling Model for Data-Intensive Applications", ICDCS 2019; chapter 2 of Li's
// dissertation), computed by package jobs/scaling/ipso. The paper prints Table 2.1; for the other
// cases only slopes, a step and a bound, so measurements of that shape are generated, with noise, from seeds.
package ipso

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
)

// NewCommand is `powerlab paper ipso`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "ipso", Seeds: 20,
		Short: "How data-intensive jobs scale out (IPSO)",
		Long: `Computes IPSO's results: the laws that are its special cases, the scaling types with their bounds, Table 2.1 with its
peak, TeraSort's step, and predictions ten times beyond the measured range. Table 2.1 is the paper's own. The paper does
not print its other measurements; they are generated from the printed slopes, with noise drawn from the seed.`,
		Run: func(_ context.Context, o *papers.Options) (*papers.Result, error) {
			targets, err := honest().judged(o.Seed, o.Seeds)
			return &papers.Result{Targets: targets}, err
		},
	}.Command()
}
