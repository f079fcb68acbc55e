package bench

import (
	"bytes"
	"math"

	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
)

// drawCurves is the picture: each law's wall power over the same steps of the cap.
func drawCurves(curves []curve) ([]byte, error) {
	low, high := math.Inf(1), 0.0
	for _, c := range curves {
		for i, w := range c.points {
			low, high = min(low, w, c.caps[i]), max(high, w, c.caps[i])
		}
	}
	var strips []*chart.Plot
	for _, c := range curves {
		p, err := c.draw()
		if err != nil {
			return nil, err
		}
		p.Y.Min, p.Y.Max = max(0, low*0.95), high*1.03
		strips = append(strips, p)
	}
	var b bytes.Buffer
	err := chart.SaveStrips(strips, &b)
	return b.Bytes(), err
}

// draw is one law: the cap, what is within the band of it, and the wall power.
func (c curve) draw() (*chart.Plot, error) {
	p := chart.New(c.law+": 50 ms means", "time (s)", "power (W)")
	var at, below, above, wall []plotter.XY
	for i, w := range c.points {
		x := float64(i) * judged.Seconds()
		if i > 0 && c.caps[i] != c.caps[i-1] { // a cap stands until the next
			before := c.caps[i-1]
			at, below, above = append(at, plotter.XY{X: x, Y: before}), append(below, plotter.XY{X: x, Y: before * (1 - band)}), append(above, plotter.XY{X: x, Y: before * (1 + band)})
		}
		at, wall = append(at, plotter.XY{X: x, Y: c.caps[i]}), append(wall, plotter.XY{X: x, Y: w})
		below, above = append(below, plotter.XY{X: x, Y: c.caps[i] * (1 - band)}), append(above, plotter.XY{X: x, Y: c.caps[i] * (1 + band)})
	}
	err := p.Area("within 2 % of it", below, above, chart.Faint(chart.Yellow, 0.5))
	if err == nil {
		err = p.Line(chart.Series{Name: "cap", Points: at, Colour: chart.Black})
	}
	if err == nil {
		err = p.Line(chart.Series{Name: "wall power", Points: wall, Colour: chart.Blue})
	}
	return p, err
}
