package experiment

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

type options struct {
	span                     time.Duration
	resume, report, markdown bool
	dir, bin, traces         string
	output                   cli.Output
}

// NewCommand is `powerlab campaign` over all specs.
func NewCommand(specs []*Spec) *cobra.Command {
	o := options{dir: filepath.Join("lab", "results")}
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
	}
	cmd := &cobra.Command{
		Use:   "campaign [SPEC...]",
		Short: "Measure Headroom on real programs, in runs that may be interrupted",
		Long: `Runs the variants of experiments on real programs: coordinators, the scheduler and emulated nodes with powerd,
with the scheduler's own engine, an unmodified Hadoop or Spark, or 120 workers. Without SPEC it lists the
experiments and how many runs each has.

A pair is one run of each variant with the same seed. Each finished run is appended to lab/results/SPEC.jsonl
at once; Ctrl-C or kill -9 lose the run in progress only. --resume continues a file that has runs, on another
machine too. A run on a noisy machine is kept and marked, and is not counted. The campaign ends when every
claim has a verdict, or with --for when no further run fits.

--report judges the files: for each claim the mean of its pairs, bounds that hold for all claims of a spec at
once, and a verdict: met, order (only the ordering or the sign holds), short, or too few runs, with the number
of further pairs that are needed.

It needs root for the engines' cgroups, "make build", and for Hadoop and Spark "make hooks" and a JDK. The
exit code of --report is 8 if a claim is short.`,
		Example:           "  powerlab campaign\n  powerlab campaign arbiter-local --for 150m\n  powerlab campaign cab-yarn dias-spark --resume\n  powerlab campaign --report -o json",
		ValidArgsFunction: cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			var chosen []*Spec
			for _, name := range args {
				i := slices.Index(names, name)
				if i < 0 {
					e := cli.Usage("unknown experiment %q", name)
					e.Hint = "use one of " + strings.Join(names, ", ")
					return e
				}
				chosen = append(chosen, specs[i])
			}
			if len(args) == 0 {
				chosen = specs
			}
			return o.run(cmd, chosen, len(args) > 0)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.span, "for", 0, "start no run that would end later than this (default: no bound)")
	f.BoolVar(&o.resume, "resume", false, "continue campaigns that have runs")
	f.BoolVar(&o.report, "report", false, "judge the finished runs")
	f.BoolVar(&o.markdown, "markdown", false, "with --report: print the table of lab/results/README.md")
	f.StringVar(&o.dir, "results", o.dir, "folder of the results")
	f.StringVar(&o.bin, "bin", "", "folder of the programs and jars (default: next to powerlab)")
	f.StringVar(&o.traces, "traces", "", "folder of published traces, for pigeon, sparrow and eagle")
	o.output.Flags(cmd)
	return cmd
}

func (o *options) run(cmd *cobra.Command, specs []*Spec, named bool) error {
	w := cmd.OutOrStdout()
	all, err := list(o.dir, specs)
	if err != nil {
		return err
	}
	switch {
	case o.span < 0 || o.report && (o.span > 0 || o.resume) || o.markdown && !o.report:
		return cli.Usage("--for must be positive; --report cannot be combined with --for and --resume; --markdown needs --report")
	case o.markdown:
		return Markdown(w, o.dir, specs)
	case o.report:
		return printJudged(w, &o.output, o.dir, specs)
	case !named:
		return printList(w, &o.output, all)
	}
	for i := range all {
		if all[i].Runs > 0 && !o.resume {
			return cli.Failed("use --resume to continue it", "%s has %d runs in %s", all[i].Spec, all[i].Runs, o.dir)
		}
	}
	if os.Geteuid() != 0 {
		return cli.Failed("run it as root", "campaign needs root: it slows down real processes with cgroups")
	}
	c := campaign{dir: o.dir, traces: o.traces, look: look, note: func(format string, args ...any) { cli.Notef(cmd.ErrOrStderr(), format, args...) }}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if c.bin, err = filepath.Abs(cmp.Or(o.bin, filepath.Dir(self))); err != nil {
		return err
	}
	if o.span > 0 {
		c.until = time.Now().Add(o.span)
	}
	if err := c.run(cmd.Context(), specs); err != nil {
		return err
	}
	if all, err = list(o.dir, specs); err != nil {
		return err
	}
	return printList(w, &o.output, all)
}
