package dias

import (
	"context"
	"fmt"
	"io"

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
		Run: func(ctx context.Context, p *papers.Options) (*papers.Result, error) {
			w, err := honest()
			if err != nil {
				return nil, err
			}
			f, err := w.find(ctx, p.Seed, p.Seeds, jobs, tell(p.Progress))
			if err != nil {
				return nil, err
			}
			all := append(f.targets(), specs.Left("dias-local", "dias-spark", "dias-spark-drops", "dias-words", "dias-words-drops")...)
			return &papers.Result{Targets: all}, nil
		},
	}.Command()
}

// whole is the study as it is composed: what arrives under which policies, and what the
// models and the controller are. A mutant changes one of them; parts that are nil are left out.
type whole struct {
	experiments []experiment
	theory      *theory
	controller  *controller
	record      *record
}

// honest is the study without a mistake.
func honest() (whole, error) {
	r, err := recorded()
	return whole{experiments: experiments(), theory: &theory{fit: byWaves}, controller: production(), record: r}, err
}

// found has the results of all parts.
type found struct {
	study      *study
	validation *validation
	exact      []responsePoint
	choices    []choice
}

// find runs everything.
func (w whole) find(ctx context.Context, seed uint64, seeds, jobs int, said func(done, of int)) (f found, err error) {
	if w.controller != nil {
		if f.choices, err = w.controller.choices(w.experiments, seeds); err != nil {
			return f, err
		}
	}
	if f.study, err = run(ctx, w.experiments, seed, seeds, jobs, said); err != nil || w.theory == nil {
		return f, err
	}
	if f.exact, err = f.study.measured(*w.theory); err != nil {
		return f, err
	}
	f.validation, err = w.record.validate(ctx, *w.theory, seed, seeds, jobs)
	return f, err
}

// targets judges everything.
func (f found) targets() []report.Target {
	all := f.study.targets()
	if f.validation != nil {
		all = append(all, f.validation.targets()...)
	}
	all = append(all, crosses(f.exact)...)
	for i := range f.choices {
		all = append(all, f.choices[i].targets(f.study)...)
	}
	return all
}

// tell prints the progress at every tenth of the runs.
func tell(w io.Writer) func(done, of int) {
	return func(done, of int) {
		if done*10/of > (done-1)*10/of {
			_, _ = fmt.Fprintf(w, "%d of %d runs\n", done, of)
		}
	}
}
