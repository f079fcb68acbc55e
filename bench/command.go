package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// NewCommand is `powerlab bench`.
func NewCommand() *cobra.Command {
	var only []string
	var out cli.Output
	var bin string
	quick := false
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the figures and print them beside their goals",
		Long: "Measures the figures of this build on this machine and prints them beside their goals, with a peer of the\n" +
			"same run where there is one, and how much the machine itself varied. Nothing is asserted: a missed goal is\n" +
			"a row that says so. Figures: " + strings.Join(names(), ", ") + ".",
		Example: "  powerlab bench\n  powerlab bench --only plan,sample -o json\n  powerlab bench --quick",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := choose(only)
			if err != nil {
				return err
			}
			l, err := newLab(bin, quick, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer os.RemoveAll(l.dir) //nolint:errcheck // a temporary folder
			report, err := l.run(cmd.Context(), chosen)
			if err != nil {
				return err
			}
			return report.print(cmd.OutOrStdout(), &out)
		},
	}
	out.Flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&only, "only", nil, "measure only these figures")
	f.BoolVar(&quick, "quick", false, "smaller samples: the table in about a minute, with less in it")
	f.StringVar(&bin, "bin", "", "folder of the programs (default: that of powerlab)")
	return cmd
}

func names() []string {
	var all []string
	for _, f := range figures() {
		all = append(all, f.name)
	}
	return all
}

func choose(only []string) ([]figure, error) {
	for _, name := range only {
		if !slices.Contains(names(), name) {
			e := cli.Usage("--only: there is no figure %q", name)
			e.Hint = "the figures are " + strings.Join(names(), ", ")
			return nil, e
		}
	}
	return slices.DeleteFunc(figures(), func(f figure) bool { return len(only) > 0 && !slices.Contains(only, f.name) }), nil
}

func newLab(bin string, quick bool, notes io.Writer) (*lab, error) {
	if bin == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("bench: find the programs: %w", err)
		}
		bin = filepath.Dir(self)
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, fmt.Errorf("bench: folder: %w", err)
	}
	return &lab{dir: dir, bin: bin, quick: quick, notes: notes}, nil
}

// report is what a run came to.
type report struct {
	Kind    string  `json:"kind"`
	Quick   bool    `json:"quick"`
	TookS   float64 `json:"took_s"`
	Machine Machine `json:"machine"`
	Figures []Row   `json:"figures"`
}

// run measures the chosen figures one after the other. A figure that fails is a
// row that says why; only an interruption ends the run.
func (l *lab) run(ctx context.Context, chosen []figure) (report, error) {
	began := time.Now()
	r := report{Kind: "Bench", Quick: l.quick, Figures: []Row{}}
	noise := calibrate()
	for i, f := range chosen {
		cli.Notef(l.notes, "[%d/%d] %s: %s", i+1, len(chosen), f.name, f.what)
		rows, err := f.measure(ctx, l)
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
		if err != nil {
			rows = append(rows, unmeasured(f.name, f.what, err)...)
		}
		r.Figures = append(r.Figures, rows...)
		noise = append(noise, calibrate()...)
	}
	r.Machine, r.TookS = describe(noise), time.Since(began).Seconds()
	return r, nil
}

func (r report) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	rows := make([][]string, 0, len(r.Figures))
	for _, f := range r.Figures {
		times := ""
		if f.Ratio != nil {
			times = fmt.Sprintf("%.2f", *f.Ratio)
		}
		rows = append(rows, []string{f.Figure, f.What, f.Goal, f.Measured, f.Peer, times, f.Verdict})
	}
	err := out.Table(w, []string{"FIGURE", "WHAT", "GOAL", "MEASURED", "PEER OF THE SAME RUN", "RATIO", "GOAL IS"}, rows)
	if out.Format != "" && out.Format != "table" && out.Format != "wide" {
		return err
	}
	_, written := fmt.Fprintf(w, "\n%s", r.Machine)
	return errors.Join(err, written)
}
