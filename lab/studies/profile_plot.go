package studies

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"

	"headroom/jobs/quality"
)

// The picture's frame, in pixels.
const (
	frameWidth, frameHeight = 560, 400
	frameLeft, frameRight   = 60, 24
	frameTop, frameBottom   = 44, 52
)

// drawProfile is CAB's Fig. 1 for one job: accuracy over the part of the tasks that
// ran, its worst and best runs as a band.
func drawProfile(p *quality.Profile) []byte {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	x := func(fraction float64) float64 { return frameLeft + fraction*(frameWidth-frameLeft-frameRight) }
	y := func(accuracy float64) float64 {
		return frameTop + (1-accuracy)*(frameHeight-frameTop-frameBottom)
	}
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#333333" role="img">`,
		frameWidth, frameHeight, frameWidth, frameHeight)
	put(`<title>Accuracy of %s by the part of its map tasks that ran</title>`, escaped(p.Name))
	put(`<rect width="%d" height="%d" fill="#ffffff"/>`, frameWidth, frameHeight)
	put(`<text x="%d" y="22" font-weight="bold">%s: accuracy (%%) by part of the map tasks (%%), worst to best run</text>`, frameLeft, escaped(p.Name))
	for i := 0; i <= 100; i += 20 {
		part := float64(i) / 100
		put(`<path d="M%d %.1fH%d" stroke="#e4e4e4"/>`, frameLeft, y(part), frameWidth-frameRight)
		put(`<text x="%d" y="%.1f" text-anchor="end">%d</text>`, frameLeft-6, y(part)+4, i)
		put(`<text x="%.1f" y="%d" text-anchor="middle">%d</text>`, x(part), frameHeight-frameBottom+18, i)
	}
	put(`<text x="%d" y="%d" text-anchor="end">part of the map tasks (%%)</text>`, frameWidth-frameRight, frameHeight-12)
	var mean, low, high, band []string
	for _, q := range curvePoints(p) {
		mean = append(mean, fmt.Sprintf("%.1f %.1f", x(q.Fraction), y(q.Accuracy)))
		low = append(low, fmt.Sprintf("%.1f %.1f", x(q.Fraction), y(q.Low)))
		high = append([]string{fmt.Sprintf("%.1f %.1f", x(q.Fraction), y(q.High))}, high...)
	}
	band = append(append(band, low...), high...)
	put(`<path d="M%sZ" fill="#56b4e9" fill-opacity="0.35"/>`, strings.Join(band, "L"))
	put(`<path d="M%s" fill="none" stroke="#0072b2" stroke-width="2"/>`, strings.Join(mean, "L"))
	for _, q := range p.Points {
		put(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="#0072b2"><title>%.4g of the tasks: %.4g (%.4g to %.4g), %d runs</title></circle>`,
			x(q.Fraction), y(q.Accuracy), q.Fraction, q.Accuracy, q.Low, q.High, q.Runs)
	}
	put(`</svg>`)
	return b.Bytes()
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

func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a bytes.Buffer takes everything
	return b.String()
}
