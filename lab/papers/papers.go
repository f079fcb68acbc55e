// Package papers contains what all studies of the papers share: `powerlab paper`, with one command
// per paper.
//
// The one idea: a paper's number is a target with an id, judged by the rules of package report. A
// study drives the decisions of production code on the lab's physics, and makes no decisions itself.
//
// Guarantees: the same seed gives the same bytes. Exit code 0 means that no target is short, 8 that
// some are.
package papers

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/lab/report"
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
	// Out is the folder for tables and a plot; none when empty.
	Out    string
	Traces Traces
	// Progress receives a line now and then.
	Progress io.Writer

	output cli.Output
}

// Result is what a study measured. Tables are for pages of docs, by file name; the first row of each
// is its head.
type Result struct {
	Targets []report.Target
	Tables  map[string][][]string
}

// Study is one paper's experiments.
type Study struct {
	Paper, Short, Long string
	// Seeds is the default of --seeds. Traces: the study also runs on published traces.
	Seeds  int
	Traces bool
	Run    func(ctx context.Context, o *Options) (*Result, error)
	// Left are targets that campaigns on real programs measure.
	Left []report.Target
}

// NewCommand is `powerlab paper`, with a command for each study.
func NewCommand(studies ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "paper",
		Short: "Repeat the papers' experiments and compare the results with the papers",
		Long: `Repeats the experiments of one paper per command. The report lists, for each target, the paper's
value, the value measured here, and a verdict:

  met      within the tolerance of the paper's value, or the paper's ordering holds where it gives
           only an ordering
  order    only the ordering or the sign holds
  short    not even the ordering holds
  not_run  not measured by this command

The exit code is 8 if any target is short. The same seeds give the same bytes.

--out writes targets.md, targets.svg and the tables that the page of the paper shows.`,
		Example: "  powerlab paper cab\n  powerlab paper cab --seeds 5 --out cab-out\n  powerlab paper pigeon --traces traces -o json",
	}
	cmd.AddCommand(studies...)
	return cmd
}

// Command is the command of the study.
func (s Study) Command() *cobra.Command {
	o := &Options{Seeds: s.Seeds}
	cmd := &cobra.Command{
		Use: s.Paper, Short: s.Short, Long: s.Long, Args: cobra.NoArgs,
		Example: "  powerlab paper " + s.Paper + "\n  powerlab paper " + s.Paper + " --seeds 5 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Progress = cmd.ErrOrStderr()
			if o.Seeds < 1 || o.Seeds > seedsMost {
				return cli.Usage("--seeds %d: must be from 1 to %d", o.Seeds, seedsMost)
			}
			if err := s.checkTraces(o); err != nil {
				return err
			}
			return s.run(cmd, o)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", judgedSeed, "seed of the first run; the others follow it. Settings were chosen on seeds below the default")
	f.IntVar(&o.Seeds, "seeds", o.Seeds, "number of seeds")
	f.StringVar(&o.Out, "out", "", "folder for tables and a plot")
	f.StringVar(&o.Traces.Dir, "traces", "", "folder of published traces")
	o.output.Flags(cmd)
	return cmd
}

// run measures, keeps the files of --out, and prints the report.
func (s Study) run(cmd *cobra.Command, o *Options) error {
	result, err := s.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	r := report.Report{Paper: s.Paper, Seed: o.Seed, Targets: append(result.Targets, s.Left...)}
	if err := r.Keep(o.Out, result.Tables); err != nil {
		return err
	}
	if err := r.Print(cmd.OutOrStdout(), &o.output); err != nil {
		return err
	}
	return r.Verdict()
}
