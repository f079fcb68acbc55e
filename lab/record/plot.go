package record

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"headroom/units"
)

// The picture's frame, in pixels: panels below each other over the same time.
const (
	plotWidth             = 960
	plotLeft, plotRight   = 64, 150 // names of lines stand at the right
	plotTop, panelGap     = 30, 40
	panelHeight           = 150
	plotBottom            = 34
	legendLine            = 14
	maxPoints             = 800 // of a line; more are not told apart
	maxNames              = 9   // of a panel's legend
	textColour, gridLines = "#333333", "#e4e4e4"
)

// lineColours are those of Okabe and Ito, told apart by everybody.
func lineColours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a3b00", "#000000"}
}

// series is one line of a panel; a NaN is a gap.
type series struct {
	name, colour, dash string
	values             []float64
}

// panel is one diagram.
type panel struct {
	title  string
	lines  []series
	steps  bool    // a value stands until the next
	atMost float64 // the scale reaches at least so far
}

// picture draws looks.
type picture struct {
	bytes.Buffer

	times []float64
	span  float64
}

// draw is the picture of all looks so far.
func draw(looks []look) []byte {
	looks = thinned(looks)
	p := &picture{span: 1}
	for _, l := range looks {
		p.times = append(p.times, l.at.Seconds())
		p.span = max(p.span, l.at.Seconds())
	}
	panels := []panel{powerPanel(looks), containerPanel(looks), progressPanel(looks), endPanel(looks)}
	height := plotTop + len(panels)*(panelHeight+panelGap) + plotBottom - panelGap
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" role="img">`,
		plotWidth, height, plotWidth, height)
	p.put(`<title>Power, containers and progress of a running cluster</title>`)
	p.put(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, height)
	for i, x := range panels {
		p.panel(x, float64(plotTop+i*(panelHeight+panelGap)))
	}
	p.text(plotWidth-plotRight, float64(height-4), "end", "normal", textColour, "time (s)")
	p.put(`</svg>`)
	return p.Bytes()
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
	caps := each(looks, func(l look) *float64 {
		sum := 0.0
		for _, n := range l.nodes {
			sum += n.cap.Watts()
		}
		return known(sum, len(l.nodes) > 0)
	})
	nodes := each(looks, func(l look) *float64 {
		sum, all := 0.0, len(l.nodes) > 0
		for _, n := range l.nodes {
			if all = all && n.power != nil; all {
				sum += n.power.Watts()
			}
		}
		return known(sum, all)
	})
	return panel{title: "power (W)", steps: true, lines: []series{
		{"budget", "#000000", "", of(func(d domainLook) *units.Power { return &d.budget })},
		{"reserved", "#e69f00", "", of(func(d domainLook) *units.Power { return &d.reserved })},
		{"caps", "#009e73", "2 4", caps},
		{"nodes draw", "#0072b2", "", nodes},
	}}
}

func containerPanel(looks []look) panel {
	return panel{title: "containers that each job holds", steps: true, lines: ofJobs(looks, func(j jobLook) *float64 {
		if j.containers == nil {
			return nil
		}
		return new(float64(*j.containers))
	})}
}

func progressPanel(looks []look) panel {
	lines := ofJobs(looks, func(j jobLook) *float64 {
		if x := j.progress(); x != nil {
			return new(100 * *x)
		}
		return nil
	})
	return panel{title: "map tasks done or dropped (%)", lines: lines, atMost: 100}
}

// endPanel is when each job will end, beside when it would without a cap.
func endPanel(looks []look) panel {
	lines := ofJobs(looks, func(j jobLook) *float64 { return j.finish })
	without := ofJobs(looks, func(j jobLook) *float64 { return j.uncapped })
	for _, l := range without {
		l.name, l.dash = "", "3 4"
		lines = append(lines, l)
	}
	return panel{title: "predicted end, s after its start; dashed: without a cap", lines: lines}
}

