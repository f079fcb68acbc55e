package runs

import (
	"fmt"
	"image/color"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"headroom/internal/cli"
	"headroom/lab/arbitration"
	"headroom/lab/chart"
	"headroom/lab/papers"
)

// Variant is one way to decide.
type Variant struct{ Name, Says string }

// Turn returns the variants in the order of a run: forth in one, back in the next, so that what changes slowly meets all alike.
func Turn[V any](variants []V, run int) []V {
	all := slices.Clone(variants)
	if run%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// Result is the result of one run of a variant.
type Result struct {
	Variant string
	// Run counts from 0.
	Run     int
	Figures map[string]float64
}

// Column is a figure as tables show it.
type Column struct {
	Head, Figure string
	Scale        float64
	Digits       int
	// Sign is -1 where more is better, 1 where less is; 0 where neither is judged.
	Sign float64
}

// Comparison compares the first variant with the others, by the figures of the columns.
type Comparison struct {
	Engine   string
	Seed     uint64
	Load     string
	Variants []Variant
	Columns  []Column
	// Note explains the units of the columns, Versus the table of differences.
	Note, Versus string
}

// Bounded is the mean of a figure over the runs, with the bounds that it lies within in 95 of 100 cases; they are absent
// after a single run.
type Bounded struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Runs is the number of runs that yielded it.
	Runs int `json:"runs"`
}

func boundedOf(each []float64) Bounded {
	f := papers.Of(each)
	b := Bounded{Mean: f.Mean, Runs: len(each)}
	if len(each) > 1 {
		b.Low, b.High = &f.Low, &f.High
	}
	return b
}

// Shown is one variant's figures.
type Shown struct {
	Name    string             `json:"name"`
	Says    string             `json:"says"`
	Figures map[string]Bounded `json:"figures"`
}

// Difference is by how much the first variant is worse than another in a figure, run by run: below 0 it is better.
type Difference struct {
	Against string  `json:"against"`
	Figure  string  `json:"figure"`
	Behind  Bounded `json:"behind"`
	// Verdict is by bounds that hold for all figures at once, Alone by those of this one.
	Verdict arbitration.Standing `json:"verdict"`
	Alone   arbitration.Standing `json:"alone"`
}

// Unknown is the verdict where too few runs have shown the figure.
const Unknown arbitration.Standing = "unknown"

// Report is the result of all runs.
type Report struct {
	Engine      string       `json:"engine"`
	Seed        uint64       `json:"seed"`
	Runs        int          `json:"runs"`
	Load        string       `json:"load"`
	Variants    []Shown      `json:"variants"`
	Differences []Difference `json:"differences"`

	comparison *Comparison
	results    []Result
}

// Report sums the results of all runs up.
func (c *Comparison) Report(results []Result) *Report {
	r := &Report{Engine: c.Engine, Seed: c.Seed, Load: c.Load, comparison: c, results: results}
	for _, v := range c.Variants {
		s := Shown{v.Name, v.Says, map[string]Bounded{}}
		each, runs := map[string][]float64{}, 0
		for i := range results {
			if results[i].Variant != v.Name {
				continue
			}
			runs++
			for name, x := range results[i].Figures {
				each[name] = append(each[name], x)
			}
		}
		for name, values := range each {
			s.Figures[name] = boundedOf(values)
		}
		r.Runs = max(r.Runs, runs)
		r.Variants = append(r.Variants, s)
	}
	for _, v := range c.Variants[1:] {
		for _, k := range c.judged() {
			r.Differences = append(r.Differences, r.difference(v.Name, &k))
		}
	}
	return r
}

// judged are the columns in which the first variant is held against the others.
func (c *Comparison) judged() []Column {
	return slices.DeleteFunc(slices.Clone(c.Columns), func(k Column) bool { return k.Sign == 0 })
}

// difference compares the first variant with another in a figure, over the runs of which it is known of both.
func (r *Report) difference(against string, c *Column) Difference {
	of, variants := map[int]map[string]float64{}, r.comparison.Variants
	for i := range r.results {
		x := &r.results[i]
		if value, known := x.Figures[c.Figure]; known {
			if of[x.Run] == nil {
				of[x.Run] = map[string]float64{}
			}
			of[x.Run][x.Variant] = value
		}
	}
	var each, mine, theirs []float64
	for _, run := range slices.Sorted(maps.Keys(of)) {
		x, known := of[run][variants[0].Name]
		y, too := of[run][against]
		if known && too {
			each, mine, theirs = append(each, c.Sign*(x-y)), append(mine, x), append(theirs, y)
		}
	}
	d := Difference{Against: against, Figure: c.Figure, Verdict: Unknown, Alone: Unknown}
	if len(each) == 0 {
		return d
	}
	d.Behind = boundedOf(each)
	if found, known := arbitration.Compare(c.Figure, c.Sign < 0, mine, theirs, len(r.comparison.judged())*(len(variants)-1)); known {
		d.Verdict, d.Alone = found.AtOnce, found.Alone
	}
	return d
}

