package dias

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"headroom/lab/chart"
	"headroom/lab/report"
)

// files are all tables and plots.
func (s *study) files(seed uint64) report.Files {
	all := report.Files{
		"runs.csv":    func(w io.Writer) error { return s.runs(w, seed) },
		"summary.csv": s.summary,
		"table2.csv":  s.writeTable2,
		"fig6.csv":    writeFig6,
		"fig6.svg":    drawFig6,
		"fig11c.csv":  s.writeEnergy,
		"fig11c.svg":  s.drawEnergy,
	}
	for _, g := range gains() {
		all[g.file+".csv"] = func(w io.Writer) error { return s.writeGains(w, g) }
		all[g.file+".svg"] = func(w io.Writer) error { return s.drawGains(w, g) }
	}
	return all
}

// runs is every class of every run.
func (s *study) runs(w io.Writer, seed uint64) error {
	rows := [][]string{{
		"seed", "experiment", "policy", "class", "jobs", "mean_s", "p95_s", "queue_s", "exec_s", "sprinted_share", "joules_per_job",
		"waste_share", "busy_share",
	}}
	for i, e := range s.experiments {
		for k, t := range s.trials[i] {
			for p := range t {
				r := &t[p]
				for c, m := range r.classes {
					rows = append(rows, []string{
						strconv.FormatUint(seed+uint64(k), 10), e.name, e.policies[p].name, e.classes[c].name, strconv.Itoa(m.jobs),
						report.Number(m.mean), report.Number(m.p95), report.Number(m.queue), report.Number(m.exec), report.Number(m.share), report.Number(m.joules), report.Number(r.waste), report.Number(r.busy),
					})
				}
			}
		}
	}
	return report.CSV(w, rows)
}

// cells are a stat's.
func cells(s report.Stat) []string {
	if !s.Known {
		return []string{"", "", ""}
	}
	return []string{report.Number(s.Mean), report.Number(s.Low), report.Number(s.High)}
}

// summary is every class of every policy: means over the seeds and their bounds.
func (s *study) summary(w io.Writer) error {
	rows := [][]string{{"experiment", "policy", "class", "quantity", "mean", "low", "high"}}
	for _, e := range s.experiments {
		for _, p := range e.policies {
			row := func(class, what string, q quantity) {
				rows = append(rows, append([]string{e.name, p.name, class, what}, cells(s.of(e.name, p.name, q))...))
			}
			row("all", "waste_percent", wasteOf)
			row("all", "joules_per_job", energyOf)
			row("all", "joules_per_job_with_idle", wholeOf)
			for c, k := range e.classes {
				row(k.name, "mean_s", meanOf(c))
				row(k.name, "p95_s", tailOf(c))
				row(k.name, "queue_s", queueOf(c))
				row(k.name, "exec_s", execOf(c))
				row(k.name, "joules_per_job", func(r *result) float64 { return r.classes[c].joules })
			}
		}
	}
	return report.CSV(w, rows)
}

// writeTable2 is Table 2, the paper's numbers beside ours.
func (s *study) writeTable2(w io.Writer) error {
	rows := [][]string{{"policy", "class", "quantity", "paper_s", "mean_s", "low_s", "high_s"}}
	for _, r := range paperTable2() {
		for class, times := range r.times {
			for i, what := range []string{"queue", "exec"} {
				got := s.of(complete, r.policy+" "+limitedBudget, []quantity{queueOf(class), execOf(class)}[i])
				rows = append(rows, append([]string{r.policy, []string{"high", "low"}[class], what, report.Number(times[i])}, cells(got)...))
			}
		}
	}
	return report.CSV(w, rows)
}

// A figure of gains shows by how much response times differ from those of P, the mean
// and the tail of each class.
type gainFigure struct {
	file, title, experiment string
	policies                []string
}

