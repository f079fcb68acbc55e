package grass

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/papers"
	"headroom/lab/traces"
)

// What the study takes.
const (
	// jobsWhole is the number of judged jobs of a seed, with historyOf earlier jobs for each: enough
	// samples of each bin at a xi of 15 %.
	jobsWhole = 24
	historyOf = 6
	// tasksLeast to tasksMost are the jobs of a trace that the study takes: the others have no
	// stragglers to speak of, or take too long.
	tasksLeast = 10
	tasksMost  = 900
	// block makes tasks of the bytes of a job: one for each block of Hadoop's HDFS.
	block = 64 << 20
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

// whole is the study of the generated jobs.
func whole() study { return study{jobs: jobsWhole, history: historyOf * jobsWhole} }

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

// sizes are the numbers of tasks of the trace's jobs; nil, and the reason, without it.
func sizes(from *papers.Traces) (sizes []int, why string, err error) {
	why, err = from.Read("facebook2010", func(f *traces.File) error {
		for v, err := range traces.Volumes(f, f.Name()) {
			if err != nil {
				return err
			}
			if n := v.Tasks(block); n >= tasksLeast && n <= tasksMost {
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
