package ipso

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
	"headroom/lab/report"
)

const (
	seedsDefault = 20
	// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
	mutantSeeds = 5
)

// options are the flags of `powerlab paper ipso`.
type options struct{ papers.Options }

// NewCommand is `powerlab paper ipso`.
func NewCommand() *cobra.Command {
	o := options{papers.Options{Seeds: seedsDefault}}
	cmd := &cobra.Command{
		Short: "How data-intensive jobs scale out (IPSO)",
		Long: `Computes IPSO's results: the laws that are its special cases, the scaling types with their bounds, Table 2.1 with its
peak, TeraSort's step, and predictions ten times beyond the measured range. Table 2.1 is the paper's own. The paper does
not print its other measurements; they are generated from the printed slopes, with noise drawn from the seed.

--out writes targets.csv and targets.md, table21.csv, and fig2.8.svg.`,
		Example: "  powerlab paper ipso\n  powerlab paper ipso --out ipso-out\n  powerlab paper ipso --mutants -o json",
	}
	return papers.Study{
		Paper: "ipso", Check: func() error { return nil }, Engines: map[string]papers.Engine{"": o.simulate}, Mutants: o.mutants, MutantSeeds: mutantSeeds,
	}.Command(cmd, &o.Options)
}

func (o *options) simulate(_ context.Context, _ io.Writer) ([]report.Target, error) {
	f, err := honest().run(o.Seed, o.Seeds)
	if err != nil {
		return nil, err
	}
	if err := o.Keep(f.files()); err != nil {
		return nil, err
	}
	return f.targets(), nil
}
