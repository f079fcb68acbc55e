package grass

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/traces"
)

// Bounds of the flags, and what the study takes by default.
const (
	seedsDefault = 10
	jobsDefault  = 24
	jobsLeast    = 6 // one of each bin and more
	jobsMost     = 600
	// historyOf earlier jobs for each that is judged: enough samples of each bin at a xi of 15 %.
	historyOf = 6
	// tasksLeast to tasksMost are the jobs of a trace that the study takes: the others have no
	// stragglers to speak of, or take too long.
	tasksLeast = 10
	tasksMost  = 900
	// block makes tasks of the bytes of a job: one for each block of Hadoop's HDFS.
	block = 64 << 20
)

// options are the flags of `powerlab paper grass`.
type options struct {
	papers.Options

	jobs   int
	traces papers.Traces
}

// NewCommand is `powerlab paper grass`.
func NewCommand() *cobra.Command {
	o := options{Options: papers.Options{Seeds: seedsDefault}}
	cmd := &cobra.Command{
		Short: "Speculation for jobs with deadlines and error bounds (GRASS)",
		Long: `Repeats GRASS's experiments: jobs of three sizes on a fair share of 200 machines, with Pareto distributed task times and
either a deadline 2 to 20 % above the ideal, an error bound of 5 to 30 %, or exact results. The policies are those of
"powerlab speculate": LATE, Mantri, GS, RAS, GRASS with one to three factors and several fractions of sample jobs, the
strawman, and ours, also while a third of the nodes is under a power cap. Estimates come from progress reports and ended
tasks. Every policy runs the same jobs with the same times of copies. The same seeds give the same bytes.

--traces names a folder of published traces. With swim/FB-2010_samples_24_times_1hr_0.tsv the study is repeated with its
numbers of tasks. Without it those targets are not_run.

--out writes targets.csv and targets.md, runs.csv (every seed), policies.md (results of each policy),
fig10.svg and fig11.svg (gains by size).`,
		Example: "  powerlab paper grass\n  powerlab paper grass --seeds 2 --jobs 12 -o json\n  powerlab paper grass --traces traces --out grass-out\n  powerlab paper grass --mutants -o json",
	}
	f := cmd.Flags()
	f.IntVar(&o.jobs, "jobs", jobsDefault, "number of jobs per seed")
	o.traces.Flag(f)
	return papers.Study{
		Paper: "grass", Check: o.check, Engines: map[string]papers.Engine{"": o.simulate}, Mutants: o.mutants, MutantSeeds: mutantSeeds,
	}.Command(cmd, &o.Options)
}

// check checks the flags of its own.
func (o *options) check() error {
	if o.jobs < jobsLeast || o.jobs > jobsMost {
		return cli.Usage("--jobs %d: must be from %d to %d", o.jobs, jobsLeast, jobsMost)
	}
	return o.traces.Check("grass")
}

func (o *options) study() study { return study{jobs: o.jobs, history: historyOf * o.jobs} }

// simulate runs all experiments.
func (o *options) simulate(ctx context.Context, progress io.Writer) ([]papers.Target, error) {
	sizes, why, err := o.sizes()
	if err != nil {
		return nil, err
	}
	f := &figures{why: why}
	if f.trials, err = o.study().run(ctx, o.Seed, o.Seeds, progress); err != nil {
		return nil, err
	}
	if sizes != nil {
		s := o.study()
		s.sizes, s.scenes, s.only = sizes, []string{deadlines, errorBounds}, []string{late, grassName}
		if f.traced, err = s.run(ctx, o.Seed, o.Seeds, progress); err != nil {
			return nil, err
		}
	}
	if err := o.Keep(f.files(o.Seed)); err != nil {
		return nil, err
	}
	return f.targets(), nil
}

// sizes are the numbers of tasks of the trace's jobs; nil, and why, where it is not there.
func (o *options) sizes() (sizes []int, why string, err error) {
	why, err = o.traces.Read("facebook2010", func(f *traces.File) error {
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
