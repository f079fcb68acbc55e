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
		Short: "Measure admission and copies on real programs",
		Long: "Runs the same jobs with each way to decide about admission and copies of tasks that straggle, on three coordinators, a scheduler\n" +
			"and two emulated nodes with powerd. The second node is capped harder than the first, both are capped harder in the middle third of a\n" +
			"run, and tasks are slow processes: each attempt takes a Pareto distributed number of times as long. Sizes of jobs follow a power law.\n" +
			"A third of the jobs is exact, a third has deadlines (half of these return what is done by then), a third has error bounds of 5 to 30 %.\n\n" +
			"--engine local: ours (admission adaptive, copies ours, container policy joint), grass (PYTHIA's admission, GRASS's copies), stock (neither),\n" +
			"stock-best (no admission, Mantri's copies). The others run with container policy fair. All have the same jobs at the same moments,\n" +
			"the same budgets and joules for sprints; five runs each, forth and back (about two hours), or one of shorter tasks with --quick\n" +
			"(about ten minutes).\n\n" +
			"--engine yarn, --engine spark: an unmodified Hadoop or standalone Spark on the nodes (make hooks builds the jars) with ours, stock (its\n" +
			"defaults: Hadoop's DefaultSpeculator, spark.speculation off) and stock-best (both set to copy soon), whose jobs know nothing of Headroom\n" +
			"and end when they have done all. These do not tell of wasted work, which is absent. About three hours, 25 minutes with --quick.\n\n" +
			"Figures: deadlines met of all submitted jobs with one (SDR), container seconds of jobs that met theirs of those of all of them (PTR), the\n" +
			"part of the tasks done at the deadline (a refused job: 0), the time until an error bound is reached, the latency of exact jobs, wasted\n" +
			"container seconds (copies that lost, attempts that failed or were killed, all of jobs that missed their deadlines) and joules.\n" +
			"--out keeps figures.csv, jobs.csv, promises.svg and the logs, after each run. It needs a machine with little else to do.\n\n" +
			"Exit code 8: ours is behind another way in deadlines met, accuracy or time to the bound, by bounds that hold for all figures at once.",
		Example: "  powerlab promises --quick --out promises-out\n  powerlab promises --engine local --seed 7 -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.engine, "engine", o.engine, "what runs the tasks: "+strings.Join(names(), ", "))
	f.BoolVar(&o.quick, "quick", false, "one run of each variant, with shorter tasks")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "seed of the first run; the others are the numbers after it")
	f.StringVar(&o.Out, "out", "", "folder for tables, the plot and logs; none when empty")
	f.StringVar(&o.Bin, "bin", "", "folder of the programs (default: beside powerlab)")
	o.output.Flags(cmd)
	return cmd
}

func names() []string { return slices.Sorted(maps.Keys(engines())) }

func (o *options) run(cmd *cobra.Command) error {
	p, known := engines()[o.engine]
	if !known {
		e := cli.Usage("unknown engine %q", o.engine)
		e.Hint = "name one of " + strings.Join(names(), ", ")
		return e
	}
	hint := "make build puts all programs into bin/"
	if len(p.jars) > 0 {
		hint += ", make hooks the jars"
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
