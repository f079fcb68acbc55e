// Package dias repeats the experiments of DIAS (Birke et al., "Differential Approximation and Sprinting for Multi-Priority Big
// Data Engines") for `powerlab paper dias`: latencies and energy of prioritised jobs when lower classes drop tasks and higher
// ones sprint, instead of killing each other.
//
// The one idea: it simulates a cluster that runs one job at a time, in virtual time, with the scheduler's own dispatcher, package
// buffers. Only the duration of jobs is simulated. Every policy of an experiment gets the same arrivals and the same tasks. The
// queueing model predicts the same experiments and is compared with them.
//
// Guarantees: the same seeds give the same bytes, on any number of cores. It never kills or sprints
// by itself: it applies the decisions of the dispatcher.
package dias

import (
	"context"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// jobsWhole are the jobs of a run; latencies leave out the first tenth.
const jobsWhole = 20_000

// NewCommand is `powerlab paper dias`.
func NewCommand() *cobra.Command { return newCommand(jobsWhole) }

func newCommand(jobs int) *cobra.Command {
	return papers.Study{
		Paper: "dias", Seeds: 10,
		Short: "Differential approximation and sprinting for multi-priority jobs (DIAS)",
		Long: `Repeats DIAS' experiments: prioritised jobs on a cluster that runs one job at a time, under preemption with restart (P),
without preemption (NP), with drop ratios by class (DA), with sprints (NPS) and with both (DIAS). The dispatcher is the
scheduler's. Jobs, sprints and watts are simulated; a job is simulated task by task on 20 slots. All policies run the
same jobs.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) {
			targets, err := honest().targets(ctx, o.Seed, o.Seeds, jobs, o.Progress)
			return &papers.Result{Targets: targets}, err
		},
		Left: specs.Left("dias-local", "dias-spark", "dias-spark-drops", "dias-words", "dias-words-drops"),
	}.Command()
}

// whole is the study as it is composed: what arrives under which policies, and what the
// models and the controller are. A mutant changes one of them; parts that are nil are left out.
type whole struct {
	experiments []experiment
	theory      *theory
	controller  *controller
}

// honest is the study without a mistake.
func honest() whole {
	return whole{experiments: experiments(), theory: &theory{}, controller: &controller{}}
}

// targets runs and judges everything.
func (w whole) targets(ctx context.Context, seed uint64, seeds, jobs int, progress io.Writer) ([]report.Target, error) {
	var choices []choice
	if w.controller != nil {
		var err error
		if choices, err = w.controller.choices(w.experiments, seeds); err != nil {
			return nil, err
		}
	}
	s, err := run(ctx, w.experiments, seed, seeds, jobs, progress)
	if err != nil {
		return nil, err
	}
	all := s.targets()
	if w.theory != nil {
		models, err := w.theory.validate(ctx, seed, seeds, jobs)
		if err != nil {
			return nil, err
		}
		crosses, err := w.theory.cross(s)
		if err != nil {
			return nil, err
		}
		all = slices.Concat(all, models, crosses)
	}
	for i := range choices {
		all = append(all, choices[i].targets(s)...)
	}
	return all, nil
}
