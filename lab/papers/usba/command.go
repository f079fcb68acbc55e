package usba

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"gonum.org/v1/plot/plotter"

	"headroom/lab/chart"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// options are the flags of `powerlab paper usba`.
type options struct{ papers.Options }

// NewCommand is `powerlab paper usba`.
func NewCommand() *cobra.Command {
	o := options{papers.Options{Seeds: 1}}
	cmd := &cobra.Command{
		Short: "How jobs of many stages scale with size and degree (USBA)",
		Long: `Computes USBA's results: Tables 3.1 and 3.3 with the errors that the dissertation claims, and a fit to the measured
speed-ups of Table 3.3, the only measurements that it prints. Nothing is random: --seed and --seeds have no effect.

--out writes targets.csv and targets.md, table33.csv, parameters.csv, and fig3.7.svg.`,
		Example: "  powerlab paper usba\n  powerlab paper usba --out usba-out\n  powerlab paper usba --mutants -o json",
	}
	return papers.Study{
		Paper: "usba", Check: func() error { return nil }, Engines: map[string]papers.Engine{"": o.simulate}, Mutants: o.mutants, MutantSeeds: 1,
	}.Command(cmd, &o.Options)
}

func (o *options) simulate(_ context.Context, _ io.Writer) ([]report.Target, error) {
	r := honest()
	all, err := r.run()
	if err != nil {
		return nil, err
	}
	files := report.Files{
		"table33.csv":    func(w io.Writer) error { return writeTable(w, all) },
		"parameters.csv": func(w io.Writer) error { return writeParameters(w, all) },
		"fig3.7.svg":     func(w io.Writer) error { return draw(w, all) },
	}
	if err := o.Keep(files); err != nil {
		return nil, err
	}
	return r.targets(all), nil
}

// writeTable is Table 3.3 with our fit.
func writeTable(w io.Writer, all []*result) error {
	rows := [][]string{{"benchmark", "n", "m", "measured", "printed", "computed", "fitted", "low", "high"}}
	for i, x := range all {
		printed := x.modelling
		printed.R = x.r.Value
		for _, row := range table33() {
			s, low, high := x.own.Predict(row.n, row.m)
			rows = append(rows, []string{
				x.name, strconv.Itoa(row.n), strconv.Itoa(row.m), report.Number(row.measured[i]), report.Number(row.modelled[i]),
				report.Number(printed.Speedup(float64(row.n), float64(row.m))), report.Number(s), report.Number(low), report.Number(high),
			})
		}
	}
	return report.CSV(w, rows)
}

// writeParameters is Table 3.1 of our fit.
func writeParameters(w io.Writer, all []*result) error {
	rows := [][]string{{"benchmark", "parameter", "value", "low", "high", "p"}}
	for _, x := range all {
		for _, e := range x.own.Estimates {
			p := ""
			if e.Free {
				p = strconv.FormatFloat(e.P, 'g', 3, 64)
			}
			rows = append(rows, []string{x.name, e.Name, report.Number(e.Value), report.Number(e.Low), report.Number(e.High), p})
		}
	}
	return report.CSV(w, rows)
}

// draw has a panel for each benchmark: the speed-up of three sizes over m, by our fit, and as measured.
func draw(w io.Writer, all []*result) error {
	panels := make([][]*chart.Plot, 2)
	for i, x := range all {
		p := chart.New(x.name+" (Fig. 3.7)", "parallel degree m", "speed-up")
		for k, n := range []int{64, 128, 256} {
			var curve, dots []plotter.XY
			for d := max(1, n/8); d <= n; d++ {
				curve = append(curve, plotter.XY{X: float64(d), Y: x.own.Speedup(float64(n), float64(d))})
			}
			for _, row := range table33() {
				if row.n == n {
					dots = append(dots, plotter.XY{X: float64(row.m), Y: row.measured[i]})
				}
			}
			colour := chart.LineColours()[k]
			if err := p.Line(chart.Series{Name: fmt.Sprintf("N = %d", n), Points: curve, Colour: colour}); err != nil {
				return err
			}
			if err := p.Line(chart.Series{Points: dots, Colour: colour, Dashes: []float64{2, 2}}); err != nil {
				return err
			}
		}
		panels[i/2] = append(panels[i/2], p)
	}
	return chart.SavePanels(panels, w)
}

// mutants makes the honest run and the mistakes.
func (o *options) mutants(_ context.Context, _ io.Writer) (*papers.Mutants, error) {
	r := honest()
	all, err := r.run()
	if err != nil {
		return nil, err
	}
	m := &papers.Mutants{Honest: r.targets(all)}
	for _, x := range mutants() {
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: m.CanFall(x.expected), Targets: func(context.Context) ([]report.Target, error) {
			all, err := x.rules.run()
			if err != nil {
				return nil, err
			}
			return x.rules.targets(all), nil
		}})
	}
	return m, nil
}

// mutant is the study with one mistake.
type mutant struct {
	name     string
	expected []string
	rules    rules
}

// named are targets of all benchmarks, but for those left out.
func named(target, what string, without ...string) (ids []string) {
	left := map[string]bool{}
	for _, name := range without {
		left[name] = true
	}
	for _, b := range benchmarks() {
		if !left[b.name] {
			ids = append(ids, target+"/"+b.name+what)
		}
	}
	return ids
}