// ofJobs is a line for each job, in the order in which they were first seen.
func ofJobs(looks []look, f func(jobLook) *float64) []series {
	var ids []string
	for _, l := range looks {
		for _, j := range l.jobs {
			if !slices.Contains(ids, j.id) {
				ids = append(ids, j.id)
			}
		}
	}
	var out []series
	for i, id := range ids {
		out = append(out, series{id, lineColours()[i%len(lineColours())], "", each(looks, func(l look) *float64 {
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

func known(x float64, is bool) *float64 {
	if !is {
		return nil
	}
	return &x
}

func (p *picture) put(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n", args...) }

func (p *picture) text(x, y float64, anchor, weight, colour, words string) {
	var safe strings.Builder
	_ = xml.EscapeText(&safe, []byte(words)) // a builder takes everything
	p.put(`<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s" fill="%s">%s</text>`, x, y, anchor, weight, colour, safe.String())
}

func (p *picture) x(at float64) float64 { return plotLeft + at/p.span*(plotWidth-plotLeft-plotRight) }

// panel draws one diagram with its top at top.
func (p *picture) panel(c panel, top float64) {
	high := c.atMost
	for _, l := range c.lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				high = max(high, v)
			}
		}
	}
	high = max(1, high*1.05)
	y := func(v float64) float64 { return top + panelHeight*(1-v/high) }
	p.text(plotLeft, top-8, "start", "bold", textColour, c.title)
	for step, v := niceStep(high, 5), 0.0; v <= high; v += step {
		p.put(`<path d="M%d %.1fH%d" stroke="%s"/>`, plotLeft, y(v), plotWidth-plotRight, gridLines)
		p.text(plotLeft-6, y(v)+4, "end", "normal", textColour, fmt.Sprintf("%.6g", v))
	}
	for step, at := niceStep(p.span, 8), 0.0; at <= p.span; at += step {
		p.put(`<path d="M%.1f %.1fv4" stroke="%s"/>`, p.x(at), top+panelHeight, textColour)
		p.text(p.x(at), top+panelHeight+16, "middle", "normal", textColour, fmt.Sprintf("%.6g", at))
	}
	named := 0
	for _, l := range c.lines {
		if d := p.path(l, c.steps, y); d != "" {
			p.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-dasharray="%s" stroke-linejoin="round"/>`, d, l.colour, l.dash)
		}
		if l.name == "" || named > maxNames {
			continue
		}
		name := l.name
		if named == maxNames {
			name = "and more"
		}
		p.text(plotWidth-plotRight+8, top+10+float64(named*legendLine), "start", "normal", l.colour, short(name))
		named++
	}
}

// path is the line with a gap where nothing is known.
func (p *picture) path(l series, steps bool, y func(float64) float64) string {
	var b strings.Builder
	gap := true
	for i, v := range l.values {
		switch {
		case math.IsNaN(v):
		case gap:
			fmt.Fprintf(&b, "M%.1f %.1fh0.5", p.x(p.times[i]), y(v))
		case steps:
			fmt.Fprintf(&b, "H%.1fV%.1f", p.x(p.times[i]), y(v))
		default:
			fmt.Fprintf(&b, "L%.1f %.1f", p.x(p.times[i]), y(v))
		}
		gap = math.IsNaN(v)
	}
	return b.String()
}

// short is a name as long as the margin holds: the end of a job's id tells more than its beginning.
func short(name string) string {
	const most = 17
	if r := []rune(name); len(r) > most {
		return "…" + string(r[len(r)-most+1:])
	}
	return name
}

// niceStep is 1, 2 or 5 times a power of ten, so that a span has about so many steps.
func niceStep(span float64, steps int) float64 {
	rough := span / float64(steps)
	unit := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, m := range []float64{1, 2, 5} {
		if rough <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

// replace puts a file in another's place, whole at every moment.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	_, err = f.Write(data)
	for _, step := range []func() error{f.Close, func() error { return os.Chmod(f.Name(), 0o644) }, func() error { return os.Rename(f.Name(), path) }} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		_, _ = f.Close(), os.Remove(f.Name())
		return fmt.Errorf("record: %w", err)
	}
	return nil
}
