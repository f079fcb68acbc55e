// Package papers holds what all studies of the papers share: `powerlab paper`, with one
// command for each paper, and the form in which every one of them reports.
//
// The one idea: a paper's number is a target with an id, and a study says for each
// what it got, with bounds, and whether that meets the target: by the same rule on every
// run, and with the reason where it does not. A study drives the decisions that
// production runs, on the lab's physics; it decides nothing itself.
//
// Guarantees: the form of the report is the same for every paper and only ever grows;
// the same seed gives the same bytes; exit code 0 says that all targets are met, 8 that
// some fall short.
package papers

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Target is one number of a paper and what came of it here.
type Target struct {
	// ID is the target's, with what it is for behind a slash: "D1/95".
	ID   string `json:"id"`
	What string `json:"what"`
	// Unit of Paper, Got, Low and High; empty for plain ratios.
	Unit string `json:"unit"`
	// Paper is the paper's own number; absent where it gives an ordering only.
	Paper *float64 `json:"paper"`
	// Got is what came out, Low and High its bounds: 95 of 100 sets of seeds give a mean within them.
	Got  *float64 `json:"got"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	Met  bool     `json:"met"`
	// Note says how Met was judged, and why it falls short where it does.
	Note string `json:"note"`
}

// Report is what a study found.
type Report struct {
	Paper   string   `json:"paper"`
	Seed    uint64   `json:"seed"`
	Targets []Target `json:"targets"`
}

// NewCommand is `powerlab paper`, with a command for each study.
func NewCommand(studies ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "paper",
		Short: "Repeat the papers' experiments and judge them against the papers' numbers",
		Long: "Each command repeats the experiments of one paper and says, target by target, what the paper has, what\n" +
			"came out here, and whether that meets the target. Exit code 0: all targets are met. 8: some fall short.",
		Example: "  powerlab paper cab\n  powerlab paper cab -o json",
	}
	cmd.AddCommand(studies...)
	return cmd
}

// tell prints the report and gives its verdict: nil where all targets are met.
func (r *Report) tell(w io.Writer, out *cli.Output) error {
	if err := r.Print(w, out); err != nil {
		return err
	}
	return r.Verdict()
}

// Print writes the report as JSON or as a table.
func (r *Report) Print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	rows := make([][]string, 0, len(r.Targets))
	for i := range r.Targets {
		t := &r.Targets[i]
		met := "met"
		if !t.Met {
			met = "SHORT"
		}
		rows = append(rows, []string{t.ID, t.What, t.number(t.Paper), t.number(t.Got), t.bounds(), met, t.Note})
	}
	return out.Table(w, []string{"TARGET", "WHAT", "PAPER", "GOT", "BOUNDS", "MET", "NOTE"}, rows)
}

// number is a value with its unit, empty when unknown.
func (t *Target) number(v *float64) string {
	if v == nil {
		return ""
	}
	return strings.TrimSpace(strconv.FormatFloat(*v, 'f', 2, 64) + " " + t.Unit)
}

func (t *Target) bounds() string {
	if t.Low == nil || t.High == nil {
		return ""
	}
	return fmt.Sprintf("%.2f to %.2f", *t.Low, *t.High)
}

// Verdict is the error of a study of which some targets fall short: exit code 8.
func (r *Report) Verdict() error {
	var short []string
	for i := range r.Targets {
		if !r.Targets[i].Met {
			short = append(short, r.Targets[i].ID)
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded,
		Message: fmt.Sprintf("%d of %d targets of %s fall short: %s", len(short), len(r.Targets), r.Paper, strings.Join(short, ", ")),
		Hint:    "the notes say by how much and why; docs/" + r.Paper + ".md has the reasons",
	}
}
