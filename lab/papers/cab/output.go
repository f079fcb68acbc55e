package cab

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"headroom/lab/chart"
	"headroom/lab/report"
)

// files are all tables and plots.
func (f *figures) files(seed uint64) report.Files {
	return report.Files{
		"runs.csv":       func(w io.Writer) error { return f.runs(w, seed) },
		"summary.csv":    f.summary,
		"policies.md":    f.policies,
		"fig4.md":        f.fig4Table,
		"table1.md":      f.tableOne,
		"containers.csv": f.followed,
		"fig4.svg":       f.drawFig4,
		"fig5.svg":       f.drawFig5,
		"table2.svg":     f.drawTable2,
	}
}

// allKeys are all experiments by all variants: under the printed queues without an oracle
// and with one, then under the measured queues.
func allKeys() []key {
	var keys []key
	for _, k := range experiments("", anySet, anyCaps) {
		for _, v := range variants() {
			k.variant = v.name
			keys = append(keys, k)
		}
	}
	return slices.Concat(keys, with(keys, told), with(keys, func(k *key) { k.measured = true }))
}

func (k key) cells() []string {
	queues := "paper"
	if k.measured {
		queues = "measured"
	}
	return []string{strconv.Itoa(k.set), k.caps, strconv.Itoa(k.quality), queues, k.variant}
}

// runs is every run: runtimes over the uncapped ones, of the set and of its jobs.
func (f *figures) runs(w io.Writer, seed uint64) error {
	rows := [][]string{{"seed", "set", "cap", "quality_percent", "queues", "variant", "oracle", "runtime", "job1", "job2", "job3", "least_done_over_floor"}}
	for i := range f.trials {
		for _, k := range allKeys() {
			r, ok := f.trials[i].results[k]
			if !ok {
				continue
			}
			row := append([]string{strconv.FormatUint(seed+uint64(i), 10)}, k.cells()...)
			row = append(row, strconv.FormatBool(k.oracle), report.Number(r.runtime))
			for _, j := range r.jobs {
				row = append(row, report.Number(j))
			}
			rows = append(rows, append(row, report.Number(r.done)))
		}
	}
	return report.CSV(w, rows)
}

// summary is Fig. 4 and Table II in numbers; the column oracle is the runtime of the same
// variant if it knew the true uncapped finish times, empty where that was not run.
func (f *figures) summary(w io.Writer) error {
	rows := [][]string{{"set", "cap", "quality_percent", "queues", "variant", "runtime", "low", "high", "oracle"}}
	for _, k := range allKeys() {
		s := f.runtime(k)
		if !s.Known || k.oracle {
			continue
		}
		knowing := ""
		if k.oracle = true; f.runtime(k).Known {
			knowing = report.Number(f.runtime(k).Mean)
		}
		rows = append(rows, append(k.cells(), report.Number(s.Mean), report.Number(s.Low), report.Number(s.High), knowing))
	}
	return report.CSV(w, rows)
}

// policies is what each variant comes to over all experiments: means of the runtimes of
// sets and of jobs, the worst job, and the means with an oracle.
func (f *figures) policies(w io.Writer) error {
	rows := [][]string{{"variant", "running maps", "sets", "sets, oracle", "jobs", "jobs, oracle", "worst job", "worst set"}}
	for _, v := range variants() {
		all := func(oracle bool, values func(*result) []float64, of func([]float64) float64) string {
			s := f.each(func(t *trial) (float64, bool) { return t.over(v.name, oracle, values, of) })
			if !s.Known {
				return ""
			}
			return strconv.FormatFloat(s.Mean, 'f', 3, 64)
		}
		stop := "run to their ends"
		switch {
		case v.exact:
			stop = "never stopped"
		case v.kills:
			stop = "killed"
		}
		rows = append(rows, []string{
			v.name, stop, all(false, setRuntime, meanOf), all(true, setRuntime, meanOf), all(false, jobRuntimes, meanOf), all(true, jobRuntimes, meanOf),
			all(false, jobRuntimes, slices.Max[[]float64]), all(false, setRuntime, slices.Max[[]float64]),
		})
	}
	return report.Markdown(w, rows)
}

// fig4Table is Fig. 4 and Table II as a page of docs has them: a row for each column of Table I.
func (f *figures) fig4Table(w io.Writer) error {
	head := []string{"set", "cap", "quality"}
	for _, v := range variants() {
		head = append(head, v.name)
	}
	rows := [][]string{append(head, ours+", oracle")}
	for _, k := range experiments("", anySet, anyCaps) {
		if k.quality == 80 {
			continue // the queues of 85 %
		}
		row := []string{strconv.Itoa(k.set), k.caps, strconv.Itoa(k.quality) + " %"}
		for _, v := range variants() {
			k.variant = v.name
			row = append(row, strconv.FormatFloat(f.runtime(k).Mean, 'f', 3, 64))
		}
		k.variant, k.oracle = ours, true
		rows = append(rows, append(row, strconv.FormatFloat(f.runtime(k).Mean, 'f', 3, 64)))
	}
	return report.Markdown(w, rows)
}

