package dias

import (
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// Bounds of the flags.
const (
	seedsDefault = 10
	jobsDefault  = 20_000
	jobsLeast    = 500
	jobsMost     = 999_999
	// Of a real engine: some two minutes a policy, and one of a graph.
	realJobs, sparkJobs, graphJobs = 18, 6, 3
	realLeast, realMost            = 3, 500
	// sparkRuns is how often the graph part runs: as many as bounds need to be of use.
	sparkRuns, sparkRunsMost = 5, 100
)

// options are the flags of `powerlab paper dias`.
type options struct {
	papers.Options

	jobs int
	// realJobs is of a real engine alone: 0 for the engine's own number.
	realJobs int
	// quick leaves all but the graph part away, which has so many runs; of engine spark alone.
	quick bool
	runs  int
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

--engine local runs a short trace of two classes for real, in about twelve minutes: the scheduler with real tasks on two
emulated nodes capped by powerd, under p, np, da, nps and dias. Sprints come from the coordinators' ledger and joules
from the nodes' counters. Then the same job runs at drop ratios from 0 to 90 % (Figs. 4 and 6). Run it on an otherwise
idle machine. --out keeps runs.csv (every job), ratios.csv and the logs.

--engine spark runs jobs on an unmodified Spark: the scheduler starts the drivers, and Spark's workers run on two
emulated nodes with powerd. It runs GraphX's triangle count, which drops tasks in every stage, five times under each of
the five policies (G1 to G12; bounds are Student's t over the runs). Then it runs a word popularity count under the
same policies, and both programs at several drop ratios (L1 to L12, G8, G9). Results are compared with exact counts. It
takes about 40 minutes on two otherwise idle cores; --quick stops after the five runs, --runs changes their number. A
single run has no bounds and reaches the verdict order at best. It needs "make build", "make hooks", a JDK, and Spark,
which it downloads the first time. --out keeps runs.csv (every job, rewritten after each policy of each run, so an
interrupted run is not lost), ratios.csv and the logs.

--engine spark-times measures on the same Spark, without a scheduler, how long jobs take at every drop ratio, in about
ten minutes, and judges the models on that (V1, V2). --out keeps spark.json, in the form of the record that the study
contains.`,
		Example: "  powerlab paper dias\n  powerlab paper dias --seeds 5 --out dias-out\n  powerlab paper dias -o json\n  powerlab paper dias --engine local --out dias-local\n  powerlab paper dias --engine spark --quick --out dias-spark\n  powerlab paper dias --mutants -o json",
	}
	f := cmd.Flags()
	f.IntVar(&o.jobs, "jobs", jobsDefault, "number of jobs per run; latencies leave out the first tenth")
	f.IntVar(&o.realJobs, "real-jobs", 0, fmt.Sprintf("with --engine: jobs under each policy; 0 for %d with local, and with spark %d of words and %d of graphs", realJobs, sparkJobs, graphJobs))
	f.BoolVar(&o.quick, "quick", false, "with --engine spark: only the runs of the graph program, about 25 minutes")
	f.IntVar(&o.runs, "runs", sparkRuns, "with --engine spark: runs of the graph program, each under all policies")
	f.StringVar(&o.Bin, "bin", "", "with --engine: folder of the programs (default: next to powerlab)")
	return papers.Study{
		Paper: "dias", Check: o.check, Mutants: o.tryMutants, MutantSeeds: mutantSeeds, Engines: map[string]papers.Engine{"": o.whole(o.simulation), "local": o.whole(o.local), "spark": o.onSpark, "spark-times": o.whole(o.sparkTimes)},
	}.Command(cmd, &o.Options)
}

// check checks the flags of its own.
func (o *options) check() error {
	switch {
	case o.realJobs != 0 && (o.realJobs < realLeast || o.realJobs > realMost):
		return cli.Usage("--real-jobs %d: must be from %d to %d, or 0 for the engine's default", o.realJobs, realLeast, realMost)
	case o.runs < 1 || o.runs > sparkRunsMost:
		return cli.Usage("--runs %d: must be from 1 to %d", o.runs, sparkRunsMost)
	case o.jobs < jobsLeast || o.jobs > jobsMost:
		return cli.Usage("--jobs %d: must be from %d to %d", o.jobs, jobsLeast, jobsMost)
	}
	return nil
}

// simulation runs all experiments in virtual time.
func (o *options) simulation(ctx context.Context, progress io.Writer) ([]report.Target, error) {
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
	return f.targets(), nil
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

// tell says at every tenth of the runs how far they are.
func tell(w io.Writer) func(done, of int) {
	return func(done, of int) {
		if done*10/of > (done-1)*10/of {
			_, _ = fmt.Fprintf(w, "%d of %d runs\n", done, of)
		}
	}
}
