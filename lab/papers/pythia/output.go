package pythia

import (
	"fmt"
	"io"
	"strconv"

	"headroom/jobs/admission"
	"headroom/lab/chart"
	"headroom/lab/report"
)

// filesOf are all tables and plots; the generated jobs' figures come first.
func filesOf(all []*figures, seed uint64) report.Files {
	generated := all[0]
	return report.Files{
		"runs.csv":    func(w io.Writer) error { return writeRuns(w, all, seed) },
		"summary.csv": func(w io.Writer) error { return writeSummary(w, all) },
		"policies.md": func(w io.Writer) error { return writePolicies(w, all) },
		"fig2.svg":    generated.drawFig2,
		"fig4.svg":    func(w io.Writer) error { return generated.drawVariable(w, "SDR", "Fig. 4", sdr) },
		"fig5.svg":    func(w io.Writer) error { return generated.drawVariable(w, "PTR", "Fig. 5", ptr) },
	}
}

// cells are the columns that name a run.
func (f *figures) cells(k key) []string {
	return []string{f.name, strconv.Itoa(f.capacities[k.capacity]), strconv.FormatBool(k.cut), k.multiple, k.name()}
}

// writeRuns is every run.
func writeRuns(w io.Writer, all []*figures, seed uint64) error {
	rows := [][]string{{"seed", "jobs", "capacity", "cut", "deadlines", "policy", "sdr", "ptr", "wasted"}}
	for _, f := range all {
		for i, t := range f.trials {
			for _, k := range keys() {
				m := t[k]
				row := append([]string{strconv.FormatUint(seed+uint64(i), 10)}, f.cells(k)...)
				rows = append(rows, append(row, report.Number(m.sdr), report.Number(m.ptr), report.Number(m.wasted)))
			}
		}
	}
	return report.CSV(w, rows)
}

// writeSummary has the means over the seeds with their bounds.
func writeSummary(w io.Writer, all []*figures) error {
	rows := [][]string{{"jobs", "capacity", "cut", "deadlines", "policy", "sdr", "sdr_low", "sdr_high", "ptr", "ptr_low", "ptr_high", "wasted", "wasted_low", "wasted_high"}}
	for _, f := range all {
		for _, k := range keys() {
			row := f.cells(k)
			for _, of := range []func(measures) float64{sdr, ptr, wasted} {
				s := f.each(func(t trial) float64 { return of(t[k]) })
				row = append(row, report.Number(s.Mean), report.Number(s.Low), report.Number(s.High))
			}
			rows = append(rows, row)
		}
	}
	return report.CSV(w, rows)
}

// writePolicies is SDR / PTR / wasted in percent, a row for each experiment.
func writePolicies(w io.Writer, all []*figures) error {
	head := []string{"jobs", "slots", "deadlines"}
	for _, p := range admission.Policies() {
		head = append(head, p.String())
	}
	rows := [][]string{head}
	for _, f := range all {
		for _, k := range keys() {
			if k.policy != admission.Adaptive {
				continue
			}
			row := []string{f.name, k.where(f.source), k.multiple}
			for _, p := range admission.Policies() {
				row = append(row, f.cell(with(k, p)))
			}
			rows = append(rows, row)
		}
	}
	return report.Markdown(w, rows)
}

// cell is SDR / PTR / wasted of a run in percent; empty where it is not made.
func (f *figures) cell(k key) string {
	if _, made := f.trials[0][k]; !made {
		return ""
	}
	return fmt.Sprintf("%.1f / %.1f / %.1f", f.percent(k, sdr).Mean, f.percent(k, ptr).Mean, f.percent(k, wasted).Mean)
}

// drawFig2 has SDR and PTR under the fixed deadlines by capacity.
func (f *figures) drawFig2(w io.Writer) error {
	var row []*chart.Plot
	for i, x := range []struct {
		name string
		of   func(measures) float64
	}{{"SDR", sdr}, {"PTR", ptr}} {
		var groups []string
		var keys []key
		for capacity := tight; capacity <= ample; capacity++ {
			groups = append(groups, fmt.Sprintf("%d slots", f.capacities[capacity]))
			keys = append(keys, fixed(0, capacity))
		}
		p, err := f.bars(fmt.Sprintf("%s, Fixed2x (Figs. 2 and 3)", x.name), x.name+" (%)", groups, keys, x.of, i == 0)
		if err != nil {
			return err
		}
		row = append(row, p)
	}
	return chart.SavePanels([][]*chart.Plot{row}, w)
}

// drawVariable has a measure under the variable deadlines, a panel for each capacity.
func (f *figures) drawVariable(w io.Writer, name, figure string, of func(measures) float64) error {
	var row []*chart.Plot
	for capacity := tight; capacity <= middle; capacity++ {
		var groups []string
		var keys []key
		for _, m := range multiples()[1:] {
			groups = append(groups, m.name)
			keys = append(keys, key{multiple: m.name, capacity: capacity})
		}
		p, err := f.bars(fmt.Sprintf("%s at %d slots (%s)", name, f.capacities[capacity], figure), name+" (%)", groups, keys, of, capacity == tight)
		if err != nil {
			return err
		}
		row = append(row, p)
	}
	return chart.SavePanels([][]*chart.Plot{row}, w)
}

// bars has a group of bars for each key, a bar for each policy.
func (f *figures) bars(title, y string, groups []string, keys []key, of func(measures) float64, legend bool) (*chart.Plot, error) {
	p := chart.New(title, "", y)
	order := []admission.Policy{admission.NoDrop, admission.Reactive, admission.Pythia, admission.Oracle, admission.Adaptive}
	for i, policy := range order {
		var values []float64
		for _, k := range keys {
			values = append(values, f.percent(with(k, policy), of).Mean)
		}
		name := ""
		if legend {
			name = policy.String()
		}
		if err := p.Bars(name, values, i, len(order)); err != nil {
			return nil, err
		}
	}
	p.NominalX(groups...)
	p.Y.Min, p.Y.Max = 0, 150 // room for the legend
	return p, nil
}