// tableOne is Table I by the paper and by measured profiles.
func (f *figures) tableOne(w io.Writer) error {
	head := []string{"set", "application"}
	for _, q := range qualities() {
		head = append(head, fmt.Sprintf("%d %%: paper, measured", q))
	}
	rows := [][]string{head}
	for i, s := range sets() {
		for row, a := range s.apps {
			cells := []string{strconv.Itoa(s.number), a.name}
			for column := range qualities() {
				cells = append(cells, fmt.Sprintf("%d, %d", s.queues[row][column], f.measured[i].queues[row][column]))
			}
			rows = append(rows, cells)
		}
	}
	return report.Markdown(w, rows)
}

// followed is the run of Fig. 5, of the first seed.
func (f *figures) followed(w io.Writer) error {
	rows := [][]string{{"time_s", "cap_w", "queue1", "queue2", "queue3"}}
	for _, p := range f.trials[0].follow {
		row := []string{report.Number(p.at.Seconds()), report.Number(p.cap)}
		for _, h := range p.held {
			row = append(row, strconv.Itoa(h))
		}
		rows = append(rows, row)
	}
	return report.CSV(w, rows)
}

// drawFig4 has a panel for each set and fixed cap: bars by quality and variant.
func (f *figures) drawFig4(w io.Writer) error {
	var panels [][]*chart.Plot
	for _, s := range sets() {
		var row []*chart.Plot
		for _, c := range schedules() {
			if c.steps {
				continue
			}
			p, err := f.bars(fmt.Sprintf("Set %d, %s W", s.number, c.name), s.number, c.name, len(panels)+len(row) == 0)
			if err != nil {
				return err
			}
			row = append(row, p)
		}
		panels = append(panels, row)
	}
	return chart.SavePanels(panels, w)
}

// drawTable2 is Table II as bars.
func (f *figures) drawTable2(w io.Writer) error {
	p, err := f.bars("Set 3 under the stepping cap (Table II)", 3, "stepping", true)
	if err != nil {
		return err
	}
	return chart.Save(p, w)
}

// bars are the normalised runtimes of one set under one cap, with a legend or without.
func (f *figures) bars(title string, set int, capName string, legend bool) (*chart.Plot, error) {
	p := chart.New(title, "quality asked for", "runtime over uncapped")
	var names []string
	for _, q := range qualities() {
		names = append(names, fmt.Sprintf("%d %%", q))
	}
	all := named(capped, approx, paper, released, ours)
	for i, v := range all {
		var values []float64
		for _, q := range qualities() {
			values = append(values, f.runtime(key{set: set, caps: capName, quality: q, variant: v.name}).Mean)
		}
		name := ""
		if legend {
			name = v.name
		}
		if err := p.Bars(name, values, i, len(all)); err != nil {
			return nil, err
		}
	}
	p.NominalX(names...)
	p.Y.Min, p.Y.Max = 0, 2.7 // room for the legend
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5}, {Value: 1, Label: "1"}, {Value: 1.5}, {Value: 2, Label: "2"}, {Value: 2.5}}
	return p, nil
}

// drawFig5 has the containers that each queue's job held, and the cap, over time.
func (f *figures) drawFig5(w io.Writer) error {
	p := chart.New("Containers of set 3 at 85 %, stepping cap (Fig. 5)", "time (s)", "containers; cap (10 W)")
	points := f.trials[0].follow
	if len(points) == 0 {
		return chart.Save(p, w)
	}
	lines := make([]plotter.XYs, len(points[0].held)+1)
	for _, at := range points {
		for i, h := range at.held {
			lines[i] = append(lines[i], plotter.XY{X: at.at.Seconds(), Y: float64(h)})
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], plotter.XY{X: at.at.Seconds(), Y: at.cap / 10})
	}
	names := []string{"queue 1: Pi-Estimator", "queue 2: Word-Count", "queue 3: Top-N", "cap"}
	order := []int{4, 1, 2, 0}
	for i := range lines {
		line, err := plotter.NewLine(lines[i])
		if err != nil {
			return err
		}
		line.StepStyle, line.Width, line.Color = plotter.PostStep, vg.Points(1.5), chart.Colours()[order[i]]
		p.Add(line)
		p.Legend.Add(names[i], line)
	}
	p.Y.Min, p.Y.Max = 0, 40 // room for the legend
	return chart.Save(p, w)
}
