package dias

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/experiment/specs"
	"headroom/lab/papers"
)

// Bounds of the flags.
const (
	seedsDefault = 10
	jobsDefault  = 20_000
	jobsLeast    = 500
	jobsMost     = 999_999
)

// options are the flags of `powerlab paper dias`.
type options struct {
	papers.Options

	jobs int
}

// NewCommand is `powerlab paper dias`.
func NewCommand() *cobra.Command {
	o := options{Options: papers.Options{Seeds: seedsDefault}}
	cmd := &cobra.Command{
		Short: "Differential approximation and sprinting for multi-priority jobs (DIAS)",
		Long: `Repeats DIAS' experiments: prioritised jobs on a cluster that runs one job at a time, under preemption with restart (P),
without preemption (NP), with drop ratios by class (DA), with sprints (NPS) and with both (DIAS). The dispatcher is the
scheduler's. Jobs, sprints and watts are simulated; a job is simulated task by task on 20 slots. All policies run the
same jobs. The same seeds give the same bytes.

--out writes runs.csv (every run), summary.csv (means and bounds), table2.csv, and figN.csv and figN.svg for each of
Figs. 4 to 11.

"powerlab campaign" runs the policies for real, on the scheduler's own engine and on Spark.`,
		Example: "  powerlab paper dias\n  powerlab paper dias --seeds 5 --out dias-out\n  powerlab paper dias -o json\n  powerlab paper dias --mutants -o json",
	}
	f := cmd.Flags()
	f.IntVar(&o.jobs, "jobs", jobsDefault, "number of jobs per run; latencies leave out the first tenth")
	return papers.Study{
		Paper: "dias", Check: o.check, Mutants: o.tryMutants, MutantSeeds: mutantSeeds, Engines: map[string]papers.Engine{"": o.simulation},
	}.Command(cmd, &o.Options)
}

// check checks the flags of its own.
func (o *options) check() error {
	switch {
	case o.jobs < jobsLeast || o.jobs > jobsMost:
		return cli.Usage("--jobs %d: must be from %d to %d", o.jobs, jobsLeast, jobsMost)
	}
	return nil
}

// simulation runs all experiments in virtual time.
func (o *options) simulation(ctx context.Context, progress io.Writer) ([]papers.Target, error) {
	w, err := honest()
	if err != nil {
		return nil, err
	}
	f, err := w.find(ctx, o, tell(progress))
	if err != nil {
		return nil, err
	}
	files := f.study.files(o.Seed)
	maps.Copy(files, f.validation.files())
	if err := o.Keep(files); err != nil {
		return nil, err
	}
	return append(f.targets(), specs.Left("dias-local", "dias-spark", "dias-spark-drops", "dias-words", "dias-words-drops")...), nil
}

// whole is the study as it is composed: what arrives under which policies, and what the
// models and the controller are. A mutant changes one of them; what is nil is not asked.
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

// found is what came of all parts.
type found struct {
	study      *study
	validation *validation
	exact      []responsePoint
	choices    []choice
}

// find runs everything.
func (w whole) find(ctx context.Context, o *options, said func(done, of int)) (f found, err error) {
	if w.controller != nil {
		if f.choices, err = w.controller.choices(w.experiments, o.Seeds); err != nil {
			return f, err
		}
	}
	if f.study, err = run(ctx, w.experiments, o.Seed, o.Seeds, o.jobs, said); err != nil || w.theory == nil {
		return f, err
	}
	if f.exact, err = f.study.measured(*w.theory); err != nil {
		return f, err
	}
	f.validation, err = w.record.validate(ctx, *w.theory, o.Seed, o.Seeds, o.jobs)
	return f, err
}

// targets judges everything.
func (f found) targets() []papers.Target {
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

// tell says at every tenth of the runs how far they are.
func tell(w io.Writer) func(done, of int) {
	return func(done, of int) {
		if done*10/of > (done-1)*10/of {
			_, _ = fmt.Fprintf(w, "%d of %d runs\n", done, of)
		}
	}
}
