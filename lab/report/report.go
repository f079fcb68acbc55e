package report

import (
	"encoding/csv"
	"fmt"
	"image/color"
	"io"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"headroom/internal/cli"
	"headroom/lab/chart"
)

// Report has the targets of a study.
type Report struct {
	Paper   string   `json:"paper"`
	Seed    uint64   `json:"seed"`
	Targets []Target `json:"targets"`
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

// Files are the targets as a table for programs, as a table for a page of docs, and as a plot.
func (r *Report) Files() Files {
	return Files{
		"targets.csv": func(w io.Writer) error { return csv.NewWriter(w).WriteAll(r.csv()) },
		"targets.md": func(w io.Writer) error {
			return Markdown(w, append([][]string{{"target", "quantity", "paper", "got", "bounds", "oracle", "verdict", "note"}}, r.rows()...))
		},
		"targets.svg": r.draw,
	}
}

func (r *Report) csv() [][]string {
	rows := [][]string{{"target", "what", "unit", "paper", "got", "low", "high", "oracle", "verdict", "note"}}
	for i := range r.Targets {
		t := &r.Targets[i]
		row := []string{t.ID, t.What, t.Unit}
		for _, v := range []*float64{t.Paper, t.Got, t.Low, t.High, t.Oracle} {
			cell := "" // unknown
			if v != nil {
				cell = strconv.FormatFloat(*v, 'f', 5, 64)
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, string(t.Verdict), t.Note))
	}
	return rows
}

// draw has each measured value over the paper's number, with its bounds; 1 is the paper's.
func (r *Report) draw(w io.Writer) error {
	c := chart.New(r.Paper+": measured over the paper's number", "", "")
	var names []string
	at := map[Verdict][]plotter.XY{}
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Paper == nil || t.Got == nil || *t.Paper == 0 {
			continue
		}
		x := float64(len(names))
		names = append(names, t.ID)
		at[t.Verdict] = append(at[t.Verdict], plotter.XY{X: x, Y: *t.Got / *t.Paper})
		if err := c.Line(chart.Series{Points: []plotter.XY{{X: x, Y: *t.Low / *t.Paper}, {X: x, Y: *t.High / *t.Paper}}, Colour: chart.Grey}); err != nil {
			return err
		}
	}
	for i, v := range []Verdict{Met, Order, Short} {
		if err := dots(c, string(v), at[v], []color.Color{chart.Blue, chart.Orange, chart.Red}[i]); err != nil {
			return err
		}
	}
	c.NominalX(names...)
	c.X.Tick.Label.Rotation = 1
	c.X.Tick.Label.XAlign = draw.XRight
	return chart.Save(c, w)
}

// dots draws points of one colour, with a name beside the plot.
func dots(c *chart.Plot, name string, at []plotter.XY, colour color.Color) error {
	if len(at) == 0 {
		return nil
	}
	if err := c.Dots(at, func(int) draw.GlyphStyle {
		return draw.GlyphStyle{Color: colour, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
	}); err != nil {
		return err
	}
	// A line of no length lends its colour to the name.
	return c.Line(chart.Series{Name: name, Points: at[:1], Colour: colour, Width: 4})
}
