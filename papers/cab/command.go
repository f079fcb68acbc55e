package cab

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/papers"
)

// Bounds of the flags.
const (
	seedsDefault = 20
	seedsMost    = 1000
)

// options are the flags of `powerlab paper cab`.
type options struct {
	seed   uint64
	seeds  int
	out    string
	engine string
	output cli.Output
}

// An engine runs the experiments, each seed once. What it leaves out of a trial's
// results is reported as not measured.
type engineRun func(ctx context.Context, o *options) ([]trial, error)

// engines are those that can run the experiments, by the name of --engine: the
// simulation has none.
func engines() map[string]engineRun {
	return map[string]engineRun{
		"": func(ctx context.Context, o *options) ([]trial, error) { return study(ctx, o.seed, o.seeds) },
	}
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
			"fig4.svg, fig5.svg, table2.svg.",
		Example: "  powerlab paper cab\n  powerlab paper cab --seeds 5 --out cab-out\n  powerlab paper cab -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := o.check()
			if err != nil {
				return err
			}
			trials, err := run(cmd.Context(), &o)
			if err != nil {
				return err
			}
			f := &figures{trials: trials}
			if o.out != "" {
				if err := f.write(o.out, o.seed); err != nil {
					return cli.Failed("name another folder with --out", "--out: %w", err)
				}
			}
			report := papers.Report{Paper: "cab", Seed: o.seed, Targets: f.targets()}
			if err := report.Print(cmd.OutOrStdout(), &o.output); err != nil {
				return err
			}
			return report.Verdict()
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seed, "seed", 1, "seed of the first run; the others are the numbers after it")
	f.IntVar(&o.seeds, "seeds", seedsDefault, "how many seeds")
	f.StringVar(&o.out, "out", "", "folder for tables and plots; none when empty")
	f.StringVar(&o.engine, "engine", "", "what runs the jobs; the simulation when empty")
	o.output.Flags(cmd)
	return cmd
}

// check checks the flags.
func (o *options) check() (engineRun, error) {
	if o.seeds < 1 || o.seeds > seedsMost {
		return nil, cli.Usage("--seeds is %d; it must be from 1 to %d", o.seeds, seedsMost)
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
