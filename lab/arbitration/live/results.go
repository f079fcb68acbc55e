package live

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

// Figures that only real runs have.
const (
	speedUp     = "speed_up"
	sprintCount = "sprints"
)

// bounded is the mean of a figure over the runs, with the bounds that it lies within in 95 of 100 cases; they are absent
// after a single run.
type bounded struct {
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Runs is how many runs have shown it.
	Runs int `json:"runs"`
}

func boundedOf(each []float64) bounded {
	f := papers.Of(each)
	b := bounded{Mean: f.Mean, Runs: len(each)}
	if len(each) > 1 {
		b.Low, b.High = &f.Low, &f.High
	}
	return b
}

// shown is one variant's figures.
type shown struct {
	Name    string             `json:"name"`
	Says    string             `json:"says"`
	Figures map[string]bounded `json:"figures"`
}

// difference is by how much the arbiter is worse than another in a figure, run by run: below 0 it is better.
type difference struct {
	Against string  `json:"against"`
	Figure  string  `json:"figure"`
	Behind  bounded `json:"behind"`
	// Verdict is by bounds that hold for all figures at once, Alone by those of this one.
	Verdict arbitration.Standing `json:"verdict"`
	Alone   arbitration.Standing `json:"alone"`
}

// unknown is the verdict where too few runs have shown the figure.
const unknown arbitration.Standing = "unknown"

// report is what came of all runs.
type report struct {
	Engine      string       `json:"engine"`
	Seed        uint64       `json:"seed"`
	Runs        int          `json:"runs"`
	Load        string       `json:"load"`
	Variants    []shown      `json:"variants"`
	Differences []difference `json:"differences"`

	variants []variant
	results  []result
}

// column is a figure as tables show it.
type column struct {
	head, figure string
	scale        float64
	digits       int
	// sign is -1 where more is better, 1 where less is; 0 where neither is judged.
	sign float64
}

func columns() []column {
	return []column{
		{"URGENT", arbitration.UrgentMean, 1, 1, 1},
		{"P95", arbitration.UrgentP95, 1, 1, 1},
		{"MISSED", arbitration.UrgentMissed, 100, 1, 1},
		{"TOLERANT", arbitration.TolerantMean, 1, 1, 1},
		{"P95", arbitration.TolerantP95, 1, 1, 1},
		{"QUALITY", arbitration.TolerantQuality, 100, 1, -1},
		{"ENERGY", arbitration.EnergyJ, 1e-3, 1, 1},
		{"SPRINTS", arbitration.SprintJ, 1e-3, 1, 0},
		{"SPEED-UP", speedUp, 1, 2, 0},
		{"WEIGHTED", arbitration.WeightedS, 1, 2, 1},
	}
}

// reportOf sums the results of all runs up.
func reportOf(e *engine, seed uint64, load string, results []result) *report {
	r := &report{Engine: e.name, Seed: seed, Load: load, variants: e.variants, results: results}
	for _, v := range r.variants {
		s := shown{v.name, v.says, map[string]bounded{}}
		each := r.each(v.name)
		for name, values := range each {
			s.Figures[name] = boundedOf(values)
		}
		r.Runs = max(r.Runs, len(each[arbitration.WeightedS]))
		r.Variants = append(r.Variants, s)
	}
	for _, v := range r.variants[1:] {
		for _, c := range judged() {
			r.Differences = append(r.Differences, r.difference(v.name, &c))
		}
	}
	return r
}

// judged are the columns in which the arbiter is held against others.
func judged() []column {
	return slices.DeleteFunc(columns(), func(c column) bool { return c.sign == 0 })
}

// each returns the values of a variant's figures, by figure.
func (r *report) each(variant string) map[string][]float64 {
	out := map[string][]float64{}
	for i := range r.results {
		if r.results[i].variant == variant {
			for name, x := range r.results[i].figures {
				out[name] = append(out[name], x)
			}
		}
	}
	return out
}

// difference compares the arbiter with another in a figure, over the runs of which it is known of both.
func (r *report) difference(against string, c *column) difference {
	of := map[int]map[string]float64{}
	for i := range r.results {
		x := &r.results[i]
		if value, known := x.figures[c.figure]; known {
			if of[x.run] == nil {
				of[x.run] = map[string]float64{}
			}
			of[x.run][x.variant] = value
		}
	}
	var each, mine, theirs []float64
	for _, run := range slices.Sorted(maps.Keys(of)) {
		x, known := of[run][ours]
		y, too := of[run][against]
		if known && too {
			each, mine, theirs = append(each, c.sign*(x-y)), append(mine, x), append(theirs, y)
		}
	}
	d := difference{Against: against, Figure: c.figure, Verdict: unknown, Alone: unknown}
	if len(each) == 0 {
		return d
	}
	d.Behind = boundedOf(each)
	if found, known := arbitration.Compare(c.figure, mine, theirs, len(judged())*(len(r.variants)-1)); known {
		d.Verdict, d.Alone = found.AtOnce, found.Alone
	}
	return d
}

// text is the verdict, what the figure's own bounds say where that differs, and the difference.
func (d *difference) text(c *column) string {
	if d.Behind.Runs == 0 {
		return "-"
	}
	verdict := string(d.Verdict)
	if d.Alone != d.Verdict {
		verdict += fmt.Sprintf(" (%s alone)", d.Alone)
	}
	return verdict + " " + c.text(d.Behind)
}

