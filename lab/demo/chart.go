package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"

	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
	"headroom/units"
)

// picture draws power.svg from the rows of power.csv and the events: measured
// stacked by node, under the lines of budget, reserved and held. What was not
// known is a gap. With the looks at an engine it draws below it the containers of each
// queue with their shares, and the tasks that were dropped.
type picture struct {
	samples []sample
	events  []event
	nodes   []string
	looks   []look // nil without an engine
}

// chart writes power.svg.
func (d *show) chart() error {
	d.tracker.mu.Lock() // a program that is started again is noted at any time
	defer d.tracker.mu.Unlock()
	drawn, err := picture{d.tracker.samples, d.tracker.events, d.lab.nodes, d.looks.looks}.draw()
	if err == nil {
		err = os.WriteFile(d.lab.path("power.svg"), drawn, 0o644)
	}
	if err != nil {
		return fmt.Errorf("demo: power.svg: %w", err)
	}
	return nil
}

// draw is the whole picture.
func (c picture) draw() ([]byte, error) {
	var b bytes.Buffer
	if c.looks == nil {
		p, err := c.plot("Budget kept through a cut, a killed leader and a killed powerd")
		if err == nil {
			err = chart.Save(p, &b)
		}
		return b.Bytes(), err
	}
	power, err := c.plot("Budget, and what a real cluster does about it")
	if err != nil {
		return nil, err
	}
	queues, err := c.queues()
	if err != nil {
		return nil, err
	}
	drops := chart.New("", "time (s)", "tasks dropped")
	drops.Y.Min, drops.Y.Max = 0, 1
	var points []plotter.XY
	for _, l := range c.looks {
		points = append(points, plotter.XY{X: l.at.Seconds(), Y: float64(l.dropped)})
		drops.Y.Max = max(drops.Y.Max, 1.05*float64(l.dropped))
	}
	if err := drops.Line(chart.Series{Name: "dropped by all jobs", Points: points, Colour: chart.Red, Steps: true}); err != nil {
		return nil, err
	}
	err = chart.SaveStrips([]*chart.Plot{power, queues, drops}, &b)
	return b.Bytes(), err
}

// queues are the containers of each queue and, dashed, its share.
func (c picture) queues() (*chart.Plot, error) {
	p := chart.New("", "time (s)", "containers")
	p.Y.Min, p.Y.Max = 0, 1
	if len(c.looks) == 0 {
		return p, nil
	}
	names := slices.MaxFunc(c.looks, func(a, b look) int { return cmp.Compare(len(a.queues), len(b.queues)) }).queues
	for i, named := range names {
		var used, share []plotter.XY
		for _, l := range c.looks {
			u := plotter.XY{X: l.at.Seconds(), Y: math.NaN()}
			s := u
			if i < len(l.queues) {
				u.Y = float64(l.queues[i].used)
				p.Y.Max = max(p.Y.Max, 1.05*u.Y)
				if n := l.queues[i].share; n != nil {
					s.Y = float64(*n)
					p.Y.Max = max(p.Y.Max, 1.05*s.Y)
				}
			}
			used, share = append(used, u), append(share, s)
		}
		colour := chart.LineColours()[i%len(chart.LineColours())]
		if err := p.Line(chart.Series{Name: named.name + ", in use", Points: used, Colour: colour, Steps: true, Width: 1.8}); err != nil {
			return nil, err
		}
		if err := p.Line(chart.Series{Name: named.name + ", share", Points: share, Colour: colour, Steps: true, Dashes: []float64{3, 3}}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c picture) plot(title string) (*chart.Plot, error) {
	p := chart.New(title, "time (s)", "power at the wall (W)")
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
	for _, s := range c.samples {
		p.X.Max = max(p.X.Max, s.at.Seconds())
	}
	for i, name := range c.nodes {
		if err := p.Area("measured, "+name, c.below(i), c.below(i+1), blue(i, len(c.nodes))); err != nil {
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
		for _, s := range c.samples {
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
	for _, e := range c.events {
		if e.what == eventShares || e.what == eventDrops {
			continue // they are frequent: the lines show them
		}
		marks = append(marks, chart.Mark{At: e.at.Seconds(), Name: e.what})
	}
	p.Marks(marks, p.X.Max, chart.Brown)
	return p, nil
}

// below is what the first n nodes draw together; a gap where one of them is unknown.
func (c picture) below(n int) []plotter.XY {
	var out []plotter.XY
	for _, s := range c.samples {
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
