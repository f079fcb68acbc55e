package demo

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"headroom/units"
)

// The chart's frame, in pixels.
const (
	chartWidth, plotHeight  = 960, 330
	marginLeft, marginRight = 64, 20
	marginTop, marginBottom = 34, 74
	labelRow                = 15 // height of a row of event labels
	labelLetter             = 6.6
)

// Colours by Okabe and Ito, told apart by everybody; measured runs from one
// blue to the next.
const (
	colourBudget   = "#000000"
	colourReserved = "#e69f00"
	colourHeld     = "#009e73"
	colourEvent    = "#8a3b00"
	colourGrid     = "#e4e4e4"
	colourText     = "#333333"
)

// chart draws power.svg from the rows of power.csv and the events: measured
// stacked by node, under the lines of budget, reserved and held. What was not
// known is a gap.
type chart struct {
	samples []sample
	events  []event
	nodes   []string

	top    float64 // of the plot, below the rows of labels
	spanX  float64 // seconds
	spanY  float64 // watts
	rows   []int   // row of each event's label, 0 nearest to the plot
	buffer bytes.Buffer
}

// chart writes power.svg.
func (d *show) chart() error {
	d.board.mu.Lock()
	defer d.board.mu.Unlock()
	c := chart{samples: d.board.samples, events: d.board.events, nodes: d.lab.nodes}
	if err := os.WriteFile(d.lab.path("power.svg"), c.draw(), 0o644); err != nil {
		return fmt.Errorf("demo: power.svg: %w", err)
	}
	return nil
}

// draw is the whole picture.
func (c *chart) draw() []byte {
	c.measure()
	height := c.top + plotHeight + marginBottom
	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" font-family="sans-serif" font-size="12" role="img">`,
		chartWidth, height, chartWidth, height)
	c.put(`<title>Power of %d nodes under a budget that is cut and raised</title>`, len(c.nodes))
	c.put(`<rect width="%d" height="%.0f" fill="#ffffff"/>`, chartWidth, height)
	c.text(marginLeft, 20, "start", "bold", colourText, "Budget kept through a cut, a killed leader and a killed powerd")
	c.axes()
	c.stack()
	c.line(func(s sample) *units.Power { return &s.budget }, colourBudget, 3.6, "")
	c.line(func(s sample) *units.Power { return s.reserved }, colourReserved, 2, "")
	c.line(func(s sample) *units.Power { return s.held }, colourHeld, 1.2, "2 6")
	c.marks()
	c.legend(height - 14)
	c.put(`</svg>`)
	return c.buffer.Bytes()
}

// measure finds the scales and the rows of the labels.
func (c *chart) measure() {
	c.spanX, c.spanY = 1, 1
	for _, s := range c.samples {
		c.spanX = math.Max(c.spanX, s.at.Seconds())
		for _, p := range []*units.Power{&s.budget, s.reserved, s.held, s.measured} {
			if p != nil {
				c.spanY = math.Max(c.spanY, p.Watts())
			}
		}
	}
	c.spanY *= 1.05
	c.rows = make([]int, len(c.events))
	most := 0
	for i := len(c.events) - 2; i >= 0; i-- {
		// A label stands right of its mark: beside the next mark there is room for
		// it only above the next one's own label.
		if end := c.x(c.events[i].at.Seconds()) + 8 + labelLetter*float64(len(c.events[i].what)); end > c.x(c.events[i+1].at.Seconds()) {
			c.rows[i] = c.rows[i+1] + 1
		}
		most = max(most, c.rows[i])
	}
	c.top = marginTop + float64(most+1)*labelRow
}

func (c *chart) x(seconds float64) float64 {
	return marginLeft + seconds/c.spanX*(chartWidth-marginLeft-marginRight)
}

func (c *chart) y(watts float64) float64 { return c.top + plotHeight*(1-watts/c.spanY) }

func (c *chart) put(format string, args ...any) { fmt.Fprintf(&c.buffer, format+"\n", args...) }

func (c *chart) text(x, y float64, anchor, weight, colour, text string) {
	c.put(`<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s" fill="%s">%s</text>`, x, y, anchor, weight, colour, escaped(text))
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder takes everything
	return b.String()
}

// axes draws the grid with its numbers and units.
func (c *chart) axes() {
	for w := 0.0; w <= c.spanY; w += niceStep(c.spanY, 6) {
		c.put(`<path d="M%d %.1fH%d" stroke="%s"/>`, marginLeft, c.y(w), chartWidth-marginRight, colourGrid)
		c.text(marginLeft-6, c.y(w)+4, "end", "normal", colourText, fmt.Sprintf("%.0f", w))
	}
	for t := 0.0; t <= c.spanX; t += niceStep(c.spanX, 12) {
		c.put(`<path d="M%.1f %.1fv5" stroke="%s"/>`, c.x(t), c.y(0), colourText)
		c.text(c.x(t), c.y(0)+18, "middle", "normal", colourText, fmt.Sprintf("%.0f", t))
	}
	c.text(chartWidth-marginRight, c.y(0)+34, "end", "normal", colourText, "time (s)")
	c.put(`<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle" fill="%s">power at the wall (W)</text>`, c.y(c.spanY/2), colourText)
	c.put(`<path d="M%d %.1fV%.1fH%d" fill="none" stroke="%s"/>`, marginLeft, c.top, c.y(0), chartWidth-marginRight, colourText)
}

