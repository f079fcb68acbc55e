package pigeon

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
)

// Bounds of the flags, and what the study takes by default.
const (
	seedsDefault = 3
	// tasksDefault keeps the time short. Yahoo's trace has near a million.
	tasksDefault = 300_000
	tasksLeast   = 10_000
	tasksMost    = 20_000_000
	// quickTasks and quickJobs are those of --quick.
	quickTasks = 20_000
	quickJobs  = 300
)

// options are the flags of `powerlab paper pigeon`.
type options struct {
	papers.Options

	// jobs of the model at its highest load.
	jobs   int
	tasks  int
	quick  bool
	traces papers.Traces
}

// NewCommand is `powerlab paper pigeon`.
func NewCommand() *cobra.Command {
	o := options{Options: papers.Options{Seeds: seedsDefault}, jobs: modelJobs}
	cmd := &cobra.Command{
		Short: "Dispatch of many small tasks over groups of workers (Pigeon)",
		Long: `Repeats Pigeon's experiments (Li's dissertation, chapter 4): the worked example, the closed forms (4.1) to (4.6), the
simulation against them on 30,000 workers, and jobs of three traces under Pigeon, Eagle and Sparrow. The policies are
those of "powerlab dispatch".

The paper's traces are only partly public. Jobs are generated with their published moments; Cloudera and Google are
scaled down, workers and tasks per job alike. --traces names a folder of published traces, and adds what is measured on
them:

  pigeon/NGO_trace50 to NGO_trace90                       Fig. 4.11, on 120 workers
  pigeon/NYH_trace50, NYH_trace70, NYH_trace90            on 330 workers, where they have the loads of their names
  hawk-format/YH1_sub.tr, YH2_sub.tr, GOOG_subtrace.tr    as published with Hawk, Eagle and Pigeon

Without it those targets are not_run. A seed draws the jobs and the policies' random choices; on a trace only the latter.
The same seeds give the same bytes.

--out writes targets.csv and targets.md, runs.csv (every run), groups.md (Fig. 4.5, by group size), fig42.svg,
fig43.svg, fig47.svg and, with --traces, fig411.svg.

--quick runs few jobs, to test that everything works: seconds instead of minutes. Its verdicts mean little.

` + fmt.Sprintf("--mutants repeats the study with one deliberate mistake at a time, on %d jobs of the model and at most %d tasks.", mutantJobs, mutantTasks),
		Example: "  powerlab paper pigeon\n  powerlab paper pigeon --traces traces --out pigeon-out\n  powerlab paper pigeon --quick --seeds 1 -o json\n  powerlab paper pigeon --mutants -o json",
	}
	f := cmd.Flags()
	f.IntVar(&o.tasks, "tasks", tasksDefault, "tasks of each generated trace")
	f.BoolVar(&o.quick, "quick", false, fmt.Sprintf("few jobs: %d of the model, and %d tasks of each generated trace", quickJobs, quickTasks))
	o.traces.Flag(f)
	cmd.MarkFlagsMutuallyExclusive("tasks", "quick")
	papers.Study{
		Paper: "pigeon", Check: o.check, Engines: map[string]papers.Engine{"": o.simulate}, Mutants: o.mutants, MutantSeeds: mutantSeeds,
	}.Command(cmd, &o.Options)
	return cmd
}

// check checks the flags of its own.
func (o *options) check() error {
	if o.tasks < tasksLeast || o.tasks > tasksMost {
		return cli.Usage("--tasks %d: must be from %d to %d", o.tasks, tasksLeast, tasksMost)
	}
	return o.traces.Check("pigeon")
}

// size is how many jobs the model has, and how many tasks a generated trace.
func (o *options) size() (jobs, tasks int) {
	if o.quick {
		return quickJobs, quickTasks
	}
	return o.jobs, o.tasks
}

// scenes are all experiments. Traces are read before anything runs, so that a mistake in one costs no time; why says of those
// that are not there what is missing.
func (o *options) scenes() (all []scene, why map[string]string, err error) {
	jobs, tasks := o.size()
	all = append(models(jobs), generatedScenes(tasks)...)
	why = map[string]string{}
	for _, x := range tracedScenes() {
		jobs, missing, err := o.traces.Tasks(x.file, 0)
		if err != nil {
			return nil, nil, err
		}
		if missing != "" {
			why[x.name] = missing
			continue
		}
		all = append(all, x.scene(jobs))
	}
	return all, why, nil
}

// simulate runs all experiments.
func (o *options) simulate(ctx context.Context, progress io.Writer) ([]papers.Target, error) {
	f, err := o.run(ctx, progress)
	if err != nil {
		return nil, err
	}
	if err := o.Keep(f.files(o.Seed)); err != nil {
		return nil, err
	}
	targets, err := f.targets()
	return append(targets, specs.Left("pigeon", "sparrow", "eagle", "pigeon-power")...), err
}

// run runs all experiments without any mistake.
func (o *options) run(ctx context.Context, progress io.Writer) (*figures, error) {
	scenes, why, err := o.scenes()
	if err != nil {
		return nil, err
	}
	f := &figures{scenes: scenes, forms: honestForms(), why: why}
	if f.exact, err = honestExamples().work(ctx); err != nil {
		return nil, err
	}
	f.trials, err = runAll(ctx, scenes, o.Seed, o.Seeds, progress)
	return f, err
}
