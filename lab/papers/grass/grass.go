// Package grass repeats the experiments of GRASS (Ananthanarayanan et al., NSDI 2014): jobs with a deadline or an error bound
// whose tasks straggle, and policies that choose for each free slot between a new task and another copy of a running one.
//
// The one idea: the decisions are made by jobs/speculation, as in production, on the lab's simulated machine. A job runs on its
// fair share of the slots of 200 machines. Every policy runs the same jobs: the same input sizes, and the same time of the k-th
// copy of a task, whichever policy starts it.
//
// Guarantees: the same seed gives the same numbers. No policy sees the time of a task before it has ended, except the oracle,
// which is only shown. Samples of past jobs come from a history of other jobs. There is no clock, no sleep and no network.
package grass

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
	"headroom/lab/traces"
)

// NewCommand is `powerlab paper grass`.
func NewCommand() *cobra.Command {
	return papers.Study{
		Paper: "grass", Seeds: 10, Traces: true,
		Short: "Speculation for jobs with deadlines and error bounds (GRASS)",
		Long: `Repeats GRASS's experiments: jobs of three sizes on a fair share of 200 machines, with Pareto distributed task times and
either a deadline 2 to 20 % above the ideal, an error bound of 5 to 30 %, or exact results. The policies are LATE,
Mantri, GS, RAS, GRASS with several fractions of sample jobs, the strawman, and ours, also while a third of the nodes
is under a power cap. Estimates come from progress reports and ended tasks. Every policy runs
the same jobs with the same times of copies.

--traces names a folder of published traces. With swim/FB-2010_samples_24_times_1hr_0.tsv the study is repeated with its
numbers of tasks. Without it those targets are not_run.`,
		Run: simulate,
	}.Command()
}

// whole is the study of the generated jobs: 24 judged ones of each seed, with six earlier ones for each, which is enough samples
// of each bin at a xi of 15 %.
func whole() study { return study{jobs: 24, history: 6 * 24} }

// simulate runs all experiments.
func simulate(ctx context.Context, o *papers.Options) (*papers.Result, error) {
	sizes, why, err := sizes(&o.Traces)
	if err != nil {
		return nil, err
	}
	f := &figures{why: why}
	if f.trials, err = whole().run(ctx, o.Seed, o.Seeds, o.Progress); err != nil {
		return nil, err
	}
	if sizes != nil {
		s := whole()
		s.sizes, s.scenes, s.only = sizes, []string{deadlines, errorBounds}, []string{late, grassName}
		if f.traced, err = s.run(ctx, o.Seed, o.Seeds, o.Progress); err != nil {
			return nil, err
		}
	}
	return &papers.Result{Targets: f.targets()}, nil
}

// sizes are the numbers of tasks of the trace's jobs, one for each block of Hadoop's HDFS; nil, and the reason, without it. Jobs
// with fewer than 10 have no stragglers to speak of, those with more than 900 take too long.
func sizes(from *papers.Traces) (sizes []int, why string, err error) {
	const block = 64 << 20
	why, err = from.Read("facebook2010", func(f *traces.File) error {
		for v, err := range traces.Volumes(f, f.Name()) {
			if err != nil {
				return err
			}
			if n := v.Tasks(block); n >= 10 && n <= 900 {
				sizes = append(sizes, n)
			}
		}
		return nil
	})
	if why == "" && len(sizes) == 0 {
		why = "the trace has no job of a size that the study takes"
	}
	return sizes, why, err
}
