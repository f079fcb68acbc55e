package bench

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// The plot's frame, in pixels: one panel for each law, the same scales in all.
const (
	plotWidth, panelHeight = 960, 150
	plotLeft, plotRight    = 64, 20
	plotTop, panelGap      = 44, 42
)

// Colours by Okabe and Ito, told apart by everybody.
const (
	plotCap, plotLaw, plotGrid, plotText = "#000000", "#0072b2", "#e4e4e4", "#333333"
	plotBand                             = "#f0e442"
)

// plotter draws curves as panels below each other.
type plotter struct {
	bytes.Buffer
	spanX, lowY, highY float64
	top                float64 // of the present panel
}

// drawCurves is the picture: each law's wall power over the same steps of the cap.
func drawCurves(curves []curve) []byte {
	p := &plotter{lowY: math.Inf(1)}
	for _, c := range curves {
		p.spanX = max(p.spanX, float64(len(c.points))*judged.Seconds())
		for i, w := range c.points {
			p.lowY, p.highY = min(p.lowY, w, c.caps[i]), max(p.highY, w, c.caps[i])
		}
	}
	if len(curves) == 0 || p.spanX == 0 {
		p.lowY, p.highY, p.spanX = 0, 1, 1
	}
	p.lowY, p.highY = max(0, p.lowY*0.95), p.highY*1.03
	height := plotTop + len(curves)*(panelHeight+panelGap) + 24
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" role="img">`,
		plotWidth, height, plotWidth, height)
	p.put(`<title>Wall power of one node under five control laws</title>`)
	p.put(`<rect width="%d" height="%d" fill="#ffffff"/>`, plotWidth, height)
	p.text(plotLeft, 18, "start", "bold", "Wall power (W, 50 ms means) over the same steps of the cap: line black, within 2 % yellow")
	for i, c := range curves {
		p.top = float64(plotTop + i*(panelHeight+panelGap))
		p.panel(c)
	}
	p.text(plotWidth-plotRight, float64(height-6), "end", "normal", "time (s)")
	p.put(`</svg>`)
	return p.Bytes()
}

func (p *plotter) put(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n", args...) }

func (p *plotter) text(x, y float64, anchor, weight, words string) {
	p.put(`<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s" fill="%s">%s</text>`, x, y, anchor, weight, plotText, words)
}

func (p *plotter) x(i int) float64 {
	return plotLeft + float64(i)*judged.Seconds()/p.spanX*(plotWidth-plotLeft-plotRight)
}

func (p *plotter) y(watts float64) float64 {
	return p.top + panelHeight*(1-(watts-p.lowY)/(p.highY-p.lowY))
}

// panel draws one law.
func (p *plotter) panel(c curve) {
	p.text(plotLeft, p.top-5, "start", "bold", c.law)
	for w := math.Ceil(p.lowY/50) * 50; w <= p.highY; w += 50 {
		p.put(`<path d="M%d %.1fH%d" stroke="%s"/>`, plotLeft, p.y(w), plotWidth-plotRight, plotGrid)
		p.text(plotLeft-6, p.y(w)+4, "end", "normal", fmt.Sprintf("%.0f", w))
	}
	var within, line, power strings.Builder
	for i, w := range c.points {
		move := "L"
		if i == 0 {
			move = "M"
		}
		fmt.Fprintf(&power, "%s%.1f %.1f", move, p.x(i), p.y(w))
		if i > 0 && c.caps[i] == c.caps[i-1] && i < len(c.points)-1 {
			continue // a cap stands until the next
		}
		end := i
		for end+1 < len(c.caps) && c.caps[end+1] == c.caps[i] {
			end++
		}
		fmt.Fprintf(&line, "%s%.1f %.1fH%.1f", move, p.x(i), p.y(c.caps[i]), p.x(end))
		fmt.Fprintf(&within, "M%.1f %.1fH%.1fV%.1fH%.1fZ", p.x(i), p.y(c.caps[i]*(1+band)), p.x(end), p.y(c.caps[i]*(1-band)), p.x(i))
	}
	p.put(`<path d="%s" fill="%s" fill-opacity="0.5"/>`, within.String(), plotBand)
	p.put(`<path d="%s" fill="none" stroke="%s"/>`, strings.ReplaceAll(line.String(), "L", "M"), plotCap)
	p.put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.2" stroke-linejoin="round"/>`, power.String(), plotLaw)
	for t := 0.0; t <= p.spanX; t += 10 {
		x := p.x(int(t / judged.Seconds()))
		p.put(`<path d="M%.1f %.1fv4" stroke="%s"/>`, x, p.top+panelHeight, plotText)
		p.text(x, p.top+panelHeight+15, "middle", "normal", fmt.Sprintf("%.0f", t))
	}
}
