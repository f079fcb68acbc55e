package arbitration

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Real has the options of a run on real programs.
type Real struct {
	Seed uint64
	// Quick is a single run of each variant, with fewer jobs.
	Quick bool
	// Out is the folder for tables, plots and logs; none when empty. Bin is that of the programs; empty stands for the one
	// of this program.
	Out, Bin string
	Output   *cli.Output
}

// Engine runs the arbiter and another way to decide on real programs, and prints the results.
type Engine func(cmd *cobra.Command, o *Real) error

// engineHelp is the part of the help about real programs.
const engineHelp = `

--engine runs a mixed load on real programs instead: coordinators, the scheduler and two emulated nodes with
powerd, under a budget that changes in steps. With local, the scheduler's own workers run the tasks (an hour and
a half). With yarn or spark, an unmodified Hadoop or Spark runs on the nodes (about two hours; needs Java and the
hooks' jars). The arbiter is compared with urgent-first-fair (urgent jobs first, no sprints, no dropped tasks) and
urgent-first-fair-sprint (the same, and urgent jobs sprint by a timer). All have the same jobs, budgets and
joules, and run five times each in alternating order. --quick runs each once with fewer jobs (ten minutes; fifteen
with yarn and spark). Results have the same names; joules come from the nodes' counters, and the speed-up of
sprints is measured. --out keeps figures.csv, jobs.csv, latency.svg and the logs after each run. Run it on an
otherwise idle machine.`

// engineFlags are the flags of runs on real programs.
func (o *options) engineFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.engine, "engine", "", "run on real programs: local, yarn or spark (default: simulation)")
	f.BoolVar(&o.quick, "quick", false, "with --engine: one run of each variant, with fewer jobs")
	f.StringVar(&o.bin, "bin", "", "with --engine: folder of the programs (default: next to powerlab)")
	f.StringVar(&o.out, "out", "", "with --engine: folder for tables, plots and logs")
}

// live runs on real programs.
func (o *options) live(cmd *cobra.Command, engines map[string]Engine) error {
	for _, flag := range []string{"load", "seeds", "optimum", "scaling"} {
		if cmd.Flags().Changed(flag) {
			return cli.Usage("--engine %s cannot be combined with --%s: its load and number of runs are fixed", o.engine, flag)
		}
	}
	run, known := engines[o.engine]
	if !known {
		e := cli.Usage("unknown engine %q", o.engine)
		e.Hint = "use one of " + strings.Join(slices.Sorted(maps.Keys(engines)), ", ") + ", or leave out --engine for the simulation"
		return e
	}
	return run(cmd, &Real{Seed: o.seed, Quick: o.quick, Out: o.out, Bin: o.bin, Output: &o.output})
}
