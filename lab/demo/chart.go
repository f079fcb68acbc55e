package demo

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
	"headroom/units"
)

// drawPower draws power.svg from the rows of power.csv and the events: measured stacked by node, under the
// lines of budget, reserved and held. What was not known is a gap.
func drawPower(samples []sample, events []event, nodes []string) ([]byte, error) {
	p := chart.New("Power under a budget that changes", "time (s)", "power at the wall (W)")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	for _, s := range samples {
		p.X.Max = max(p.X.Max, s.at.Seconds())
	}
	for i, name := range nodes {
		if err := p.Area("measured, "+name, below(samples, i), below(samples, i+1), blue(i, len(nodes))); err != nil {
			return nil, err
		}
	}
	for _, l := range []struct {
		of     func(sample) *units.Power
		series chart.Series
	}{
		{func(s sample) *units.Power { return &s.budget }, chart.Series{Name: "budget", Colour: chart.Black, Width: 2.8}},
		{func(s sample) *units.Power { return s.reserved }, chart.Series{Name: "reserved", Colour: chart.Orange, Width: 1.6}},
		{func(s sample) *units.Power { return s.held }, chart.Series{Name: "held by the nodes", Colour: chart.Green, Dashes: []float64{2, 4}}},
	} {
		for _, s := range samples {
			at := plotter.XY{X: s.at.Seconds(), Y: math.NaN()}
			if w := l.of(s); w != nil {
				at.Y = w.Watts()
			}
			l.series.Points = append(l.series.Points, at)
		}
		l.series.Steps = true // a sample stands until the next one
		if err := p.Line(l.series); err != nil {
			return nil, err
		}
	}
	p.Y.Max *= 1.05
	var marks []chart.Mark
	for _, e := range events {
		if e.what == eventShares || e.what == eventDrops {
			continue // they are frequent: the lines show them
		}
		marks = append(marks, chart.Mark{At: e.at.Seconds(), Name: e.what})
	}
	p.Marks(marks, p.X.Max, chart.Brown)
	var b bytes.Buffer
	err := chart.Save(p, &b)
	return b.Bytes(), err
}

// below is what the first n nodes draw together; a gap where one of them is unknown.
func below(samples []sample, n int) []plotter.XY {
	var out []plotter.XY
	for _, s := range samples {
		at := plotter.XY{X: s.at.Seconds()}
		if s.measured == nil {
			at.Y = math.NaN()
		} else {
			for _, w := range s.nodes[:n] {
				at.Y += w.Watts()
			}
		}
		out = append(out, at)
	}
	return out
}

// blue is the colour of node i of n, from dark to light.
func blue(i, n int) color.Color {
	part := 0.0
	if n > 1 {
		part = float64(i) / float64(n-1)
	}
	mix := func(from, to float64) uint8 { return uint8(from + (to-from)*part + 0.5) }
	return color.RGBA{mix(0x00, 0xa6), mix(0x72, 0xd8), mix(0xb2, 0xf5), 0xff}
}
