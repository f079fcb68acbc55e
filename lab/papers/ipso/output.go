package ipso

import (
	"image/color"
	"io"
	"strconv"

	"headroom/jobs/scaling/ipso"
	"headroom/lab/chart"
	"headroom/lab/report"

	"gonum.org/v1/plot/plotter"
)

// files are the table and the plot of Table 2.1.
func (f *figures) files() report.Files {
	return report.Files{"table21.csv": f.writeTable, "fig2.8.svg": f.draw}
}

func (f *figures) writeTable(w io.Writer) error {
	rows := [][]string{{"n", "slowest_s", "overhead_s", "measured", "fitted_curves", "fitted_speedups", "low", "high"}}
	for i, t := range table21() {
		s, low, high := f.table.fitted.Predict(t.N)
		rows = append(rows, []string{
			strconv.Itoa(t.N), report.Number(t.Slowest), report.Number(t.Overhead), report.Number(f.table.points[i].Speedup),
			report.Number(f.table.speedup(float64(t.N))), report.Number(s), report.Number(low), report.Number(high),
		})
	}
	return report.CSV(w, rows)
}

// drawTo is the largest degree of the plot.
const drawTo = 200

// draw is Fig. 2.8 (b): speed-ups as measured, by IPSO and by Amdahl's law without serial work.
func (f *figures) draw(w io.Writer) error {
	p := chart.New("Collaborative filtering (Fig. 2.8)", "scale-out degree", "speed-up")
	curve := func(of func(n float64) float64, to int) (points []plotter.XY) {
		for n := 1; n <= to; n++ {
			points = append(points, plotter.XY{X: float64(n), Y: of(float64(n))})
		}
		return points
	}
	var measured []plotter.XY
	for _, x := range f.table.points {
		measured = append(measured, plotter.XY{X: float64(x.N), Y: x.Speedup})
	}
	for _, s := range []struct {
		name   string
		points []plotter.XY
		colour color.Color
	}{
		{"measured", measured, chart.Black},
		{"IPSO, fitted curves", curve(f.table.speedup, drawTo), chart.Blue},
		{"IPSO, speed-ups alone", curve(f.table.fitted.Speedup, drawTo), chart.Green},
		{"Amdahl (eta = 1)", curve(ipso.Amdahl(1).Speedup, 30), chart.Red},
	} {
		if err := p.Line(chart.Series{Name: s.name, Points: s.points, Colour: s.colour}); err != nil {
			return err
		}
	}
	return chart.Save(p, w)
}
