package report

import (
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"headroom/internal/cli"
	"headroom/lab/chart"
)

// Variant is one way to decide.
type Variant struct{ Name, Says string }

// Run is the result of one run of a variant.
type Run struct {
	Variant string
	// Run counts from 0; runs of the same number are compared with each other.
	Run     int
	Figures map[string]float64
}

// Column is a figure as tables show and judge it.
type Column struct {
	Head, Figure string
	// Scale turns the figure into the column's unit.
	Scale  float64
	Digits int
	// Sign is -1 if more is better, 1 if less is better; 0 if neither is judged.
	Sign float64
	// Slack is the difference that counts as level; Relative: as a part of the other's mean.
	Slack    float64
	Relative bool
}

// Standing is how one variant stands against another in a figure.
type Standing string

// The standings. Unknown: too few runs have the figure.
const (
	Ahead   Standing = "ahead"
	Level   Standing = "level"
	Behind  Standing = "behind"
	Unknown Standing = "unknown"
)

// Verdict is the standing as a verdict.
func (s Standing) Verdict() Verdict {
	return map[Standing]Verdict{Ahead: Met, Level: Order, Behind: Short, Unknown: TooFew}[s]
}

// Paired is how ours stands against theirs in one figure.
type Paired struct {
	// Behind is by how much ours is worse, run by run, with bounds of its own; below 0: better.
	Behind Stat
	// AtOnce is the verdict by bounds that hold for all figures of a comparison at once (Bonferroni),
	// Alone by the bounds of this figure, which of 20 level figures calls one ahead or behind by
	// chance.
	AtOnce, Alone Standing
	// More is how many more pairs of runs would decide if they were like these; 0 if AtOnce is ahead
	// or behind already, or if no number up to pairsMost would.
	More int
}

const (
	pairsLeast = 2
	pairsMost  = 1000
)

// Compare compares ours with theirs in one of so many figures, run by run. Both have the same runs.
func (c *Column) Compare(ours, theirs []float64, figures int) Paired {
	p := Paired{AtOnce: Unknown, Alone: Unknown}
	each := make([]float64, min(len(ours), len(theirs)))
	for i := range each {
		each[i] = (ours[i] - theirs[i]) * map[bool]float64{true: -1, false: 1}[c.Sign < 0]
	}
	p.Behind = Of(each)
	if len(each) < pairsLeast || len(ours) != len(theirs) {
		p.More = pairsLeast
		return p
	}
	slack, confidence := c.Slack, 1-(1-Confidence)/float64(figures)
	if c.Relative {
		mean, _ := moments(theirs)
		slack *= mean
	}
	p.Alone = standing(p.Behind, slack)
	if p.AtOnce = standing(Within(each, confidence), slack); p.AtOnce == Level {
		p.More = more(each, slack, confidence)
	}
	return p
}

// more is how many more pairs would show the mean of these to lie beyond the slack; 0 if none up to pairsMost would.
func more(each []float64, slack, confidence float64) int {
	mean, squares := moments(each)
	deviation := math.Sqrt(squares / float64(len(each)-1))
	for n := len(each) + 1; n <= pairsMost; n++ {
		if student(float64(n-1), confidence)*deviation/math.Sqrt(float64(n)) < math.Abs(mean)-slack {
			return n - len(each)
		}
	}
	return 0
}

// standing is the standing by a difference with such bounds.
func standing(f Stat, slack float64) Standing {
	switch {
	case f.Low > slack:
		return Behind
	case f.High < -slack:
		return Ahead
	}
	return Level
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

// Bounded is the mean of a figure over the runs with its bounds, which are absent after a single run.
type Bounded struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Runs is the number of runs that yielded it.
	Runs int `json:"runs"`
}

