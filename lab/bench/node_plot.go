package bench

import (
	"bytes"
	"math"

	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
)

// curve is the first scene under one law.
type curve struct {
	law    string
	points []point
	caps   []float64 // next to each, W
}

// drawCurves writes a plot: each law's wall power over the same steps of the cap.
func drawCurves(path string, curves []curve) error {
	low, high := math.Inf(1), 0.0
	for _, c := range curves {
		for i, p := range c.points {
			low, high = min(low, p.wall, c.caps[i]), max(high, p.wall, c.caps[i])
		}
	}
	var strips []*chart.Plot
	for _, c := range curves {
		p := chart.New(c.law+": 50 ms means", "time (s)", "power (W)")
		cap, wall := chart.Series{Name: "cap", Colour: chart.Black, Steps: true}, chart.Series{Name: "wall power", Colour: chart.Blue}
		for i, at := range c.points {
			x := float64(i) * judged.Seconds()
			cap.Points, wall.Points = append(cap.Points, plotter.XY{X: x, Y: c.caps[i]}), append(wall.Points, plotter.XY{X: x, Y: at.wall})
		}
		for _, s := range []chart.Series{cap, wall} {
			if err := p.Line(s); err != nil {
				return err
			}
		}
		p.Y.Min, p.Y.Max = max(0, low*0.95), high*1.03
		strips = append(strips, p)
	}
	var b bytes.Buffer
	if err := chart.SaveStrips(strips, &b); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}
