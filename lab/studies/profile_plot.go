package studies

import (
	"bytes"
	"image/color"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	glyph "gonum.org/v1/plot/vg/draw"

	"headroom/jobs/quality"
	"headroom/lab/chart"
)

// drawProfile is CAB's Fig. 1 for one job: accuracy over the part of the tasks that
// ran, its worst and best runs as a band.
func drawProfile(p *quality.Profile) ([]byte, error) {
	c := chart.New("Accuracy of "+p.Name+" by the part of its map tasks that ran", "part of the map tasks (%)", "accuracy (%)")
	c.X.Min, c.X.Max, c.Y.Min, c.Y.Max = 0, 100, 0, 100
	var mean, low, high, measured []plotter.XY
	for _, q := range curvePoints(p) {
		x := 100 * q.Fraction
		mean, low, high = append(mean, plotter.XY{X: x, Y: 100 * q.Accuracy}), append(low, plotter.XY{X: x, Y: 100 * q.Low}), append(high, plotter.XY{X: x, Y: 100 * q.High})
	}
	for _, q := range p.Points {
		measured = append(measured, plotter.XY{X: 100 * q.Fraction, Y: 100 * q.Accuracy})
	}
	err := c.Area("worst to best run", low, high, chart.Faint(chart.Sky, 0.35))
	if err == nil {
		err = c.Line(chart.Series{Name: "mean", Points: mean, Colour: chart.Blue, Width: 1.6})
	}
	if err == nil {
		err = c.Dots(measured, func(int) glyph.GlyphStyle { return dot(chart.Blue, 3) })
	}
	var b bytes.Buffer
	if err == nil {
		err = chart.Save(c, &b)
	}
	return b.Bytes(), err
}

// dot is a filled point.
func dot(c color.Color, radius float64) glyph.GlyphStyle {
	return glyph.GlyphStyle{Color: c, Radius: vg.Points(radius), Shape: glyph.CircleGlyph{}}
}

// curvePoints are the points with the exact result at the end.
func curvePoints(p *quality.Profile) []quality.Point {
	out := append([]quality.Point(nil), p.Points...)
	mean, low, high := p.Accuracy(1)
	if out[len(out)-1].Fraction < 1 {
		out = append(out, quality.Point{Fraction: 1, Accuracy: mean, Low: low, High: high, Runs: 1})
	}
	return out
}
