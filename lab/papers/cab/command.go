package cab

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// Bounds of the flags.
const (
	seedsDefault = 20
	// mapsDefault makes twelve waves: a job has two containers for its maps.
	mapsDefault  = 24
	mapsMost     = 1000
	pairsDefault = 5
	pairsMost    = 100
	// capDefault is 200 of 350 W, the middle one of the paper's caps on its server.
	capDefault = 200. / 350
)

// options are the flags of `powerlab paper cab`.
type options struct {
	papers.Options

	// Of a real engine alone.
	set, quality, maps   int
	pairs                int
	cap                  float64
	approx, steps, quick bool
}

// simulate runs all experiments on the emulated plant.
func (o *options) simulate(ctx context.Context, _ io.Writer) ([]report.Target, error) {
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

// onYARN runs one experiment on a real Hadoop.
func (o *options) onYARN(ctx context.Context, progress io.Writer) ([]report.Target, error) {
	if err := o.Keep(nil); err != nil { // before a run of minutes
		return nil, err
	}
	real := *o
	if real.quick {
		real.pairs, real.steps = 1, false
	}
	results, err := runReal(ctx, &real, progress)
	if err != nil {
		return nil, err
	}
	return results.targets(), nil
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
policies.md, fig4.md and table1.md, which are the tables of docs/cab.md.

--mutants repeats the study with one deliberate mistake at a time: no power in eq. (1), no early stop, and others.
--sweep repeats it with values that the paper does not give: the exponent of power over frequency (1 to 2.4), and the
fraction of a core that a task keeps busy (0.6 to 1).

--engine yarn runs one set in one column of Table I for real: Hadoop's own processes on three emulated nodes capped by
powerd, without a cap, capped, ours, and capped under a budget that is lowered twice, for D10. The variants run in
pairs on one running cluster with the same data, every second pair in the opposite order; bounds are over the pairs.
Each run also records how busy the machine was, and how long a fixed piece of work took. It needs root, a JDK, "make
build", "make hooks" and an otherwise idle machine. --quick runs one pair, which has no bounds and reaches the verdict
order at best. --out keeps runs.csv, pairs.csv (noise of each run), pairs.svg, looks.csv (the coordinator's estimate,
each second) after each pair, and the logs.`,
		Example: "  powerlab paper cab\n  powerlab paper cab --seeds 5 --out cab-out\n  powerlab paper cab -o json\n  powerlab paper cab --mutants -o json\n" +
			"  powerlab paper cab --engine yarn --set 3 --quality 80 --out cab-yarn\n  powerlab paper cab --engine yarn --quick",
	}
	f := cmd.Flags()
	f.IntVar(&o.set, "set", 3, "with --engine: the workload set of Table I, 1 to 3")
	f.IntVar(&o.quality, "quality", 80, "with --engine: the column of Table I: 95, 90, 85 or 80")
	f.IntVar(&o.maps, "maps", mapsDefault, "with --engine: map tasks of each job")
	f.Float64Var(&o.cap, "cap", capDefault, "with --engine: budget under a cap, as a fraction of the nodes' full power")
	f.BoolVar(&o.approx, "approx", false, "with --engine: also run modified ApproxHadoop")
	f.BoolVar(&o.steps, "steps", true, "with --engine: also run the set under a budget that is lowered twice")
	f.IntVar(&o.pairs, "pairs", pairsDefault, "with --engine: how often every variant runs")
	f.BoolVar(&o.quick, "quick", false, "with --engine: one pair, without the run under a changing budget")
	f.StringVar(&o.Bin, "bin", "", "with --engine: folder of the programs and the hooks' jars (default: next to powerlab)")
	return papers.Study{
		Paper: "cab", Check: o.check, Engines: map[string]papers.Engine{"": o.simulate, "yarn": o.onYARN},
		Mutants: o.mutants, MutantSeeds: mutantSeeds, Sweep: o.sweep, SweepSeeds: sweptSeeds,
	}.Command(cmd, &o.Options)
}

// check checks the flags of a real engine.
func (o *options) check() error {
	switch {
	case o.set < 1 || o.set > len(sets()):
		return cli.Usage("--set %d: must be from 1 to %d, as in Table I", o.set, len(sets()))
	case !slices.Contains(qualities(), o.quality):
		return cli.Usage("--quality %d: must be one of %v, as in Table I", o.quality, qualities())
	case o.maps < 4 || o.maps > mapsMost:
		return cli.Usage("--maps %d: must be from 4 to %d", o.maps, mapsMost)
	case o.pairs < 1 || o.pairs > pairsMost:
		return cli.Usage("--pairs %d: must be from 1 to %d", o.pairs, pairsMost)
	case !(o.cap > 0.3 && o.cap < 1):
		return cli.Usage("--cap %g: must be above 0.3 and below 1", o.cap)
	}
	return nil
}
