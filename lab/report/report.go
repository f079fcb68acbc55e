package report

import (
	"fmt"
	"io"
	"strings"

	"headroom/internal/cli"
)

// Report has the targets of a study.
type Report struct {
	Paper   string   `json:"paper"`
	Seed    uint64   `json:"seed"`
	Targets []Target `json:"targets"`
}

// Print writes the report as JSON or as a table.
func (r *Report) Print(w io.Writer, out *cli.Output) error {
	for i := range r.Targets {
		if t := &r.Targets[i]; t.Verdict != NotRun {
			t.Met = new(t.Verdict == Met || t.Verdict == Order)
		}
	}
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	return out.Table(w, []string{"TARGET", "WHAT", "PAPER", "GOT", "BOUNDS", "VERDICT", "NOTE"}, r.rows())
}

func (r *Report) rows() [][]string {
	rows := make([][]string, 0, len(r.Targets))
	for i := range r.Targets {
		t := &r.Targets[i]
		rows = append(rows, []string{t.ID, t.What, t.number(t.Paper), t.number(t.Got), t.bounds(), string(t.Verdict), t.Note})
	}
	return rows
}

// Verdict is the error of a study with targets that are short: exit code 8.
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

// table has the targets as a table of a page of docs.
func (r *Report) table() [][]string {
	return append([][]string{{"target", "quantity", "paper", "got", "bounds", "verdict", "note"}}, r.rows()...)
}
