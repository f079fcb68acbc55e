package report

import (
	"image/color"
	"io"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"headroom/lab/chart"
)

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
