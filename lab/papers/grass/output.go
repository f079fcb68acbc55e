package grass

import (
	"fmt"
	"image/color"
	"io"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"headroom/lab/chart"
	"headroom/lab/report"
)

// files are all tables and plots.
func (f *figures) files(seed uint64) report.Files {
	return report.Files{
		"runs.csv":    func(w io.Writer) error { return f.runs(w, seed) },
		"policies.md": f.policies,
		"fig10.svg":   func(w io.Writer) error { return f.draw(w, deadlines, "tasks done more than by LATE, %") },
		"fig11.svg":   func(w io.Writer) error { return f.draw(w, errorBounds, "time less than by LATE, %") },
	}
}

// achieved are the columns of what a policy achieved, and at what cost.
func (r result) achieved() []float64 {
	return []float64{r.all, r.bins[0], r.bins[1], r.bins[2], r.lost, r.second}
}

// runs are the results of every seed.
func (f *figures) runs(w io.Writer, seed uint64) error {
	rows := [][]string{{"seed", "scene", "variant", "all", "small", "medium", "large", "lost", "copies_per_task", "accuracy_t_rem", "accuracy_t_new"}}
	for i, t := range f.trials {
		for _, sc := range scenes() {
			for _, v := range named(sc.variants...) {
				r, ok := t[key{sc.name, v.name}]
				if !ok {
					continue
				}
				row := []string{strconv.FormatUint(seed+uint64(i), 10), sc.name, v.name}
				for _, x := range append(r.achieved(), r.left, r.fresh) {
					row = append(row, report.Number(x))
				}
				rows = append(rows, row)
			}
		}
	}
	return report.CSV(w, rows)
}

// policies is the table of docs: what each policy achieves in each scene that has bins.
func (f *figures) policies(w io.Writer) error {
	rows := [][]string{{"scene", "policy", "all", "small", "medium", "large", "slot time lost", "copies a task"}}
	for _, sc := range scenes() {
		if sc.few || sc.slack > 0 || sc.stages > 0 {
			continue
		}
		for _, v := range named(sc.variants...) {
			row := []string{sc.name, v.name}
			for i := range (result{}).achieved() {
				s := over(f.trials, func(t trial) float64 { return t[key{sc.name, v.name}].achieved()[i] })
				row = append(row, fmt.Sprintf("%.3f", s.Mean))
			}
			rows = append(rows, row)
		}
	}
	return report.Markdown(w, rows)
}

// draw is Fig. 10 or 11: gains on LATE by bin, of GS, RAS, GRASS and ours.
func (f *figures) draw(w io.Writer, scene, axis string) error {
	p := chart.New(scene+": gains on LATE", "", axis)
	p.NominalX(binNames()[0], binNames()[1], binNames()[2], "all")
	const width = 18
	for i, name := range []string{gs, ras, grassName, ours} {
		var values plotter.Values
		for _, bin := range []int{0, 1, 2, everything} {
			values = append(values, f.gain(scene, name, late, bin).Mean)
		}
		bars, err := plotter.NewBarChart(values, vg.Points(width))
		if err != nil {
			return err
		}
		bars.Color = []color.Color{chart.Grey, chart.Orange, chart.Blue, chart.Green}[i]
		bars.Offset = vg.Points(width * (float64(i) - 1.5))
		p.Add(bars)
		p.Legend.Add(name, bars)
	}
	return chart.Save(p, w)
}