// print writes the report as JSON, or as two tables.
func (r *report) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, r)
	}
	head, rows := []string{"VARIANT"}, [][]string{}
	for _, c := range columns() {
		head = append(head, c.head)
	}
	for _, v := range r.Variants {
		row := []string{v.Name}
		for _, c := range columns() {
			cell := "-"
			if f, known := v.Figures[c.figure]; known {
				cell = c.text(f)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	if out.Format == "csv" || out.Format == "name" {
		return out.Table(w, head, rows)
	}
	if _, err := fmt.Fprintf(w, "engine %s, %d runs of each, seeds from %d: %s\nlatencies in s, missed deadlines and quality in %%, energy and sprints in kJ; speed-up: tasks a second in sprints over those without\n",
		r.Engine, r.Runs, r.Seed, r.Load); err != nil {
		return err
	}
	if err := out.Table(w, head, rows); err != nil {
		return err
	}
	if _, err := fmt.Fprint(w, "\nthe arbiter against the others (how much worse it is, below 0 better, run by run; in the figure's unit above; verdicts\nby bounds that hold for all of these figures at once, and by a figure's own in brackets where they say something else):\n"); err != nil {
		return err
	}
	head = []string{"AGAINST"}
	for _, c := range judged() {
		head = append(head, c.head)
	}
	return out.Table(w, head, r.differenceRows())
}

// text is a figure in the column's unit, with half the width of its bounds.
func (c *column) text(f bounded) string {
	text := fmt.Sprintf("%.*f", c.digits, c.scale*f.Mean)
	if f.Low != nil {
		text += fmt.Sprintf(" ± %.*f", c.digits, c.scale*(*f.High-*f.Low)/2)
	}
	return text
}

// differenceRows have a row for each of the others.
func (r *report) differenceRows() (rows [][]string) {
	for _, v := range r.variants[1:] {
		row := []string{v.name}
		for _, c := range columns() {
			i := slices.IndexFunc(r.Differences, func(d difference) bool { return d.Against == v.name && d.Figure == c.figure })
			if i < 0 {
				continue
			}
			row = append(row, r.Differences[i].text(&c))
		}
		rows = append(rows, row)
	}
	return rows
}

// verdict is the error of an arbiter that is behind in what it works for: the objective and its urgent jobs. That it gives
// up tasks, and spends joules on sprints, is in the objective's price or its purpose.
func (r *report) verdict() error {
	var short []string
	for _, d := range r.Differences {
		if d.Verdict == arbitration.Behind && (d.Figure == arbitration.WeightedS || strings.HasPrefix(d.Figure, string(arbitration.Urgent))) {
			short = append(short, d.Figure+" of "+d.Against)
		}
	}
	if len(short) == 0 {
		return nil
	}
	return &cli.Error{
		Code: "short", Exit: cli.ExitDegraded, Message: "the arbiter is behind in " + strings.Join(short, ", "),
		Hint: "jobs.csv in the folder of --out has every job; a machine with other work to do disturbs such runs",
	}
}

// files are the tables and the plot.
func (r *report) files() papers.Files {
	return papers.Files{"figures.csv": r.figuresCSV, "jobs.csv": r.jobsCSV, "latency.svg": r.draw}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 8, 64) }

// figuresCSV has a row for each run and figure.
func (r *report) figuresCSV(w io.Writer) error {
	rows := [][]string{{"run", "variant", "figure", "value"}}
	for i := range r.results {
		x := &r.results[i]
		names := make([]string, 0, len(x.figures))
		for name := range x.figures {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			rows = append(rows, []string{strconv.Itoa(x.run + 1), x.variant, name, number(x.figures[name])})
		}
	}
	return papers.WriteCSV(w, rows)
}

// jobsCSV has a row for each job of each run.
func (r *report) jobsCSV(w io.Writer) error {
	rows := [][]string{{"run", "variant", "job", "stream", "class", "arrival_s", "latency_s", "deadline_s", "tasks", "done", "sprinted"}}
	for i := range r.results {
		x := &r.results[i]
		for k := range x.jobs {
			s, deadline := &x.watch.served[k], ""
			if s.Deadline > 0 {
				deadline = number(s.Deadline.Seconds())
			}
			rows = append(rows, []string{
				strconv.Itoa(x.run + 1), x.variant, strconv.Itoa(k), x.jobs[k].stream, string(s.Class), number(s.Arrival.Seconds()), number(s.Took.Seconds()),
				deadline, strconv.Itoa(s.Tasks), strconv.Itoa(s.Done), strconv.FormatBool(x.watch.sprinted[k]),
			})
		}
	}
	return papers.WriteCSV(w, rows)
}

// draw draws the mean latencies of both classes, a dot for each run.
func (r *report) draw(w io.Writer) error {
	c := chart.New("Engine "+r.Engine+": latencies, a dot for each run", "mean latency of tolerant jobs (s)", "mean latency of urgent jobs (s)")
	for i, v := range r.variants {
		var at []plotter.XY
		for k := range r.results {
			x := &r.results[k]
			if x.variant == v.name {
				at = append(at, plotter.XY{X: x.figures[arbitration.TolerantMean], Y: x.figures[arbitration.UrgentMean]})
			}
		}
		if len(at) == 0 {
			continue
		}
		style := draw.GlyphStyle{Color: []color.Color{chart.Blue, chart.Orange, chart.Red}[i], Radius: vg.Points(3.5), Shape: draw.SquareGlyph{}}
		if v.name == ours {
			style.Shape = draw.CircleGlyph{}
		}
		if err := c.Dots(at, func(int) draw.GlyphStyle { return style }); err != nil {
			return err
		}
		// A line of no length lends its colour to the name.
		if err := c.Line(chart.Series{Name: v.name, Points: at[:1], Colour: style.Color, Width: 4}); err != nil {
			return err
		}
	}
	return chart.Save(c, w)
}
