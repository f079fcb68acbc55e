package studies

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"headroom/internal/cli"
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
// what was chosen, or is nearest, in a ring.
func drawFrontier(d *deflated) []byte {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	points := d.Frontier
	ring := d.Chosen
	if ring == nil {
		ring = d.Nearest
	}
	if ring != nil {
		points = append(slices.Clip(points), *ring)
	}
	var errorMost, latencyMost, powerMost float64
	for _, p := range points {
		errorMost, latencyMost, powerMost = max(errorMost, p.Error), max(latencyMost, deref(p.Latency)), max(powerMost, p.Power)
	}
	errorMost, latencyMost, powerMost = max(errorMost, 0.01)*1.05, max(latencyMost, 1)*1.05, max(powerMost, 1)
	x := func(v float64) float64 { return frameLeft + v/errorMost*(frameWidth-frameLeft-frameRight) }
	y := func(v float64) float64 { return frameTop + (1-v/latencyMost)*(frameHeight-frameTop-frameBottom) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#333333" role="img">`,
		frameWidth, frameHeight, frameWidth, frameHeight)
	put(`<title>Error against mean latency of the settings that no other beats</title>`)
	put(`<rect width="%d" height="%d" fill="#ffffff"/>`, frameWidth, frameHeight)
	put(`<text x="%d" y="22" font-weight="bold">mean latency (s) by error (%%); darker: up to %.1f W</text>`, frameLeft, powerMost)
	const lines = 5
	for i := range lines + 1 {
		part := float64(i) / lines
		put(`<path d="M%d %.1fH%d" stroke="#e4e4e4"/>`, frameLeft, y(part*latencyMost), frameWidth-frameRight)
		put(`<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`, frameLeft-6, y(part*latencyMost)+4, part*latencyMost)
		put(`<text x="%.1f" y="%d" text-anchor="middle">%.1f</text>`, x(part*errorMost), frameHeight-frameBottom+18, 100*part*errorMost)
	}
	put(`<text x="%d" y="%d" text-anchor="end">error (%%), mean of the classes by weight</text>`, frameWidth-frameRight, frameHeight-12)
	for _, p := range d.Frontier {
		put(`<circle cx="%.1f" cy="%.1f" r="4" fill="#0072b2" fill-opacity="%.2f" stroke="#0072b2"><title>%s</title></circle>`,
			x(p.Error), y(deref(p.Latency)), p.Power/powerMost, escaped(p.words()))
	}
	if ring != nil {
		put(`<circle cx="%.1f" cy="%.1f" r="8" fill="none" stroke="#d55e00" stroke-width="2"><title>%s</title></circle>`,
			x(ring.Error), y(deref(ring.Latency)), escaped(ring.words()))
	}
	put(`</svg>`)
	return b.Bytes()
}

// words are the point's knobs, class by class.
func (p *deflatedPoint) words() string {
	var all []string
	for _, c := range p.Classes {
		all = append(all, fmt.Sprintf("%s: theta %.3g, sprint after %s, mean %.1f s", c.Name, c.Theta, afterOrNever(c.After), c.Mean))
	}
	return strings.Join(all, "; ") + fmt.Sprintf("; %.1f W", p.Power)
}
