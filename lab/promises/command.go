package promises

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/runs"
)

// runsUsual is how often each variant runs, runsQuick the same of --quick; seedDefault is the seed of the first run.
const (
	runsUsual, runsQuick = 5, 1
	seedDefault          = 1
)

// options are those of `powerlab promises`.
type options struct {
	papers.Options

	engine string
	quick  bool
	output cli.Output
}

// prepare makes an engine ready.
type prepare struct {
	begin func(ctx context.Context, r *papers.Real, quick bool) (*engine, error)
	jars  []string
}

// engines are what can run the jobs, by the name of --engine.
func engines() map[string]prepare {
	return map[string]prepare{
		"local": {begin: local},
		"spark": {begin: onSpark, jars: []string{jarSpark, jarSparkApps}},
		"yarn":  {begin: onYARN, jars: []string{jarHadoop, jarHadoopApps}},
	}
}

// NewCommand is `powerlab promises`.
func NewCommand() *cobra.Command {
	o := options{engine: "local"}
	o.Seed = seedDefault
	cmd := &cobra.Command{
		Use:   "promises",
		Short: "Compare admission and speculation policies on real programs",
		Long: `Compares policies of admission and of copies of stragglers. The same jobs run under each policy on three
coordinators, a scheduler and two emulated nodes with powerd. The second node has a lower cap than the first, and
both caps are lowered in the middle third of a run. Tasks are slow processes: the time of each attempt is
multiplied by a Pareto distributed number. Job sizes follow a power law. A third of the jobs is exact, a third has
deadlines (half of these return the part that is done by then), and a third has error bounds of 5 to 30 %.

--engine local: ours (adaptive admission, copies by ours, container policy joint), grass (PYTHIA's admission,
GRASS's copies), stock (neither) and stock-best (no admission, Mantri's copies). All but ours use the container
policy fair. All have the same jobs at the same times, the same budgets and the same sprint joules. Each runs five
times in alternating order (about two hours), or once with shorter tasks with --quick (about ten minutes).

--engine yarn, --engine spark: an unmodified Hadoop or standalone Spark on the nodes (make hooks builds the jars)
with ours, stock (its defaults: Hadoop's DefaultSpeculator, spark.speculation off) and stock-best (both set to copy
early). Under the last two, jobs do not use Headroom and end when all their tasks are done; wasted work is not
known and is left out. About three hours, 25 minutes with --quick.

Results:
  SDR       fraction of the submitted jobs with a deadline that met it
  PTR       container seconds of jobs that met their deadlines, as a fraction of all such jobs' container seconds
  accuracy  fraction of the tasks done at the deadline (a refused job: 0)
  bound     time until an error bound is reached
  latency   of exact jobs
  wasted    container seconds of copies that lost, of attempts that failed or were killed, and of jobs that missed
            their deadlines
  energy    in joules

--out keeps figures.csv, jobs.csv, promises.svg and the logs after each run. Run it on an otherwise idle machine.

The exit code is 8 if ours is behind another policy in deadlines met, accuracy or time to the bound, by bounds that
hold for all results at once.`,
		Example: "  powerlab promises --quick --out promises-out\n  powerlab promises --engine local --seed 7 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.engine, "engine", o.engine, "engine that runs the tasks: "+strings.Join(names(), ", "))
	f.BoolVar(&o.quick, "quick", false, "one run of each variant, with shorter tasks")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the first run; the others follow it")
	f.StringVar(&o.Out, "out", "", "folder for tables, plot and logs")
	f.StringVar(&o.Bin, "bin", "", "folder of the programs (default: next to powerlab)")
	o.output.Flags(cmd)
	return cmd
}

func names() []string { return slices.Sorted(maps.Keys(engines())) }

func (o *options) run(cmd *cobra.Command) error {
	p, known := engines()[o.engine]
	if !known {
		e := cli.Usage("unknown engine %q", o.engine)
		e.Hint = "use one of " + strings.Join(names(), ", ")
		return e
	}
	hint := "build the programs with make build"
	if len(p.jars) > 0 {
		hint += " and the jars with make hooks"
	}
	ctx := cmd.Context()
	r, err := papers.NewReal("promises", &o.Options, cmd.ErrOrStderr(), o.engine, hint, append([]string{"coordinator", "scheduler", "powerd", "powerlab"}, p.jars...)...)
	if err != nil {
		return err
	}
	defer r.Remove()
	if err := r.Keep(nil); err != nil { // before minutes have passed
		return err
	}
	e, err := p.begin(ctx, r, o.quick)
	if err != nil {
		return err
	}
	e.name = o.engine
	count := runsUsual
	if o.quick {
		count = runsQuick
	}
	found, err := (&lab{Real: r, engine: *e}).compare(ctx, count)
	if err != nil {
		return err
	}
	if err := found.print(cmd.OutOrStdout(), &o.output); err != nil {
		return err
	}
	return found.verdict()
}

// compare runs all variants so often, and keeps what came of it after each run: later ones may be cut short.
func (l *lab) compare(ctx context.Context, count int) (found *report, err error) {
	var results []result
	for run := range count {
		for _, v := range runs.Turn(l.engine.variants, run) {
			one, err := l.once(ctx, v, run)
			if err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", run+1, v.name, err)
			}
			results = append(results, *one)
			found = reportOf(&l.engine, l.Seed, results)
			if err := l.Keep(found.files()); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