// Print writes the report as JSON, or as two tables. full is what JSON has: the report, or what embeds it.
func (r *Report) Print(w io.Writer, out *cli.Output, full any) error {
	if out.IsJSON() {
		return out.JSON(w, full)
	}
	c := r.comparison
	head, rows := []string{"VARIANT"}, [][]string{}
	for _, k := range c.Columns {
		head = append(head, k.Head)
	}
	for _, v := range r.Variants {
		row := []string{v.Name}
		for _, k := range c.Columns {
			cell := "-"
			if f, known := v.Figures[k.Figure]; known {
				cell = k.text(f)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	if out.Format == "csv" || out.Format == "name" {
		return out.Table(w, head, rows)
	}
	if _, err := fmt.Fprintf(w, "engine %s, %d runs of each, seeds from %d: %s\n%s\n", r.Engine, r.Runs, r.Seed, r.Load, c.Note); err != nil {
		return err
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", c.Versus); err != nil {
		return err
	}
	head = []string{"AGAINST"}
	for _, k := range c.judged() {
		head = append(head, k.Head)
	}
	return out.Table(w, head, r.differenceRows())
}

// differenceRows have a row for each of the others.
func (r *Report) differenceRows() (rows [][]string) {
	for _, v := range r.Variants[1:] {
		row := []string{v.Name}
		for _, k := range r.comparison.judged() {
			i := slices.IndexFunc(r.Differences, func(d Difference) bool { return d.Against == v.Name && d.Figure == k.Figure })
			row = append(row, r.Differences[i].text(&k))
		}
		rows = append(rows, row)
	}
	return rows
}

// text is the verdict, what the figure's own bounds say where that differs, and the difference.
func (d *Difference) text(c *Column) string {
	if d.Behind.Runs == 0 {
		return "-"
	}
	verdict := string(d.Verdict)
	if d.Alone != d.Verdict {
		verdict += fmt.Sprintf(" (%s alone)", d.Alone)
	}
	return verdict + " " + c.text(d.Behind)
}

// text is a figure in the column's unit, with half the width of its bounds.
func (c *Column) text(f Bounded) string {
	text := fmt.Sprintf("%.*f", c.Digits, c.Scale*f.Mean)
	if f.Low != nil {
		text += fmt.Sprintf(" ± %.*f", c.Digits, c.Scale*(*f.High-*f.Low)/2)
	}
	return text
}

// Behind returns an error where the first variant, which is called ours, is behind in figures that decide.
func (r *Report) Behind(ours string, decides func(figure string) bool) error {
	var short []string
	for _, d := range r.Differences {
		if d.Verdict == arbitration.Behind && decides(d.Figure) {
			short = append(short, d.Figure+" of "+d.Against)
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: ours + " is behind in " + strings.Join(short, ", "),
		Hint: "see jobs.csv in the folder of --out; other load on this machine can distort the results",
	}
}

// Number is a number as the files have it.
func Number(x float64) string { return strconv.FormatFloat(x, 'g', 8, 64) }

// FiguresCSV has a row for each run and figure.
func (r *Report) FiguresCSV(w io.Writer) error {
	rows := [][]string{{"run", "variant", "figure", "value"}}
	for i := range r.results {
		x := &r.results[i]
		for _, name := range slices.Sorted(maps.Keys(x.Figures)) {
			rows = append(rows, []string{strconv.Itoa(x.Run + 1), x.Variant, name, Number(x.Figures[name])})
		}
	}
	return papers.WriteCSV(w, rows)
}

// Axis is a figure of a plot, in words.
type Axis struct{ Figure, Says string }

// Draw draws one figure over another, a dot for each run.
func (r *Report) Draw(w io.Writer, title string, x, y Axis) error {
	c := chart.New(title, x.Says, y.Says)
	for i, v := range r.Variants {
		var at []plotter.XY
		for k := range r.results {
			f := r.results[k].Figures
			over, known := f[x.Figure]
			value, too := f[y.Figure]
			if r.results[k].Variant == v.Name && known && too {
				at = append(at, plotter.XY{X: over, Y: value})
			}
		}
		if len(at) == 0 {
			continue
		}
		style := draw.GlyphStyle{Color: dots(i), Radius: vg.Points(3.5), Shape: draw.SquareGlyph{}}
		if i == 0 {
			style.Shape = draw.CircleGlyph{}
		}
		if err := c.Dots(at, func(int) draw.GlyphStyle { return style }); err != nil {
			return err
		}
		// A line of no length lends its colour to the name.
		if err := c.Line(chart.Series{Name: v.Name, Points: at[:1], Colour: style.Color, Width: 4}); err != nil {
			return err
		}
	}
	return chart.Save(c, w)
}

// dots is the colour of the i-th variant's dots.
func dots(i int) color.Color {
	all := []color.Color{chart.Blue, chart.Orange, chart.Red, chart.Grey}
	return all[i%len(all)]
}
