package studies

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	glyph "gonum.org/v1/plot/vg/draw"

	"headroom/internal/cli"
	"headroom/lab/chart"
)

// print is the answer as JSON, or as tables with a line on what binds or is missed.
func (d *deflated) print(w io.Writer, out *cli.Output) error {
	if out.IsJSON() {
		return out.JSON(w, d)
	}
	point, name := d.Chosen, "chosen"
	if point == nil {
		point, name = d.Nearest, "nearest"
	}
	if point == nil {
		point, name = d.Beyond, "beyond the bounds on the error"
	}
	if point != nil {
		if err := out.Table(w, []string{"CLASS", "THETA", "SPRINTS AFTER", "ERROR", "MEAN", "P95", "SERVICE", "SPRINTING", "GRANTED"}, point.rows()); err != nil {
			return err
		}
	}
	if out.Format != "table" && out.Format != "wide" {
		return nil
	}
	_, err := io.WriteString(w, d.words(point, name))
	return err
}

func (p *deflatedPoint) rows() [][]string {
	rows := make([][]string, 0, len(p.Classes))
	for _, c := range p.Classes {
		rows = append(rows, []string{
			c.Name, fmt.Sprintf("%.3g", c.Theta), afterOrNever(c.After), fmt.Sprintf("%.1f %%", 100*c.Error),
			after(c.Mean), after(c.P95), after(c.Service), cli.Percent(c.Sprinting), cli.Opt(c.Granted, cli.Percent),
		})
	}
	return rows
}

func after(v float64) string { return fmt.Sprintf("%.1f s", v) }

// afterOrNever is a sprint timeout: null is never.
func afterOrNever(v *float64) string {
	if v == nil {
		return "never"
	}
	return after(*v)
}

// words say what the table shows, and why it is no better.
func (d *deflated) words(point *deflatedPoint, name string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	if d.Overload != nil {
		line("overload   load %.3f without dropping and sprints, %.3f with all that the bounds on the error permit", d.Overload.Plain, d.Overload.Least)
	}
	if point == nil {
		line("infeasible  no setting makes the load bearable; take jobs away, or give slots")
		return b.String()
	}
	line("%s  error %.2f %%, latency %s, power %.1f W, load %.3f", name, 100*point.Error, cli.Opt(point.Latency, after), point.Power, point.Load)
	if !d.Feasible {
		line("infeasible  no setting keeps all bounds")
	}
	for _, m := range point.Missed {
		line("missed     %s", m.words())
	}
	if d.Nearest != nil && d.Beyond != nil {
		for _, m := range d.Beyond.Missed {
			line("or         keep the others and miss %s", m.words())
		}
	}
	for _, bind := range d.Binding {
		line("binds      %s", bind.words())
	}
	line("searched   %d settings, %d asked of the model, in %.2f s; %d on the frontier", d.Settings, d.Calls, d.Solve, len(d.Frontier))
	if !d.Complete {
		line("incomplete  the search ended at its bound on the model's calls; name fewer thetas or timeouts")
	}
	return b.String()
}

func (m deflatedMissed) words() string {
	if m.What == "error" {
		return fmt.Sprintf("%s of %s: %.1f %%, bound %.1f %%", m.What, m.Class, 100*m.Value, 100*m.Bound)
	}
	return fmt.Sprintf("%s of %s: %.1f s, bound %.1f s", m.What, m.Class, m.Value, m.Bound)
}

func (b deflatedBinding) words() string {
	what := "the load would be " + fmt.Sprintf("%.3f", b.Load)
	if len(b.Missed) > 0 {
		var all []string
		for _, m := range b.Missed {
			all = append(all, m.words())
		}
		what = strings.Join(all, "; ")
	}
	if b.Knob == "theta" {
		return fmt.Sprintf("%s dropping %.3g instead of %.3g would miss %s", b.Class, deref(b.To), deref(b.From), what)
	}
	return fmt.Sprintf("%s sprinting after %s instead of %s would miss %s", b.Class, afterOrNever(b.To), afterOrNever(b.From), what)
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// drawFrontier is the frontier: error against latency, darker where more power is drawn, with
// what was chosen, or is nearest, in a ring that says its knobs.
func drawFrontier(d *deflated) ([]byte, error) {
	ring, why := d.Chosen, "chosen: "
	if ring == nil {
		ring, why = d.Nearest, "nearest: "
	}
	powerMost := 1.0
	var points []plotter.XY
	for _, p := range d.Frontier {
		points, powerMost = append(points, p.at()), max(powerMost, p.Power)
	}
	c := chart.New(fmt.Sprintf("Settings that no other beats; darker: up to %.1f W", powerMost), "error (%), mean of the classes by weight", "mean latency (s)")
	c.X.Min, c.X.Max, c.Y.Min, c.Y.Max = 0, 1, 0, 1
	err := c.Dots(points, func(i int) glyph.GlyphStyle {
		return dot(chart.Faint(chart.Blue, max(0.1, d.Frontier[i].Power/powerMost)), 3)
	})
	if err == nil && ring != nil {
		c.Title.Text += "\n" + why + strings.ReplaceAll(ring.words(), "; ", "\n")
		err = c.Dots([]plotter.XY{ring.at()}, func(int) glyph.GlyphStyle {
			return glyph.GlyphStyle{Color: chart.Red, Radius: vg.Points(6), Shape: glyph.RingGlyph{}}
		})
	}
	var b bytes.Buffer
	if err == nil {
		err = chart.Save(c, &b)
	}
	return b.Bytes(), err
}

// at is where the point stands in the picture.
func (p *deflatedPoint) at() plotter.XY { return plotter.XY{X: 100 * p.Error, Y: deref(p.Latency)} }

// words are the point's knobs, class by class.
func (p *deflatedPoint) words() string {
	var all []string
	for _, c := range p.Classes {
		all = append(all, fmt.Sprintf("%s: theta %.3g, sprint after %s, mean %.1f s", c.Name, c.Theta, afterOrNever(c.After), c.Mean))
	}
	return strings.Join(all, "; ") + fmt.Sprintf("; %.1f W", p.Power)
}
