package cab

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// Bounds of the flags.
const (
	// mapsDefault makes twelve waves: a job has two containers for its maps.
	mapsDefault  = 24
	mapsMost     = 1000
	pairsDefault = 5
	pairsMost    = 100
	// capDefault is 200 of 350 W, the middle one of the paper's caps on its server.
	capDefault = 200. / 350
)

// options are the flags of a real engine.
type options struct {
	papers.Options

	set, quality, maps   int
	pairs                int
	cap                  float64
	approx, steps, quick bool
}

// addReal adds the engine.
func addReal(s *papers.Study, o *options) {
	s.Engines, s.Check = map[string]papers.Engine{"yarn": o.onYARN}, o.check
	s.Flags = func(f *pflag.FlagSet) {
		f.IntVar(&o.set, "set", 3, "with --engine: the workload set of Table I, 1 to 3")
		f.IntVar(&o.quality, "quality", 80, "with --engine: the column of Table I: 95, 90, 85 or 80")
		f.IntVar(&o.maps, "maps", mapsDefault, "with --engine: map tasks of each job")
		f.Float64Var(&o.cap, "cap", capDefault, "with --engine: budget under a cap, as a fraction of the nodes' full power")
		f.BoolVar(&o.approx, "approx", false, "with --engine: also run modified ApproxHadoop")
		f.BoolVar(&o.steps, "steps", true, "with --engine: also run the set under a budget that is lowered twice")
		f.IntVar(&o.pairs, "pairs", pairsDefault, "with --engine: how often every variant runs")
		f.BoolVar(&o.quick, "quick", false, "with --engine: one pair, without the run under a changing budget")
		f.StringVar(&o.Bin, "bin", "", "with --engine: folder of the programs and the hooks' jars (default: next to powerlab)")
	}
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