func bounded(f Stat, runs int) Bounded {
	b := Bounded{Mean: f.Mean, Runs: runs}
	if runs > 1 {
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
	Verdict Standing `json:"verdict"`
	Alone   Standing `json:"alone"`
	// More is how many more pairs of runs would decide; 0: decided, or no number would.
	More int `json:"more_runs"`
}

// Summary is the result of all runs of a comparison.
type Summary struct {
	Engine      string       `json:"engine"`
	Seed        uint64       `json:"seed"`
	Runs        int          `json:"runs"`
	Load        string       `json:"load"`
	Variants    []Shown      `json:"variants"`
	Differences []Difference `json:"differences"`

	comparison *Comparison
	results    []Run
}

// Summary compares the variants by all runs.
func (c *Comparison) Summary(results []Run) *Summary {
	r := &Summary{Engine: c.Engine, Seed: c.Seed, Load: c.Load, comparison: c, results: results}
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
			s.Figures[name] = bounded(Of(values), len(values))
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

// judged are the columns in which the first variant is compared with the others.
func (c *Comparison) judged() []Column {
	return slices.DeleteFunc(slices.Clone(c.Columns), func(k Column) bool { return k.Sign == 0 })
}

// difference compares the first variant with another in a figure, over the runs of which it is known of both.
func (r *Summary) difference(against string, c *Column) Difference {
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
	var mine, theirs []float64
	for _, run := range slices.Sorted(maps.Keys(of)) {
		x, known := of[run][variants[0].Name]
		y, too := of[run][against]
		if known && too {
			mine, theirs = append(mine, x), append(theirs, y)
		}
	}
	found := c.Compare(mine, theirs, len(r.comparison.judged())*(len(variants)-1))
	return Difference{against, c.Figure, bounded(found.Behind, len(mine)), found.AtOnce, found.Alone, found.More}
}

// Print writes the summary as JSON, or as two tables. full is what JSON has: the summary, or what embeds it.
func (r *Summary) Print(w io.Writer, out *cli.Output, full any) error {
	if out.IsJSON() {
		return out.JSON(w, full)
	}
	head, rows := r.table()
	if out.Format == "csv" || out.Format == "name" {
		return out.Table(w, head, rows)
	}
	c := r.comparison
	if _, err := fmt.Fprintf(w, "engine %s, %d runs of each, seeds from %d: %s\n%s\n", r.Engine, r.Runs, r.Seed, r.Load, c.Note); err != nil {
		return err
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", c.Versus); err != nil {
		return err
	}
	head, rows = r.differences()
	return out.Table(w, head, rows)
}

// table has a row for each variant.
func (r *Summary) table() (head []string, rows [][]string) {
	head = []string{"VARIANT"}
	for _, k := range r.comparison.Columns {
		head = append(head, k.Head)
	}
	for _, v := range r.Variants {
		row := []string{v.Name}
		for _, k := range r.comparison.Columns {
			cell := "-"
			if f, known := v.Figures[k.Figure]; known {
				cell = k.text(f)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return head, rows
}

// differences has a row for each of the other variants.
func (r *Summary) differences() (head []string, rows [][]string) {
	head = []string{"AGAINST"}
	for _, k := range r.comparison.judged() {
		head = append(head, k.Head)
	}
	for _, v := range r.Variants[1:] {
		row := []string{v.Name}
		for _, k := range r.comparison.judged() {
			i := slices.IndexFunc(r.Differences, func(d Difference) bool { return d.Against == v.Name && d.Figure == k.Figure })
			row = append(row, r.Differences[i].text(&k))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// text is the verdict, that of the figure's own bounds if it differs, and the difference.
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
	if f.Low == nil {
		return fmt.Sprintf("%.*f", c.Digits, c.Scale*f.Mean)
	}
	return Stat{Mean: f.Mean, Low: *f.Low, High: *f.High}.text(c.Scale, c.Digits)
}

// Text is a stat in the column's unit; - if it is unknown.
func (c *Column) Text(s Stat) string {
	if !s.Known {
		return "-"
	}
	return s.text(c.Scale, c.Digits)
}

// Behind returns an error if the first variant, which is called ours, is behind in figures that decide.
func (r *Summary) Behind(ours string, decides func(figure string) bool) error {
	var short []string
	for _, d := range r.Differences {
		if d.Verdict == Behind && decides(d.Figure) {
			short = append(short, d.Figure+" of "+d.Against)
		}
	}
	return shortfall(ours+" is behind", short, "other load on this machine can distort the results; repeat on an idle one")
}

// Rows are both tables for a page of docs: the figures of each variant, and the differences.
func (r *Summary) Rows() (figures, differences [][]string) {
	head, rows := r.table()
	figures = append([][]string{head}, rows...)
	head, rows = r.differences()
	return figures, append([][]string{head}, rows...)
}

// FiguresCSV has a row for each run and figure.
func (r *Summary) FiguresCSV(w io.Writer) error {
	rows := [][]string{{"run", "variant", "figure", "value"}}
	for i := range r.results {
		x := &r.results[i]
		for _, name := range slices.Sorted(maps.Keys(x.Figures)) {
			rows = append(rows, []string{strconv.Itoa(x.Run + 1), x.Variant, name, strconv.FormatFloat(x.Figures[name], 'g', 8, 64)})
		}
	}
	return CSV(w, rows)
}

// Axis is a figure of a plot, in words.
type Axis struct{ Figure, Says string }

// Draw draws one figure over another, a dot for each run.
func (r *Summary) Draw(w io.Writer, title string, x, y Axis) error {
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
		colours := []color.Color{chart.Blue, chart.Orange, chart.Red, chart.Grey}
		var shape draw.GlyphDrawer = draw.SquareGlyph{}
		if i == 0 {
			shape = draw.CircleGlyph{}
		}
		if err := dots(c, v.Name, at, colours[i%len(colours)], shape); err != nil {
			return err
		}
	}
	return chart.Save(c, w)
}
