package papers

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// seedsMost bounds the seeds of one study.
const seedsMost = 1000

// Options are the flags that every study has.
type Options struct {
	Seed  uint64
	Seeds int
	// Out is the folder for tables and plots; none when empty.
	Out string
	// Bin is the folder of the programs, of a real engine alone.
	Bin string

	engine string
	output cli.Output
}

// Engine runs the experiments of a study and judges what came of them.
type Engine func(ctx context.Context, progress io.Writer) ([]Target, error)

// Study is one paper's experiments.
type Study struct {
	// Paper names the study, Engines what can run it by the name of --engine: the
	// simulation has none. Check refuses flags of its own.
	Paper   string
	Engines map[string]Engine
	Check   func() error
}

// Command makes cmd the command of the study: it adds the flags that every study has, and
// runs the experiments.
func (s Study) Command(cmd *cobra.Command, o *Options) *cobra.Command {
	cmd.Use, cmd.Args = s.Paper, cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		run, err := s.engine(o)
		if err != nil {
			return err
		}
		targets, err := run(cmd.Context(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		report := Report{Paper: s.Paper, Seed: o.Seed, Targets: targets}
		return report.tell(cmd.OutOrStdout(), &o.output)
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the first run; the others are the numbers after it")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "how many seeds")
	f.StringVar(&o.Out, "out", "", "folder for tables and plots; none when empty")
	f.StringVar(&o.engine, "engine", "", "what runs the jobs: "+strings.Join(s.named(), " or ")+"; the simulation when empty")
	o.output.Flags(cmd)
	return cmd
}

// named are the engines that have a name.
func (s Study) named() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Engines)), func(name string) bool { return name == "" })
}

// engine checks the flags and returns what they ask for.
func (s Study) engine(o *Options) (Engine, error) {
	if o.Seeds < 1 || o.Seeds > seedsMost {
		return nil, cli.Usage("--seeds is %d; it must be from 1 to %d", o.Seeds, seedsMost)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	run, ok := s.Engines[o.engine]
	if !ok {
		e := cli.Usage("--engine %q is not known here", o.engine)
		e.Hint = "leave it away for the simulation, or name " + strings.Join(s.named(), " or ")
		return nil, e
	}
	return run, nil
}

// Keep writes files into the folder for tables and plots, if one is named.
func (o *Options) Keep(files Files) error {
	if o.Out == "" {
		return nil
	}
	if err := files.Write(o.Out); err != nil {
		return cli.Failed("name another folder with --out", "--out: %w", err)
	}
	return nil
}
