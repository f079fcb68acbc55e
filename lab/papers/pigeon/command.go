// Package pigeon is `powerlab paper pigeon`: the experiments of Pigeon (Li's dissertation, chapter
// 4; Wang, Li et al., SoCC 2019), a scheduler that splits the tasks of a job over groups of
// workers, each with a master and a queue per priority. Only messages and tasks are simulated: the
// policies are those of jobs/dispatch, driven by package dispatch of the lab. All get the same jobs.
package pigeon

import (
	"context"

	"github.com/spf13/cobra"

	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
)

// size is how many jobs the model has at its highest load, and how many tasks a generated trace.
type size struct{ jobs, tasks int }

// NewCommand is `powerlab paper pigeon`. Its size keeps the time short: Yahoo's trace has near a million tasks.
func NewCommand() *cobra.Command { return newCommand(size{modelJobs, 300_000}) }

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
			return &papers.Result{Targets: f.targets()}, nil
		},
		Left: specs.Left("pigeon", "sparrow", "eagle", "pigeon-power"),
	}.Command()
}

// run runs all experiments without any mistake. Traces are read before anything runs, so that a mistake in one costs no time.
func (n size) run(ctx context.Context, o *papers.Options) (*figures, error) {
	f := &figures{scenes: append(models(n.jobs), generatedScenes(n.tasks)...), forms: honestForms(), why: map[string]string{}}
	for _, x := range tracedScenes() {
		jobs, missing, err := o.Traces.Tasks(x.file, 0)
		if err != nil {
			return nil, err
		}
		if missing != "" {
			f.why[x.name] = missing
			continue
		}
		f.scenes = append(f.scenes, x.scene(jobs))
	}
	var err error
	if f.exact, err = honestExamples().targets(ctx); err != nil {
		return nil, err
	}
	f.trials, err = runAll(ctx, f.scenes, o.Seed, o.Seeds, o.Progress)
	return f, err
}
