package record

import (
	"bytes"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
	"headroom/units"
)

// maxPoints bounds the looks of a picture; more are indistinguishable.
const maxPoints = 800

// maxNames bounds the names beside a panel.
const maxNames = 9

// line is one line of a panel.
type line struct {
	name   string
	colour color.Color
	dashes []float64
	values []float64 // a NaN is a gap
}

// panel is one diagram.
type panel struct {
	title, unit string
	lines       []line
	steps       bool    // a value stands until the next
	atMost      float64 // the scale reaches at least so far
}

// draw is the picture of all looks so far.
func draw(looks []look) ([]byte, error) {
	looks = thinned(looks)
	var strips []*chart.Plot
	for _, p := range append([]panel{powerPanel(looks)}, jobPanels(looks)...) {
		strip, err := p.draw(looks)
		if err != nil {
			return nil, err
		}
		strips = append(strips, strip)
	}
	var b bytes.Buffer
	err := chart.SaveStrips(strips, &b)
	return b.Bytes(), err
}

func (c panel) draw(looks []look) (*chart.Plot, error) {
	p := chart.New(c.title, "time (s)", c.unit)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, max(1, c.atMost)
	if n := len(looks); n > 0 {
		p.X.Max = max(1, looks[n-1].at.Seconds())
	}
	named := 0
	for _, l := range c.lines {
		s := chart.Series{Colour: l.colour, Dashes: l.dashes, Steps: c.steps}
		if named < maxNames {
			s.Name = short(l.name)
		}
		for i, v := range l.values {
			s.Points = append(s.Points, plotter.XY{X: looks[i].at.Seconds(), Y: v})
		}
		if err := p.Line(s); err != nil {
			return nil, err
		}
		if l.name == "" {
			continue
		}
		if named++; named == maxNames+1 {
			p.Name("and more")
		}
	}
	return p, nil
}

// thinned are at most maxPoints looks, the first and the last among them.
func thinned(looks []look) []look {
	if len(looks) <= maxPoints {
		return looks
	}
	out := make([]look, 0, maxPoints)
	for i := range maxPoints {
		out = append(out, looks[i*(len(looks)-1)/(maxPoints-1)])
	}
	return out
}

// powerPanel is what the whole cluster may draw and draws, and what its nodes hold.
func powerPanel(looks []look) panel {
	of := func(f func(domainLook) *units.Power) []float64 {
		return each(looks, func(l look) *float64 {
			for _, d := range l.domains {
				if p := f(d); d.root && p != nil {
					return new(p.Watts())
				}
			}
			return nil
		})
	}
	sum := func(f func(nodeLook) *units.Power) []float64 {
		return each(looks, func(l look) *float64 {
			sum := 0.0
			for _, n := range l.nodes {
				p := f(n)
				if p == nil {
					return nil
				}
				sum += p.Watts()
			}
			if len(l.nodes) == 0 {
				return nil
			}
			return &sum
		})
	}
	return panel{title: "power of the cluster", unit: "power (W)", steps: true, lines: []line{
		{"budget", chart.Black, nil, of(func(d domainLook) *units.Power { return &d.budget })},
		{"reserved", chart.Orange, nil, of(func(d domainLook) *units.Power { return &d.reserved })},
		{"caps", chart.Green, []float64{2, 4}, sum(func(n nodeLook) *units.Power { return &n.cap })},
		{"nodes draw", chart.Blue, nil, sum(func(n nodeLook) *units.Power { return n.power })},
	}}
}

// jobPanels are the containers, the progress and the ends of each job, beside when it would end without a cap.
func jobPanels(looks []look) []panel {
	containers := ofJobs(looks, func(j jobLook) *float64 {
		if j.containers == nil {
			return nil
		}
		return new(float64(*j.containers))
	})
	progress := ofJobs(looks, func(j jobLook) *float64 {
		if x := j.progress(); x != nil {
			return new(100 * *x)
		}
		return nil
	})
	ends := ofJobs(looks, func(j jobLook) *float64 { return j.finish })
	for _, l := range ofJobs(looks, func(j jobLook) *float64 { return j.uncapped }) {
		l.name, l.dashes = "", []float64{3, 4}
		ends = append(ends, l)
	}
	return []panel{
		{title: "containers that each job holds", unit: "containers", steps: true, lines: containers},
		{title: "map tasks done or dropped", unit: "progress (%)", lines: progress, atMost: 100},
		{title: "predicted end after its start; dashed: without a cap", unit: "predicted end (s)", lines: ends},
	}
}

// ofJobs is a line for each job, in the order in which they were first seen.
func ofJobs(looks []look, f func(jobLook) *float64) []line {
	var ids []string
	for _, l := range looks {
		for _, j := range l.jobs {
			if !slices.Contains(ids, j.id) {
				ids = append(ids, j.id)
			}
		}
	}
	var out []line
	for i, id := range ids {
		out = append(out, line{id, chart.LineColours()[i%len(chart.LineColours())], nil, each(looks, func(l look) *float64 {
			for _, j := range l.jobs {
				if j.id == id {
					return f(j)
				}
			}
			return nil
		})})
	}
	return out
}

// each is a value for each look, NaN where it is unknown.
func each(looks []look, f func(look) *float64) []float64 {
	out := make([]float64, 0, len(looks))
	for _, l := range looks {
		x := f(l)
		if x == nil || math.IsInf(*x, 0) {
			x = new(math.NaN())
		}
		out = append(out, *x)
	}
	return out
}

// short is a name as long as the margin holds: the end of a job's id identifies more than its beginning.
func short(name string) string {
	const most = 16
	if r := []rune(name); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return name
}
