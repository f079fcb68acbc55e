package pigeon

import (
	"fmt"
	"io"
	"strconv"

	"gonum.org/v1/plot/plotter"

	"headroom/jobs/dispatch/theory"
	"headroom/lab/chart"
	"headroom/lab/report"
)

// files are all tables and plots.
func (f *figures) files(seed uint64) report.Files {
	files := report.Files{
		"runs.csv":  func(w io.Writer) error { return f.runs(w, seed) },
		"groups.md": f.groups,
		"fig42.svg": drawZero,
		"fig43.svg": f.drawModel,
		"fig47.svg": f.drawTraces,
	}
	if _, missing := f.why[ec2("pigeon-google", 90, ec2Workers).name]; !missing {
		files["fig411.svg"] = f.drawEC2
	}
	return files
}

// runs are the results of every seed, in the order of the scenes.
func (f *figures) runs(w io.Writer, seed uint64) error {
	rows := [][]string{{
		"seed", "scene", "run", "short_jobs", "short_p50_s", "short_p90_s", "short_p99_s", "short_slow_p50", "short_slow_p90", "short_slow_p99",
		"long_jobs", "long_p50_s", "long_p90_s", "long_p99_s", "long_slow_p50", "long_slow_p90", "long_slow_p99", "zero", "wait_s", "load",
	}}
	for i, t := range f.trials {
		for _, k := range t.keys() {
			m := t[k]
			row := []string{strconv.FormatUint(seed+uint64(i), 10), k.scene, k.run}
			for _, c := range []class{m.short, m.long} {
				row = append(row, strconv.FormatUint(c.jobs, 10))
				for _, x := range append(c.took[:], c.slow[:]...) {
					row = append(row, known(x, c.jobs > 0))
				}
			}
			rows = append(rows, append(row, report.Number(m.zero), report.Number(m.wait), report.Number(m.reached)))
		}
	}
	return report.CSV(w, rows)
}

// known is a number as tables have it, empty where it is not known.
func known(x float64, ok bool) string {
	if !ok {
		return ""
	}
	return report.Number(x)
}

// groups is Fig. 4.5: completion times by size of the groups over those of one group, on Cloudera's generated jobs; and the same of
// the long traces, where they were run.
func (f *figures) groups(w io.Writer) error {
	p := cloudera()
	rows := [][]string{{"jobs", "groups of", "short p50", "short p90", "short p99", "long p50", "long p90", "long p99"}}
	row := func(scene, size, mine, than string) {
		cells := []string{scene, size}
		for _, of := range []func(int) func(*measured) float64{shortTook, longTook} {
			for i := range percentileCount {
				cells = append(cells, f.ratio(scene, mine, than, of(i)).String())
			}
		}
		rows = append(rows, cells)
	}
	for _, size := range sizes() {
		row(p.name, strconv.Itoa(size), sized(size), sized(p.size()))
	}
	for _, name := range hawkNames() {
		if _, missing := f.why[name]; !missing {
			row(name, strconv.Itoa(groupSize), pigeonName, oneGroup)
		}
	}
	return report.Markdown(w, rows)
}

// drawZero is Fig. 4.2 (jobs of 100 tasks): how likely no task of a job waits.
func drawZero(w io.Writer) error {
	p := chart.New("No task of a job waits, 100 tasks", "load, %", "probability")
	var hundred, two, probes []plotter.XY
	for load := 30; load <= 95; load++ {
		x := float64(load) / 100
		for size, line := range map[int]*[]plotter.XY{100: &hundred, 200: &two} {
			got, err := theory.Predict(theory.Cluster{Groups: 100, Workers: size, Load: x, Fanout: 100, Mean: 1})
			if err != nil {
				return err
			}
			*line = append(*line, plotter.XY{X: float64(load), Y: got.JobZeroSame})
		}
		got, err := theory.Sparrow(x, 100)
		if err != nil {
			return err
		}
		probes = append(probes, plotter.XY{X: float64(load), Y: got})
	}
	return lines(p, w, series{"Pigeon, groups of 100", hundred}, series{"Pigeon, groups of 200", two}, series{"Sparrow", probes})
}

// series are points with a name.
type series struct {
	name   string
	points []plotter.XY
}

// lines draws series in the colours of lines.
func lines(p *chart.Plot, w io.Writer, all ...series) error {
	for i, s := range all {
		if err := p.Line(chart.Series{Name: s.name, Points: s.points, Colour: chart.LineColours()[i]}); err != nil {
			return err
		}
	}
	return chart.Save(p, w)
}

// drawModel is Fig. 4.3 (a): the simulation against (4.6).
func (f *figures) drawModel(w io.Writer) error {
	p := chart.New("Jobs that wait for nothing", "workers of a group", "part of the jobs")
	var all []series
	for _, load := range modelLoads() {
		var simulated, predicted []plotter.XY
		for _, size := range modelGroups() {
			got, err := theory.Predict(theory.Cluster{Groups: modelWorkers / size, Workers: size, Load: load, Fanout: modelFanout, Mean: modelTask})
			if err != nil {
				return err
			}
			predicted = append(predicted, plotter.XY{X: float64(size), Y: got.JobZeroVaried})
			simulated = append(simulated, plotter.XY{X: float64(size), Y: f.of(modelName(size, load), pigeonName, zero).Mean})
		}
		all = append(all, series{"(4.6), load " + percent(load) + " %", predicted}, series{"simulated, load " + percent(load) + " %", simulated})
	}
	return lines(p, w, all...)
}

// drawTraces is Fig. 4.7 and 4.9 at one load: slowdowns of short jobs on the generated traces.
func (f *figures) drawTraces(w io.Writer) error {
	var panels []*chart.Plot
	for _, p := range allPublished() {
		c := chart.New(p.name+": short jobs", "percentile", "slowdown")
		for i, name := range []string{weighted(strict), weighted(20), weighted(5), eagle} {
			var points []plotter.XY
			for k, q := range percentiles() {
				points = append(points, plotter.XY{X: 100 * q, Y: f.of(p.name, name, shortSlow(k)).Mean})
			}
			if err := c.Line(chart.Series{Name: name, Points: points, Colour: chart.LineColours()[i]}); err != nil {
				return err
			}
		}
		panels = append(panels, c)
	}
	return chart.SavePanels([][]*chart.Plot{panels}, w)
}

// drawEC2 is Fig. 4.11: short jobs over Pigeon's by load.
func (f *figures) drawEC2(w io.Writer) error {
	var panels []*chart.Plot
	for _, policy := range []string{eagle, sparrow} {
		c := chart.New(fmt.Sprintf("Short jobs, %s over Pigeon", policy), "load, %", "times as long")
		for i, q := range percentileNames() {
			var points []plotter.XY
			for _, load := range googleLoads() {
				points = append(points, plotter.XY{X: float64(load), Y: f.ratio(ec2("pigeon-google", load, ec2Workers).name, policy, pigeonName, shortTook(i)).Mean})
			}
			if err := c.Line(chart.Series{Name: q, Points: points, Colour: chart.LineColours()[i]}); err != nil {
				return err
			}
		}
		panels = append(panels, c)
	}
	return chart.SavePanels([][]*chart.Plot{panels}, w)
}