func gains() []gainFigure {
	two := []string{"NP", "DA(0,10)", "DA(0,20)"}
	with := func(budget string) []string {
		return []string{"NPS " + budget, "DIAS(0,10) " + budget, "DIAS(0,20) " + budget}
	}
	return []gainFigure{
		{"fig7", "Reference (Fig. 7)", reference, two},
		{"fig8a", "Same size (Fig. 8a)", sameSize, two},
		{"fig8b", "Nine high jobs to one low (Fig. 8b)", mostlyHigh, two},
		{"fig8c", "Half the load (Fig. 8c)", lowLoad, two},
		{"fig9", "Three classes (Fig. 9)", three, []string{"NP", "DA(0,10,20)", "DA(0,20,40)"}},
		{"fig10", "Triangle count (Fig. 10)", triangle, []string{"NP", "DA(0,1)", "DA(0,2)", "DA(0,5)", "DA(0,10)", "DA(0,20)"}},
		{"fig11a", "Limited sprints (Fig. 11a)", complete, with(limitedBudget)},
		{"fig11b", "Unlimited sprints (Fig. 11b)", complete, with(unlimitedBudget)},
	}
}

// bar is one series of a figure of gains.
type bar struct {
	name string
	q    quantity
}

// series are the bars of an experiment: mean and tail of each class.
func (s *study) series(name string) (all []bar) {
	for _, e := range s.experiments {
		for c, k := range e.classes {
			if e.name == name {
				all = append(all, bar{k.name + ", mean", meanOf(c)}, bar{k.name + ", 95th percentile", tailOf(c)})
			}
		}
	}
	return all
}

func (s *study) writeGains(w io.Writer, g gainFigure) error {
	rows := [][]string{{"policy", "series", "unit", "mean", "low", "high"}}
	for _, b := range s.series(g.experiment) {
		rows = append(rows, append([]string{"P", b.name, "s"}, cells(s.of(g.experiment, "P", b.q))...))
	}
	for _, p := range g.policies {
		for _, b := range s.series(g.experiment) {
			rows = append(rows, append([]string{p, b.name, "percent"}, cells(s.change(g.experiment, p, "P", b.q))...))
		}
	}
	return report.CSV(w, rows)
}

// drawGains has a group of bars for each policy.
func (s *study) drawGains(w io.Writer, g gainFigure) error {
	p := chart.New(g.title, "", "response time against P (%)")
	for i, b := range s.series(g.experiment) {
		var values plotter.Values
		for _, policy := range g.policies {
			values = append(values, s.change(g.experiment, policy, "P", b.q).Mean)
		}
		if err := p.Bars(b.name, values, i, len(s.series(g.experiment))); err != nil {
			return err
		}
	}
	p.NominalX(shorten(g.policies)...)
	p.Y.Max = max(20, p.Y.Max) * 1.6 // room for the legend
	p.Y.Min = min(-5, p.Y.Min*1.05)
	return chart.Save(p, w)
}

// shorten drops the budget from the names: the title has it.
func shorten(policies []string) []string {
	var out []string
	for _, p := range policies {
		out = append(out, strings.Fields(p)[0])
	}
	return out
}

// writeEnergy is Fig. 11c: joules of each job.
func (s *study) writeEnergy(w io.Writer) error {
	rows := [][]string{{"policy", "quantity", "mean", "low", "high"}}
	for _, p := range append([]string{"P"}, append(gains()[6].policies, gains()[7].policies...)...) {
		rows = append(rows,
			append([]string{p, "joules_per_job"}, cells(s.of(complete, p, energyOf))...),
			append([]string{p, "percent_against_p"}, cells(s.change(complete, p, "P", energyOf))...),
			append([]string{p, "percent_against_p_with_idle"}, cells(s.change(complete, p, "P", wholeOf))...))
	}
	return report.CSV(w, rows)
}

// drawEnergy has Fig. 11c as bars: by policy, of both budgets.
func (s *study) drawEnergy(w io.Writer) error {
	p := chart.New("Energy of the jobs (Fig. 11c)", "", "joules against P (%)")
	policies := []string{"NPS", "DIAS(0,10)", "DIAS(0,20)"}
	for i, budget := range []string{limitedBudget, unlimitedBudget} {
		var values plotter.Values
		for _, policy := range policies {
			values = append(values, s.change(complete, policy+" "+budget, "P", energyOf).Mean)
		}
		if err := p.Bars(budget+" sprints", values, 2+2*i, 3); err != nil {
			return err
		}
	}
	p.NominalX(policies...)
	p.Y.Max = 12 // room for the legend
	return chart.Save(p, w)
}

// accuracy is Fig. 6: mean absolute error by drop ratio, both in percent.
func accuracy() []plotter.XY {
	return []plotter.XY{{X: 0, Y: 0}, {X: 10, Y: 8.5}, {X: 20, Y: 15}, {X: 40, Y: 32}}
}

