package arbitration

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"headroom/internal/cli"
	"headroom/lab/chart"
	"headroom/lab/papers"
)

// Report is the result of a call on its loads.
type Report struct {
	Seed  uint64   `json:"seed"`
	Seeds int      `json:"seeds"`
	Load  string   `json:"load"`
	Loads []Answer `json:"loads"`
}

// shortfalls are the baselines that the arbiter is behind of, and loads on which it is ahead in too little.
func (a *Answer) shortfalls() (out []string) {
	ahead := map[string]bool{}
	for _, j := range a.Judged {
		switch j.Verdict {
		case Behind:
			out = append(out, fmt.Sprintf("%s behind %s in %s", a.Load, j.Baseline, j.Figure))
		case Ahead:
			ahead[j.Figure] = true
		case Level:
		}
	}
	judged := map[string]bool{}
	for _, j := range a.Judged {
		judged[j.Figure] = true
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
	if out.IsJSON() {
		if len(r.Loads) == 1 {
			return out.JSON(w, r.Loads[0])
		}
		return out.JSON(w, r)
	}
	for i := range r.Loads {
		if err := r.Loads[i].print(w, out); err != nil {
			return err
		}
	}
	return nil
}

// column is one column of the table of variants.
type column struct {
	head, figure string
	// scale turns the figure into the column's unit.
	scale  float64
	digits int
}

func columns() []column {
	return []column{
		{"URGENT", UrgentMean, 1, 1},
		{"P95", UrgentP95, 1, 1},
		{"MISSED", UrgentMissed, 100, 1},
		{"TOLERANT", TolerantMean, 1, 0},
		{"P95", TolerantP95, 1, 0},
		{"QUALITY", TolerantQuality, 100, 1},
		{"ENERGY", EnergyJ, 1e-3, 0},
		{"PER TASK", energyPerTaskJ, 1, 0},
		{"SPRINTS", SprintJ, 1e-3, 1},
		{"WEIGHTED", WeightedS, 1, 2},
	}
}

// text is a figure in the column's unit, with half the width of its bounds; - where it is unknown.
func (c *column) text(r *Result) string {
	f, known := r.Figures[c.figure]
	if !known {
		return "-"
	}
	return fmt.Sprintf("%.*f ± %.*f", c.digits, c.scale*f.Mean, c.digits, c.scale*(f.High-f.Low)/2)
}

func (a *Answer) print(w io.Writer, out *cli.Output) error {
	head, rows := []string{"VARIANT"}, [][]string{}
	for _, c := range columns() {
		head = append(head, c.head)
	}
	if out.IsWide() {
		head = append(head, "WHAT")
	}
	for i := range a.Variants {
		row := []string{a.Variants[i].Name}
		for _, c := range columns() {
			row = append(row, c.text(&a.Variants[i]))
		}
		if out.IsWide() {
			row = append(row, a.Variants[i].Says)
		}
		rows = append(rows, row)
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
	if err := out.Table(w, slices.Concat([]string{"AGAINST", "MEMBER", "VERDICT"}, criteriaHeads(), []string{"COST"}), a.verdictRows()); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

func criteriaHeads() (out []string) {
	for _, c := range criteria() {
		out = append(out, strings.ToUpper(c.name))
	}
	return out
}

// verdictRows have a row for each baseline.
func (a *Answer) verdictRows() (rows [][]string) {
	for _, v := range a.Verdicts {
		row, note := []string{v.Baseline, v.Member, v.Verdict}, ""
		for _, c := range criteria() {
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

// files are the tables and plots of all loads; of several, each load's names begin with its own.
func (r *Report) files() papers.Files {
	out := papers.Files{}
	for i := range r.Loads {
		a, before := &r.Loads[i], ""
		if len(r.Loads) > 1 {
			before = a.Load + "-"
		}
		out[before+"figures.csv"] = a.figuresCSV
		out[before+"judged.csv"] = a.judgedCSV
		out[before+"quality.svg"] = func(w io.Writer) error {
			return a.draw(w, "tolerant jobs over quality", axis{"tasks computed (%)", TolerantQuality, 100}, axis{"mean latency of tolerant jobs (s)", TolerantMean, 1})
		}
		out[before+"joules.svg"] = func(w io.Writer) error {
			return a.draw(w, "urgent jobs over joules", axis{"joules of sprints (kJ)", SprintJ, 1e-3}, axis{"95th percentile of urgent jobs' latency (s)", UrgentP95, 1})
		}
	}
	return out
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 8, 64) }

// figuresCSV has a row for each variant and figure.
func (a *Answer) figuresCSV(w io.Writer) error {
	rows := [][]string{{"variant", "figure", "mean", "low", "high", "says"}}
	for _, v := range a.Variants {
		var names []string
		for name := range v.Figures {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			f := v.Figures[name]
			rows = append(rows, []string{v.Name, name, number(f.Mean), number(f.Low), number(f.High), v.Says})
		}
	}
	return papers.WriteCSV(w, rows)
}

// judgedCSV has a row for each baseline and figure.
func (a *Answer) judgedCSV(w io.Writer) error {
	rows := [][]string{{"baseline", "member", "figure", "behind", "low", "high", "verdict", "note"}}
	for _, j := range a.Judged {
		rows = append(rows, []string{j.Baseline, j.Member, j.Figure, number(j.Behind.Mean), number(j.Behind.Low), number(j.Behind.High), string(j.Verdict), j.Note})
	}
	return papers.WriteCSV(w, rows)
}

// axis is one axis of a plot: a figure in the axis' unit.
type axis struct {
	label, figure string
	scale         float64
}

// draw draws one figure of all variants over another: ours as a line with dots, the others as dots with names.
func (a *Answer) draw(w io.Writer, title string, x, y axis) error {
	c := chart.New("Load "+a.Load+": "+title, x.label, y.label)
	lines := map[string][]plotter.XY{}
	var others []plotter.XY
	var names []string
	for _, v := range a.Variants {
		fx, known := v.Figures[x.figure]
		fy, too := v.Figures[y.figure]
		if !known || !too {
			continue
		}
		at := plotter.XY{X: x.scale * fx.Mean, Y: y.scale * fy.Mean}
		if line := lineOf(v.Name); line != "" {
			lines[line] = append(lines[line], at)
			continue
		}
		others, names = append(others, at), append(names, v.Name)
	}
	for i, line := range []string{"arbiter", "arbiter, spend", "arbiter, save"} {
		at := lines[line]
		if len(at) == 0 {
			continue
		}
		slices.SortFunc(at, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		colour := []color.Color{chart.Blue, chart.Sky, chart.Green}[i]
		if err := c.Line(chart.Series{Name: line, Points: at, Colour: colour}); err != nil {
			return err
		}
		if err := c.Dots(at, func(int) draw.GlyphStyle {
			return draw.GlyphStyle{Color: colour, Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
		}); err != nil {
			return err
		}
	}
	if err := c.Dots(others, func(i int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: otherColour(i), Radius: vg.Points(3.5), Shape: draw.SquareGlyph{}}
	}); err != nil {
		return err
	}
	for i, name := range names {
		// A line of no length lends its colour to the name.
		if err := c.Line(chart.Series{Name: name, Points: others[i : i+1], Colour: otherColour(i), Width: 4}); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := chart.Save(c, &b); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

func otherColour(i int) color.Color {
	all := []color.Color{chart.Red, chart.Orange, chart.Pink, chart.Brown, chart.Grey, chart.Yellow, chart.Black}
	return all[i%len(all)]
}

// lineOf is the line of a variant of ours; empty for others.
func lineOf(name string) string {
	switch {
	case !strings.HasPrefix(name, "arbiter") || strings.HasSuffix(name, "-no-holds") || strings.HasSuffix(name, "-oracle"):
		return ""
	case strings.HasSuffix(name, string(spend)):
		return "arbiter, spend"
	case strings.HasSuffix(name, string(save)):
		return "arbiter, save"
	}
	return "arbiter"
}
