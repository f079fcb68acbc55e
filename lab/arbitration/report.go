package arbitration

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"headroom/internal/cli"
)

// Report is the result of a call on its loads.
type Report struct {
	Seed  uint64   `json:"seed"`
	Seeds int      `json:"seeds"`
	Load  string   `json:"load"`
	Loads []Answer `json:"loads"`
}

// shortfalls are the baselines that the arbiter is behind, and the load itself if the arbiter is ahead in too few figures.
func (a *Answer) shortfalls() (out []string) {
	ahead, judged := map[string]bool{}, map[string]bool{}
	for _, j := range a.Judged {
		judged[j.Figure] = true
		switch j.Verdict {
		case Behind:
			out = append(out, fmt.Sprintf("%s behind %s in %s", a.Load, j.Baseline, j.Figure))
		case Ahead:
			ahead[j.Figure] = true
		case Level:
		}
	}
	if least := min(aheadLeast, len(judged)); len(ahead) < least {
		out = append(out, fmt.Sprintf("%s ahead in %d figures of %d", a.Load, len(ahead), least))
	}
	return out
}

// verdict is the error of an arbiter that is behind somewhere.
func (r *Report) verdict() error {
	var short []string
	for i := range r.Loads {
		short = append(short, r.Loads[i].shortfalls()...)
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: "the arbiter misses its goals: " + strings.Join(short, ", "),
		Hint: "see lab/docs/arbiter.md for known cases and reasons; repeat with another --seed to rule out chance",
	}
}

// print is the report as JSON, or as two tables for each load.
func (r *Report) print(w io.Writer, out *cli.Output) error {
	switch {
	case out.IsJSON() && len(r.Loads) == 1:
		return out.JSON(w, r.Loads[0])
	case out.IsJSON():
		return out.JSON(w, r)
	}
	for i := range r.Loads {
		if err := r.Loads[i].print(w, out); err != nil {
			return err
		}
	}
	return nil
}

// text is a figure of a result in the column's unit, with half the width of its bounds; - if it is unknown.
func (f *figure) text(r *Result) string {
	s, known := r.Figures[f.name]
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.*f ± %.*f", f.digits, f.scale*s.Mean, f.digits, f.scale*(s.High-s.Low)/2)
}

func (a *Answer) print(w io.Writer, out *cli.Output) error {
	head, rows := []string{"VARIANT"}, [][]string{}
	for _, c := range figures() {
		head = append(head, c.head)
	}
	for i := range a.Variants {
		row := []string{a.Variants[i].Name}
		for _, c := range figures() {
			row = append(row, c.text(&a.Variants[i]))
		}
		rows = append(rows, append(row, a.Variants[i].Says))
	}
	if head = append(head, "WHAT"); !out.IsWide() {
		head = head[:len(head)-1]
		for i := range rows {
			rows[i] = rows[i][:len(head)]
		}
	}
	if out.Format == "csv" || out.Format == "name" {
		return out.Table(w, head, rows)
	}
	if _, err := fmt.Fprintf(w, "load %s, %d seeds from %d; latencies in s, missed deadlines and quality in %%, energy and sprints in kJ, energy per task in J\n", a.Load, a.Seeds, a.Seed); err != nil {
		return err
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\nthe arbiter at each one's quality and joules (how much worse it is, below 0 better, in the figure's unit):\n"); err != nil {
		return err
	}
	head = []string{"AGAINST", "MEMBER", "VERDICT"}
	for _, c := range judgedFigures() {
		head = append(head, strings.ToUpper(c.name))
	}
	if err := out.Table(w, append(head, "COST"), a.verdictRows()); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

// verdictRows have a row for each baseline.
func (a *Answer) verdictRows() (rows [][]string) {
	for _, v := range a.Verdicts {
		row, note := []string{v.Baseline, v.Member, v.Verdict}, ""
		for _, c := range judgedFigures() {
			cell := "-"
			if i := slices.IndexFunc(a.Judged, func(j Judged) bool { return j.Baseline == v.Baseline && j.Figure == c.name }); i >= 0 {
				j := &a.Judged[i]
				cell, note = fmt.Sprintf("%s %s", j.Verdict, j.Behind), cmp.Or(note, j.Note)
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, note))
	}
	return rows
}
