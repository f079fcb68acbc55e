// Package papers contains what all studies of the papers share: `powerlab paper`, with one command
// per paper, and the common form of their reports.
//
// The one idea: a paper's number is a target with an id. For each target, a study reports its own
// value with bounds and one of three verdicts, by the same rule on every run, with the reason if it
// is not met. A mutant is a study with one deliberate mistake, which shows which targets detect it.
// A study drives the decisions of production code on the lab's physics, and makes no decisions
// itself.
//
// Guarantees: the form of the report is the same for every paper and only grows. The same seed
// gives the same bytes. Exit code 0 means that no target is short; 8 means that some are, or that a
// mutant was not detected.
package papers

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
)

// Target is one number of a paper and the value measured here.
type Target struct {
	// ID is the target's, with what it is for behind a slash: "D1/95".
	ID   string
	What string
	// Unit of Paper, Got, Low, High and Oracle; empty for plain ratios.
	Unit string
	// Paper is the paper's own number; absent where it gives an ordering only.
	Paper *float64
	// Got is the value measured here, Low and High its 95 % bounds of the mean.
	Got  *float64
	Low  *float64
	High *float64
	// Oracle is the result with perfect information. It is
	// shown and never judged; nil where no such run was made.
	Oracle  *float64
	Verdict Verdict
	// Note describes how the target was judged, and if it is short, by how much and why.
	Note string
}

// Verdict is the result of comparing a target with the paper.
type Verdict string

// The verdicts, the best first. NotRun is none: the experiment was not made.
const (
	// Met means that the value is within the target's tolerance of the paper's number, or,
	// where the paper gives an ordering only, that the ordering holds.
	Met Verdict = "met"
	// Order means that only the ordering or the sign of the paper's number holds.
	Order Verdict = "order"
	// Short means that not even that holds, or that nothing was measured.
	Short  Verdict = "short"
	NotRun Verdict = "not_run"
)

// worse reports whether v is a worse verdict than o.
func (v Verdict) worse(o Verdict) bool { return v.rank() > o.rank() }

func (v Verdict) rank() int {
	switch v {
	case Met:
		return 0
	case Order:
		return 1
	case Short:
		return 2
	case NotRun:
	}
	return 3
}

// met reports whether the paper's number or at least its ordering was reproduced; nil where
// the experiment was not made.
func (t *Target) met() *bool {
	if t.Verdict == NotRun {
		return nil
	}
	return new(t.Verdict == Met || t.Verdict == Order)
}

// MarshalJSON writes the target's documented form.
func (t *Target) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ID      string   `json:"id"`
		What    string   `json:"what"`
		Unit    string   `json:"unit"`
		Paper   *float64 `json:"paper"`
		Got     *float64 `json:"got"`
		Low     *float64 `json:"low"`
		High    *float64 `json:"high"`
		Oracle  *float64 `json:"oracle"`
		Met     *bool    `json:"met"`
		Verdict Verdict  `json:"verdict"`
		Note    string   `json:"note"`
	}{t.ID, t.What, t.Unit, t.Paper, t.Got, t.Low, t.High, t.Oracle, t.met(), t.Verdict, t.Note})
}

// Report is the result of a study.
type Report struct {
	Paper   string   `json:"paper"`
	Seed    uint64   `json:"seed"`
	Targets []Target `json:"targets"`
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

The exit code is 8 if any target is short. The ORACLE column shows the result if every variant had
perfect information; it is not judged.`,
		Example: "  powerlab paper cab\n  powerlab paper cab -o json\n  powerlab paper cab --mutants -o json",
	}
	cmd.AddCommand(studies...)
	return cmd
}

// tell prints the report and gives its verdict: nil where no target is short.
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
	return out.Table(w, []string{"TARGET", "WHAT", "PAPER", "GOT", "BOUNDS", "ORACLE", "VERDICT", "NOTE"}, r.rows())
}

func (r *Report) rows() [][]string {
	rows := make([][]string, 0, len(r.Targets))
	for i := range r.Targets {
		t := &r.Targets[i]
		rows = append(rows, []string{t.ID, t.What, t.number(t.Paper), t.number(t.Got), t.bounds(), t.number(t.Oracle), string(t.Verdict), t.Note})
	}
	return rows
}

// files are the report's own: the same table for machines, and for a page of docs.
func (r *Report) files() Files {
	return Files{
		"targets.csv": func(w io.Writer) error { return WriteCSV(w, r.csv()) },
		"targets.md": func(w io.Writer) error {
			return WriteMarkdown(w, append([][]string{{"target", "quantity", "paper", "got", "bounds", "oracle", "verdict", "note"}}, r.rows()...))
		},
	}
}

func (r *Report) csv() [][]string {
	rows := [][]string{{"target", "what", "unit", "paper", "got", "low", "high", "oracle", "verdict", "note"}}
	for i := range r.Targets {
		t := &r.Targets[i]
		row := []string{t.ID, t.What, t.Unit}
		for _, v := range []*float64{t.Paper, t.Got, t.Low, t.High, t.Oracle} {
			row = append(row, maybe(v))
		}
		rows = append(rows, append(row, string(t.Verdict), t.Note))
	}
	return rows
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
		if r.Targets[i].Verdict == Short {
			short = append(short, r.Targets[i].ID)
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded,
		Message: fmt.Sprintf("%d of %d targets of %s are short: %s", len(short), len(r.Targets), r.Paper, strings.Join(short, ", ")),
		Hint:    "see the notes and lab/docs/" + r.Paper + ".md for the reasons",
	}
}