func writeFig6(w io.Writer) error {
	rows := [][]string{{"drop_percent", "paper_error_percent"}}
	for _, a := range accuracy() {
		rows = append(rows, []string{fmt.Sprint(a.X), fmt.Sprint(a.Y)})
	}
	return report.CSV(w, rows)
}

func drawFig6(w io.Writer) error {
	p := chart.New("Accuracy loss of the text jobs, as the paper has it (Fig. 6)", "drop ratio (%)", "mean absolute error (%)")
	line, points, err := plotter.NewLinePoints(plotter.XYs(accuracy()))
	if err != nil {
		return err
	}
	line.Color, points.Color = chart.Colours()[4], chart.Colours()[4]
	p.Add(line, points)
	return chart.Save(p, w)
}

// files are Figs. 4 and 5.
func (v *validation) files() report.Files {
	return report.Files{"fig4.csv": v.writeFig4, "fig4.svg": v.drawFig4, "fig5.csv": v.writeFig5, "fig5.svg": v.drawFig5}
}

func (v *validation) writeFig4(w io.Writer) error {
	rows := [][]string{{"class", "drop_percent", "measured_s", "waves_s", "tasks_s", "kept_tasks_s"}}
	for _, p := range v.jobs {
		rows = append(rows, []string{[]string{"high", "low"}[p.class], fmt.Sprint(p.ratio), report.Number(p.observed), report.Number(p.wave), report.Number(p.task), report.Number(p.share)})
	}
	return report.CSV(w, rows)
}

func (v *validation) writeFig5(w io.Writer) error {
	rows := [][]string{{"class", "drop_percent", "simulated_mean_s", "low", "high", "model_mean_s", "simulated_p95_s", "model_p95_s"}}
	for _, p := range v.responses {
		row := append([]string{[]string{"high", "low"}[p.class], fmt.Sprint(p.ratio)}, cells(p.observed)...)
		rows = append(rows, append(row, report.Number(p.mean), report.Number(p.tail.Mean), report.Number(p.p95)))
	}
	return report.CSV(w, rows)
}

// drawFig4 has job times by drop ratio.
func (v *validation) drawFig4(w io.Writer) error {
	p := chart.New("Processing time on Spark, measured and modelled (Fig. 4)", "drop ratio (%)", "time of a job (s)")
	for class, name := range []string{"high", "low"} {
		var observed, wave, task plotter.XYs
		for _, j := range v.jobs {
			if j.class == class {
				observed = append(observed, plotter.XY{X: j.ratio, Y: j.observed})
				wave, task = append(wave, plotter.XY{X: j.ratio, Y: j.wave}), append(task, plotter.XY{X: j.ratio, Y: j.task})
			}
		}
		for i, series := range []plotter.XYs{observed, wave, task} {
			if err := addLine(p, name+", "+[]string{"measured", "by waves", "by tasks"}[i], series, 2*class+2, i); err != nil {
				return err
			}
		}
	}
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.5 // room for the legend
	return chart.Save(p, w)
}

// drawFig5 has response times by drop ratio.
func (v *validation) drawFig5(w io.Writer) error {
	p := chart.New("Mean response time of recorded jobs, simulated queue and model (Fig. 5)", "drop ratio of low jobs (%)", "response time (s)")
	for class, name := range []string{"high", "low"} {
		var observed, model plotter.XYs
		for _, r := range v.responses {
			if r.class == class && r.observed.Known {
				observed, model = append(observed, plotter.XY{X: r.ratio, Y: r.observed.Mean}), append(model, plotter.XY{X: r.ratio, Y: r.mean})
			}
		}
		for i, series := range []plotter.XYs{observed, model} {
			if err := addLine(p, name+", "+[]string{"simulated", "by waves"}[i], series, 2*class+2, i); err != nil {
				return err
			}
		}
	}
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.3 // room for the legend
	return chart.Save(p, w)
}

// addLine adds a line with points: solid for the first of its kind, dashed for the others.
func addLine(p *chart.Plot, name string, points plotter.XYs, colour, kind int) error {
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	line.Color, marks.Color, line.Width = chart.Colours()[colour], chart.Colours()[colour], vg.Points(1.2)
	if kind > 0 {
		line.Dashes = []vg.Length{vg.Points(6 / float64(kind)), vg.Points(3)}
	}
	p.Add(line, marks)
	p.Legend.Add(name, line, marks)
	return nil
}
