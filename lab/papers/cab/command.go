package cab

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/papers"
)

// Bounds of the flags.
const (
	seedsDefault = 20
	seedsMost    = 1000
	mapsDefault  = 12
	mapsMost     = 1000
	// capDefault is 200 of 350 W, the middle one of the paper's caps on its server.
	capDefault = 200. / 350
)

// options are the flags of `powerlab paper cab`.
type options struct {
	seed   uint64
	seeds  int
	out    string
	engine string
	output cli.Output

	// Of a real engine alone.
	set, quality, maps int
	cap                float64
	approx             bool
	bin                string
}

// An engine runs the experiments and judges what came of them.
type engineRun func(ctx context.Context, o *options, progress io.Writer) ([]papers.Target, error)

// engines are those that can run the experiments, by the name of --engine: the
// simulation has none.
func engines() map[string]engineRun { return map[string]engineRun{"": simulate, "yarn": onYARN} }

// simulate runs all experiments on the emulated plant.
func simulate(ctx context.Context, o *options, _ io.Writer) ([]papers.Target, error) {
	trials, err := study(ctx, o.seed, o.seeds)
	if err != nil {
		return nil, err
	}
	f := &figures{trials: trials}
	if o.out != "" {
		if err := f.write(o.out, o.seed); err != nil {
			return nil, papers.BadOut(err)
		}
	}
	return f.targets(), nil
}

// onYARN runs one experiment on a real Hadoop.
func onYARN(ctx context.Context, o *options, progress io.Writer) ([]papers.Target, error) {
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return nil, papers.BadOut(err)
		}
	}
	results, err := runReal(ctx, o, progress)
	if err != nil {
		return nil, err
	}
	if o.out != "" {
		if err := results.write(o.out); err != nil {
			return nil, papers.BadOut(err)
		}
	}
	return results.targets(), nil
}

// NewCommand is `powerlab paper cab`.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "cab",
		Short: "QoR-aware power capping for approximate big data processing (CAB)",
		Long: "Repeats CAB's experiments: three sets of three jobs on a server of 28 containers under power caps, with\n" +
			"quality floors by Table I, run without a cap, capped, by modified ApproxHadoop, by CAB as printed and as\n" +
			"published, and by ours. The server is the emulated plant in virtual time; the job loop is the one that the\n" +
			"coordinators run. The same seeds give the same bytes.\n\n" +
			"--out writes runs.csv (every run), summary.csv (means and bounds), containers.csv (the run of Fig. 5) and\n" +
			"fig4.svg, fig5.svg, table2.svg.\n\n" +
			"--engine yarn runs one set in one column of Table I for real, in some ten minutes: Hadoop's own processes on\n" +
			"three emulated nodes that powerd caps, without a cap, capped and by ours, each on the same data. It needs root's\n" +
			"rights, a JDK and what make build and make hooks make, and a machine with little else to do: it says how busy\n" +
			"it was. --out keeps runs.csv, looks.csv (what the coordinator expected, each second) and the logs.",
		Example: "  powerlab paper cab\n  powerlab paper cab --seeds 5 --out cab-out\n  powerlab paper cab -o json\n" +
			"  powerlab paper cab --engine yarn --set 3 --quality 80 --out cab-yarn",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := o.check()
			if err != nil {
				return err
			}
			targets, err := run(cmd.Context(), &o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			report := papers.Report{Paper: "cab", Seed: o.seed, Targets: targets}
			return report.Tell(cmd.OutOrStdout(), &o.output)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "seed of the first run; the others are the numbers after it")
	f.IntVar(&o.seeds, "seeds", seedsDefault, "how many seeds")
	f.StringVar(&o.out, "out", "", "folder for tables and plots; none when empty")
	f.StringVar(&o.engine, "engine", "", "what runs the jobs: yarn; the simulation when empty")
	f.IntVar(&o.set, "set", 3, "with --engine: the workload set of Table I, 1 to 3")
	f.IntVar(&o.quality, "quality", 80, "with --engine: the column of Table I: 95, 90, 85 or 80")
	f.IntVar(&o.maps, "maps", mapsDefault, "with --engine: map tasks of each job")
	f.Float64Var(&o.cap, "cap", capDefault, "with --engine: the budget under a cap, as a part of the nodes' full power")
	f.BoolVar(&o.approx, "approx", false, "with --engine: run modified ApproxHadoop too")
	f.StringVar(&o.bin, "bin", "", "with --engine: folder of the programs and of the hooks' jars (default: beside powerlab)")
	o.output.Flags(cmd)
	return cmd
}

// check checks the flags.
func (o *options) check() (engineRun, error) {
	if o.seeds < 1 || o.seeds > seedsMost {
		return nil, cli.Usage("--seeds is %d; it must be from 1 to %d", o.seeds, seedsMost)
	}
	switch {
	case o.set < 1 || o.set > len(sets()):
		return nil, cli.Usage("--set is %d; Table I has 1 to %d", o.set, len(sets()))
	case !slices.Contains(qualities(), o.quality):
		return nil, cli.Usage("--quality is %d; Table I has %v", o.quality, qualities())
	case o.maps < 4 || o.maps > mapsMost:
		return nil, cli.Usage("--maps is %d; it must be from 4 to %d", o.maps, mapsMost)
	case !(o.cap > 0.3 && o.cap < 1):
		return nil, cli.Usage("--cap is %g; it must be above 0.3 and below 1", o.cap)
	}
	run, ok := engines()[o.engine]
	if !ok {
		var names []string
		for name := range engines() {
			if name != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		e := cli.Usage("--engine %q is not known here", o.engine)
		if e.Hint = "leave --engine away: the simulation needs none"; len(names) > 0 {
			e.Hint = "leave it away for the simulation, or name one of " + strings.Join(names, ", ")
		}
		return nil, e
	}
	return run, nil
}
