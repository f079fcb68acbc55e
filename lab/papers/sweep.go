package papers

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/lab/report"
)

// Setting is one choice of what a paper does not give, and what judges the study under it.
type Setting struct {
	Name    string
	Targets func(ctx context.Context) ([]Target, error)
}

// sweepReport is what --sweep prints.
type sweepReport struct {
	Paper string     `json:"paper"`
	Seed  uint64     `json:"seed"`
	Seeds int        `json:"seeds"`
	Sweep []sweepRow `json:"sweep"`
	// Depends are the targets whose verdicts are not the same under all settings.
	Depends []string `json:"depends"`

	targets []string
}

// sweepRow is one setting and the verdicts under it.
type sweepRow struct {
	Setting  string             `json:"setting"`
	Verdicts map[string]Verdict `json:"verdicts"`
}

// sweep judges a study under all settings.
func sweep(ctx context.Context, r *sweepReport, settings []Setting, progress io.Writer) error {
	r.Depends = []string{}
	for i, s := range settings {
		cli.Notef(progress, "setting %d of %d: %s", i+1, len(settings), s.Name)
		targets, err := s.Targets(ctx)
		if err != nil {
			return fmt.Errorf("setting %s: %w", s.Name, err)
		}
		row := sweepRow{Setting: s.Name, Verdicts: map[string]Verdict{}}
		for k := range targets {
			t := &targets[k]
			if row.Verdicts[t.ID] = t.Verdict; t.Verdict != NotRun && !slices.Contains(r.targets, t.ID) {
				r.targets = append(r.targets, t.ID)
			}
		}
		r.Sweep = append(r.Sweep, row)
	}
	for _, id := range r.targets {
		if slices.ContainsFunc(r.Sweep, func(x sweepRow) bool { return x.Verdicts[id] != r.Sweep[0].Verdicts[id] }) {
			r.Depends = append(r.Depends, id)
		}
	}
	return nil
}

// tell prints the report; what targets are short under another setting is no failure.
func (r *sweepReport) tell(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	head, rows := r.rows()
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	cli.Notef(w, "verdicts that depend on the setting: %s", strings.Join(r.Depends, " "))
	return nil
}

// rows are the targets, each with its verdict under every setting.
func (r *sweepReport) rows() (head []string, rows [][]string) {
	head = []string{"TARGET"}
	for i := range r.Sweep {
		head = append(head, r.Sweep[i].Setting)
	}
	for _, id := range r.targets {
		row := []string{id}
		for i := range r.Sweep {
			row = append(row, string(r.Sweep[i].Verdicts[id]))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// files are the same table for a page of docs.
func (r *sweepReport) files() Files {
	return Files{"sweep.md": func(w io.Writer) error {
		head, rows := r.rows()
		return report.Markdown(w, append([][]string{head}, rows...))
	}}
}
