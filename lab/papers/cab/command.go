package cab

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
)

// Bounds of the flags.
const (
	seedsDefault = 20
)

// options are the flags of `powerlab paper cab`.
type options struct {
	papers.Options
}

// simulate runs all experiments on the emulated plant.
func (o *options) simulate(ctx context.Context, _ io.Writer) ([]papers.Target, error) {
	measured, err := profiled(profileOf)
	if err != nil {
		return nil, err
	}
	s := whole(measured)
	trials, err := s.run(ctx, o.Seed, o.Seeds)
	if err != nil {
		return nil, err
	}
	f := &figures{trials: trials, measured: measured}
	if err := o.Keep(f.files(o.Seed)); err != nil {
		return nil, err
	}
	return f.targets(), nil
}

// NewCommand is `powerlab paper cab`.
func NewCommand() *cobra.Command {
	o := options{Options: papers.Options{Seeds: seedsDefault}}
	cmd := &cobra.Command{
		Short: "QoR-aware power capping for approximate big data processing (CAB)",
		Long: `Repeats CAB's experiments: three sets of three jobs on a server with 28 containers under power caps, with the
quality floors of Table I. The variants are: no cap, capped, modified ApproxHadoop, CAB as printed and as published,
equal shares, and ours. The server is the emulated plant in virtual time, and the job loop is the coordinators'. It
learns uncapped finish times from earlier runs of other tasks, for every variant alike. The same seeds give the same
bytes.

--out writes targets.csv and targets.md, runs.csv (every run), summary.csv (means, bounds, and the results with an
oracle of the uncapped finish times), containers.csv (the run of Fig. 5), fig4.svg, fig5.svg, table2.svg, and
policies.md, fig4.md and table1.md, which are the tables of lab/docs/cab.md.

--mutants repeats the study with one deliberate mistake at a time: no power in eq. (1), no early stop, and others.
--sweep repeats it with values that the paper does not give: the exponent of power over frequency (1 to 2.4), and the
fraction of a core that a task keeps busy (0.6 to 1).

"powerlab campaign cab-yarn" runs one set for real, on Hadoop.`,
		Example: "  powerlab paper cab\n  powerlab paper cab --seeds 5 --out cab-out\n  powerlab paper cab -o json\n  powerlab paper cab --mutants -o json",
	}
	return papers.Study{
		Paper: "cab", Check: func() error { return nil }, Engines: map[string]papers.Engine{"": o.simulate},
		Mutants: o.mutants, MutantSeeds: mutantSeeds, Sweep: o.sweep, SweepSeeds: sweptSeeds,
	}.Command(cmd, &o.Options)
}
