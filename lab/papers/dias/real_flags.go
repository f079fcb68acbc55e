package dias

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// Of a real engine: some two minutes a policy, and one of a graph.
const (
	realJobs, sparkJobs, graphJobs = 18, 6, 3
	realLeast, realMost            = 3, 500
	// sparkRuns is how often the graph part runs: as many as bounds need to be of use.
	sparkRuns, sparkRunsMost = 5, 100
)

// options are the flags of the engines.
type options struct {
	papers.Options

	jobs int
	// realJobs is 0 for the engine's own number.
	realJobs int
	// quick leaves all but the graph part away, which has so many runs; of engine spark alone.
	quick bool
	runs  int
}

// addReal adds the engines.
func addReal(s *papers.Study, o *options) {
	s.Engines = map[string]papers.Engine{"local": o.whole(o.local), "spark": o.onSpark, "spark-times": o.whole(o.sparkTimes)}
	s.Flags = func(f *pflag.FlagSet) {
		f.IntVar(&o.realJobs, "real-jobs", 0, fmt.Sprintf("with --engine: jobs under each policy; 0 for %d with local, and with spark %d of words and %d of graphs", realJobs, sparkJobs, graphJobs))
		f.BoolVar(&o.quick, "quick", false, "with --engine spark: only the runs of the graph program, about 25 minutes")
		f.IntVar(&o.runs, "runs", sparkRuns, "with --engine spark: runs of the graph program, each under all policies")
		f.StringVar(&o.Bin, "bin", "", "with --engine: folder of the programs (default: next to powerlab)")
	}
	s.Check = o.check
}

// local runs a short trace on the scheduler's own engine.
func (o *options) local(ctx context.Context, progress io.Writer) ([]report.Target, error) {
	results, points, err := onLocal(ctx, o, progress)
	if err != nil {
		return nil, err
	}
	curve := wordCurve(points)
	if err := o.Keep(report.Files{"runs.csv": runsFile(results), "ratios.csv": ratioFile(curve)}); err != nil {
		return nil, err
	}
	return append(realRounds{results}.targets(wordsIDs, wordsProgram, wordsPower), curve.targets()...), nil
}

func runsFile(all []realResult) func(io.Writer) error {
	return func(w io.Writer) error { return writeRuns(w, all) }
}

func ratioFile(curves ...ratioCurve) func(io.Writer) error {
	return func(w io.Writer) error { return writeRatios(w, curves...) }
}

// whole refuses --quick and --runs where the engine has no short part.
func (o *options) whole(run papers.Engine) papers.Engine {
	return func(ctx context.Context, progress io.Writer) ([]report.Target, error) {
		if o.quick || o.runs != sparkRuns {
			return nil, cli.Usage("--quick and --runs need --engine spark")
		}
		return run(ctx, progress)
	}
}

// check checks the flags of its own.
func (o *options) check() error {
	switch {
	case o.realJobs != 0 && (o.realJobs < realLeast || o.realJobs > realMost):
		return cli.Usage("--real-jobs %d: must be from %d to %d, or 0 for the engine's default", o.realJobs, realLeast, realMost)
	case o.runs < 1 || o.runs > sparkRunsMost:
		return cli.Usage("--runs %d: must be from 1 to %d", o.runs, sparkRunsMost)
	}
	return nil
}
