package papers

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

const (
	// seedsMost bounds the seeds of one study.
	seedsMost = 1000
	// judgedSeed is the first seed that targets are judged on. Whatever is tuned is tuned on
	// the seeds before it.
	judgedSeed = 1001
)

// Options are the flags that every study has.
type Options struct {
	Seed  uint64
	Seeds int
	// Out is the folder for tables and plots; none when empty.
	Out string
	// Bin is the folder of the programs, of a real engine alone.
	Bin string

	engine         string
	mutants, sweep bool
	output         cli.Output
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
	// Mutants makes the honest run and names the mistakes that --mutants tries, on
	// MutantSeeds seeds where --seeds says nothing; nil for a study without.
	Mutants     func(ctx context.Context, progress io.Writer) (*Mutants, error)
	MutantSeeds int
	// Sweep gives what --sweep tries, on SweepSeeds seeds where --seeds says nothing; nil
	// for a study without.
	Sweep      func(ctx context.Context, progress io.Writer) ([]Setting, error)
	SweepSeeds int
}

// Command makes cmd the command of the study: it adds the flags that every study has, and
// runs the experiments.
func (s Study) Command(cmd *cobra.Command, o *Options) *cobra.Command {
	cmd.Use, cmd.Args = s.Paper, cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.seeds(cmd, o)
		run, err := s.engine(o)
		if err != nil {
			return err
		}
		switch {
		case o.mutants:
			return s.mutate(cmd, o)
		case o.sweep:
			return s.vary(cmd, o)
		}
		targets, err := run(cmd.Context(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		report := Report{Paper: s.Paper, Seed: o.Seed, Targets: targets}
		if err := o.Keep(report.Files()); err != nil {
			return err
		}
		if err := report.Print(cmd.OutOrStdout(), &o.output); err != nil {
			return err
		}
		return report.Verdict()
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", judgedSeed, "seed of the first run; the others follow it. Settings were chosen on seeds below the default")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "number of seeds")
	f.StringVar(&o.Out, "out", "", "folder for tables and plots")
	f.StringVar(&o.engine, "engine", "", s.engineHelp())
	if s.Mutants != nil {
		f.BoolVar(&o.mutants, "mutants", false, fmt.Sprintf(
			"repeat the study with one deliberate mistake at a time, and print which targets detect it (default --seeds: %d)", s.MutantSeeds))
	}
	if s.Sweep != nil {
		f.BoolVar(&o.sweep, "sweep", false, fmt.Sprintf(
			"repeat the study with other values for what the paper does not give, and print which verdicts depend on them (default --seeds: %d)", s.SweepSeeds))
	}
	o.output.Flags(cmd)
	return cmd
}

// engineHelp describes --engine.
func (s Study) engineHelp() string {
	if named := s.named(); len(named) > 0 {
		return "engine that runs the jobs: " + strings.Join(named, " or ") + " (default: simulation)"
	}
	return "engine that runs the jobs; this study has only the simulation, which is the default"
}

// seeds sets how many seeds there are where --seeds does not.
func (s Study) seeds(cmd *cobra.Command, o *Options) {
	switch {
	case cmd.Flags().Changed("seeds"):
	case o.mutants:
		o.Seeds = s.MutantSeeds
	case o.sweep:
		o.Seeds = s.SweepSeeds
	}
}

// vary judges the study under all its settings.
func (s Study) vary(cmd *cobra.Command, o *Options) error {
	settings, err := s.Sweep(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	report := sweepReport{Paper: s.Paper, Seed: o.Seed, Seeds: o.Seeds}
	if err := sweep(cmd.Context(), &report, settings, cmd.ErrOrStderr()); err != nil {
		return err
	}
	if err := o.Keep(report.files()); err != nil {
		return err
	}
	return report.tell(cmd.OutOrStdout(), &o.output)
}

// mutate tries the study's mutants.
func (s Study) mutate(cmd *cobra.Command, o *Options) error {
	m, err := s.Mutants(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	report, err := m.try(cmd.Context(), s.Paper, o.Seed, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return report.tell(cmd.OutOrStdout(), &o.output)
}

// named are the engines that have a name.
func (s Study) named() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Engines)), func(name string) bool { return name == "" })
}

// engine checks the flags and returns what they ask for.
func (s Study) engine(o *Options) (Engine, error) {
	if o.Seeds < 1 || o.Seeds > seedsMost {
		return nil, cli.Usage("--seeds %d: must be from 1 to %d", o.Seeds, seedsMost)
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	run, ok := s.Engines[o.engine]
	if !ok {
		e := cli.Usage("unknown --engine %q", o.engine)
		e.Hint = "leave --engine out for the simulation, or use " + strings.Join(s.named(), " or ")
		return nil, e
	}
	switch {
	case o.mutants && (o.engine != "" || o.Out != "" || o.sweep):
		return nil, cli.Usage("--mutants cannot be combined with --engine, --sweep or --out: it runs the simulation and writes no files")
	case o.sweep && o.engine != "":
		return nil, cli.Usage("--sweep cannot be combined with --engine: it runs the simulation")
	}
	return run, nil
}

// Keep writes files into the folder for tables and plots, if one is named.
func (o *Options) Keep(files Files) error { return files.Keep(o.Out) }
