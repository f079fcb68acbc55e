package ipso

import (
	"context"
	"math"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/ipso"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// Every target that can get worse does so under a mistake.
func TestMutants(t *testing.T) {
	t.Parallel()
	const seed, seeds = 1001, 2
	var all []reporttest.Mutant
	for _, x := range mutants() {
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(context.Context) ([]report.Target, error) {
			r := honest()
			x.change(&r)
			return r.judged(seed, seeds)
		}})
	}
	reporttest.Mutants(t, testkit.Need(honest().judged(seed, seeds))(t), all)
}

// mutant is the study with one mistake.
type mutant struct {
	name     string
	expected []string
	change   func(r *rules)
}

// mutants are all mistakes, each with the targets that must notice it.
func mutants() []mutant {
	return []mutant{
		{"the serial work is left out", []string{"E1/laws", "E2/types", "E2/bounds"}, func(r *rules) {
			r.speedup = func(m ipso.Model, n float64) float64 { m.Eta = 1; return m.Speedup(n) }
		}},
		{"the bound ignores that serial work grows less", []string{"E2/bounds", "E2/terasort"}, func(r *rules) {
			r.bound = func(m ipso.Model) (float64, bool) { m.Alpha = 1; return m.Bound() }
		}},
		{"scaling out costs nothing", []string{"E2/types"}, func(r *rules) {
			r.kind = func(m ipso.Model) ipso.Type { m.Beta = 0; return m.Type() }
		}},
		{"measured speed-ups leave the overhead out", measured(), func(r *rules) {
			r.measured = func(w ipso.Workloads) float64 { w.Overhead = 0; return w.Speedup() }
		}},
		{"the peak is that of a smaller overhead", []string{"E2/peaks"}, func(r *rules) {
			r.peak = func(m ipso.Model) (int, float64, bool) { m.Beta /= 2; return m.Peak() }
		}},
		{"Table 2.1 is misread", []string{"E3/overhead", "E3/residual", "E3/alone", "E3/alone-offset", "E4/peak", "E4/at", "E4/120", "E4/200"}, func(r *rules) {
			r.table = func() []ipso.Workloads {
				all := table21()
				all[0].Slowest, all[2].Overhead = 902.0, 63.0
				all[3].Overhead = 154.3
				return all
			}
		}},
		{"q is not relative to a task", []string{"E3/gamma"}, func(r *rules) {
			r.overhead = func(w ipso.Workloads) float64 { return w.Overhead / taskAlone }
		}},
		{"steps are not looked for", []string{"E5/step", "E5/below", "E5/jump"}, func(r *rules) {
			r.stepped = func(x, y []float64) (ipso.Stepped, error) {
				l, err := ipso.FitLine(x, y)
				return ipso.Stepped{Above: l}, err
			}
		}},
		{"serial work does not grow", []string{"E5/step", "E5/above", "E6/sort", "E6/terasort", "E6/blind"}, func(r *rules) {
			r.stepped = func(x, y []float64) (ipso.Stepped, error) {
				flat := make([]float64, len(y))
				for i := range flat {
					flat[i] = 1
				}
				l, err := ipso.FitLine(x, flat)
				return ipso.Stepped{Above: l}, err
			}
		}},
		{"predictions divide by the degree twice", []string{"E6/wordcount", "E6/qmc"}, func(r *rules) {
			r.measured = func(w ipso.Workloads) float64 {
				if w.N == 0 { // a prediction
					w.Slowest = 0.5 * w.Slowest
				}
				return w.Speedup()
			}
		}},
		{"every fit is Amdahl's", []string{"E4/fit-peak", "E4/fit-at", "E7/recognised"}, func(r *rules) {
			r.fit = func(points []ipso.Point, _ map[string]float64) (*ipso.Fitted, error) {
				return ipso.Law(points, map[string]float64{"delta": 0, "beta": 0, "gamma": 0})
			}
		}},
		{"Gustafson's law is bounded by Amdahl's", []string{"E6/gustafson"}, func(r *rules) {
			r.speedup = func(m ipso.Model, n float64) float64 {
				return math.Min(m.Speedup(n), ipso.Amdahl(m.Eta).Speedup(n))
			}
		}},
	}
}

// measured are the targets of Table 2.1's speed-ups.
func measured() []string {
	return []string{"E4/measured-10", "E4/measured-30", "E4/measured-60", "E4/measured-90", "E4/fit-peak", "E4/fit-at"}
}
