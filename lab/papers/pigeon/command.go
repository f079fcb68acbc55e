package pigeon

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
)

// size is how many jobs the model has at its highest load, and how many tasks a generated trace.
type size struct{ jobs, tasks int }

// whole keeps the time short. Yahoo's trace has near a million tasks.
func whole() size { return size{modelJobs, 300_000} }

// NewCommand is `powerlab paper pigeon`.
func NewCommand() *cobra.Command { return newCommand(whole()) }

func newCommand(n size) *cobra.Command {
	return papers.Study{
		Paper: "pigeon", Seeds: 3, Traces: true,
		Short: "Dispatch of many small tasks over groups of workers (Pigeon)",
		Long: `Repeats Pigeon's experiments (Li's dissertation, chapter 4): the worked example, the closed forms (4.1) to (4.6), the
simulation against them on 30,000 workers, and jobs of three traces under Pigeon, Eagle and Sparrow.

The paper's traces are only partly public. Jobs are generated with their published moments; Cloudera and Google are
scaled down, workers and tasks per job alike. --traces names a folder of published traces, and adds what is measured on
them:

  pigeon/NGO_trace50 to NGO_trace90                       Fig. 4.11, on 120 workers
  pigeon/NYH_trace50, NYH_trace70, NYH_trace90            on 330 workers, where they have the loads of their names
  hawk-format/YH1_sub.tr, YH2_sub.tr, GOOG_subtrace.tr    as published with Hawk, Eagle and Pigeon

Without it those targets are not_run. A seed draws the jobs and the policies' random choices; on a trace only the latter.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) {
			f, err := n.run(ctx, o)
			if err != nil {
				return nil, err
			}
			targets, err := f.targets()
			targets = append(targets, specs.Left("pigeon", "sparrow", "eagle", "pigeon-power")...)
			return &papers.Result{Targets: targets, Tables: map[string][][]string{"groups.md": f.groups()}}, err
		},
	}.Command()
}

// scenes are all experiments. Traces are read before anything runs, so that a mistake in one costs no time; why has the
// reason for each that is missing.
func (n size) scenes(from *papers.Traces) (all []scene, why map[string]string, err error) {
	all = append(models(n.jobs), generatedScenes(n.tasks)...)
	why = map[string]string{}
	for _, x := range tracedScenes() {
		jobs, missing, err := from.Tasks(x.file, 0)
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

// run runs all experiments without any mistake.
func (n size) run(ctx context.Context, o *papers.Options) (*figures, error) {
	scenes, why, err := n.scenes(&o.Traces)
	if err != nil {
		return nil, err
	}
	f := &figures{scenes: scenes, forms: honestForms(), why: why}
	if f.exact, err = honestExamples().work(ctx); err != nil {
		return nil, err
	}
	f.trials, err = runAll(ctx, scenes, o.Seed, o.Seeds, o.Progress)
	return f, err
}