// niceStep divides span into about n steps of 1, 2 or 5 times a power of ten.
func niceStep(span float64, n int) float64 {
	raw := span / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= raw {
			return m * unit
		}
	}
	return 10 * unit
}

// line draws one sum as steps: a sample stands until the next one.
func (c *chart) line(of func(sample) *units.Power, colour string, width float64, dash string) {
	var path strings.Builder
	drawing := false
	for _, s := range c.samples {
		p := of(s)
		switch {
		case p == nil:
			if drawing {
				fmt.Fprintf(&path, "H%.1f", c.x(s.at.Seconds()))
			}
		case drawing:
			fmt.Fprintf(&path, "H%.1fV%.1f", c.x(s.at.Seconds()), c.y(p.Watts()))
		default:
			fmt.Fprintf(&path, "M%.1f %.1f", c.x(s.at.Seconds()), c.y(p.Watts()))
		}
		drawing = p != nil
	}
	c.put(`<path d="%s" fill="none" stroke="%s" stroke-width="%.1f" stroke-dasharray="%s" stroke-linejoin="round"/>`, path.String(), colour, width, dash)
}

// stack draws what the nodes draw, one above the other.
func (c *chart) stack() {
	for n := range c.nodes {
		var path strings.Builder
		for start := 0; start < len(c.samples); {
			end := start
			for end < len(c.samples) && c.samples[end].measured != nil {
				end++
			}
			c.band(&path, c.samples[start:end], n)
			start = end + 1
		}
		c.put(`<path d="%s" fill="%s"/>`, path.String(), blue(n, len(c.nodes)))
	}
}

// band is the area of node n over samples in which all are known.
func (c *chart) band(path *strings.Builder, samples []sample, n int) {
	if len(samples) < 2 {
		return
	}
	step := "M"
	for _, s := range samples {
		fmt.Fprintf(path, "%s%.1f %.1f", step, c.x(s.at.Seconds()), c.y(below(s, n+1)))
		step = "L"
	}
	for _, s := range slices.Backward(samples) {
		fmt.Fprintf(path, "L%.1f %.1f", c.x(s.at.Seconds()), c.y(below(s, n)))
	}
	path.WriteString("Z")
}

// below is what the first n nodes draw together.
func below(s sample, n int) float64 {
	sum := 0.0
	for _, p := range s.nodes[:n] {
		sum += p.Watts()
	}
	return sum
}

// blue is the colour of node i of n, from dark to light.
func blue(i, n int) string {
	part := 0.0
	if n > 1 {
		part = float64(i) / float64(n-1)
	}
	mix := func(from, to float64) int { return int(from + (to-from)*part + 0.5) }
	return fmt.Sprintf("#%02x%02x%02x", mix(0x00, 0xa6), mix(0x72, 0xd8), mix(0xb2, 0xf5))
}

// marks draws the events: a line through the plot, and its name above it.
func (c *chart) marks() {
	for i, e := range c.events {
		x, y := c.x(e.at.Seconds()), c.top-4-float64(c.rows[i])*labelRow
		c.put(`<path d="M%.1f %.1fV%.1f" stroke="%s" stroke-dasharray="2 3"/>`, x, y-9, c.y(0), colourEvent)
		c.put(`<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, x, y-4, colourEvent)
		c.text(x+6, y, "start", "normal", colourEvent, e.what)
	}
}

func (c *chart) legend(y float64) {
	x := float64(marginLeft)
	entry := func(name, sample string) {
		c.put(sample, x, y-4)
		c.text(x+30, y, "start", "normal", colourText, name)
		x += 52 + labelLetter*float64(len(name))
	}
	stroke := `<path d="M%.1f %.1fh24" stroke="` + "%s" + `" stroke-width="%s" stroke-dasharray="%s"/>`
	for _, l := range [][4]string{
		{"budget", colourBudget, "3.6", ""}, {"reserved by the coordinators", colourReserved, "2", ""}, {"held by the nodes", colourHeld, "1.2", "2 6"},
	} {
		entry(l[0], fmt.Sprintf(strings.Replace(stroke, "%.1f %.1f", "%%.1f %%.1f", 1), l[1], l[2], l[3]))
	}
	c.put(`<g>`)
	for i := range c.nodes {
		w := 24.0 / float64(len(c.nodes))
		c.put(`<rect x="%.1f" y="%.1f" width="%.2f" height="10" fill="%s"/>`, x+float64(i)*w, y-9, w, blue(i, len(c.nodes)))
	}
	c.put(`</g>`)
	names := c.nodes[0]
	if n := len(c.nodes); n > 1 {
		names += " to " + c.nodes[n-1]
	}
	c.text(x+30, y, "start", "normal", colourText, "measured, "+names)
}
