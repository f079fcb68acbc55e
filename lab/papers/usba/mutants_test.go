package usba

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/usba"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// Every target that can get worse does so under a mistake.
func TestMutants(t *testing.T) {
	t.Parallel()
	var all []reporttest.Mutant
	for _, x := range mutants() {
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(context.Context) ([]report.Target, error) { return x.rules.judged() }})
	}
	reporttest.Mutants(t, testkit.Need(honest().judged())(t), all)
}

// mutant is the study with one mistake.
type mutant struct {
	name     string
	expected []string
	rules    rules
}

// named are targets of all benchmarks, but for those left out.
func named(target, what string, without ...string) (ids []string) {
	for _, b := range benchmarks() {
		if !slices.Contains(without, b.name) {
			ids = append(ids, target+"/"+b.name+what)
		}
	}
	return ids
}

// mutants are all mistakes, each with the targets that must notice it.
func mutants() []mutant {
	with := func(speedup func(m usba.Model, n, degree float64) float64) rules {
		r := honest()
		r.speedup = speedup
		return r
	}
	fitted := func(fit func(points []usba.Point, held map[string]float64) (*usba.Fitted, error)) rules {
		r := honest()
		r.fit = fit
		return r
	}
	return []mutant{
		{"logarithms have base 10", slices.Concat(named("F2", ""), named("F2", "-r")), with(func(m usba.Model, n, degree float64) float64 {
			m.Alpha /= math.Ln10
			return m.Speedup(n, degree)
		})},
		{"the launch counts twice", []string{"F1/one"}, with(func(m usba.Model, n, degree float64) float64 {
			return m.Speedup(n, degree) / (1 + m.R/2)
		})},
		{"units cost nothing", slices.Concat(named("F3", ""), named("F3", "-mean"), named("F4", ""), named("F5", "-peaks", "svm"), []string{"F5/svm-falls"}), with(func(m usba.Model, n, degree float64) float64 {
			m.Beta, m.Eps = 0, 0
			m.Gamma = max(0, m.Gamma)
			return m.Speedup(n, degree)
		})},
		{"sequential time does not grow with the size", named("F5", "-size"), with(func(m usba.Model, n, degree float64) float64 {
			return m.Speedup(n, degree) * (m.R + 1) / (m.R + n)
		})},
		{"every second speed-up of the fit is four times too high", slices.Concat(named("F6", ""), named("F6", "-mean"), named("F6", "-p", "svm"), named("F6", "-far")), fitted(func(points []usba.Point, held map[string]float64) (*usba.Fitted, error) {
			other := slices.Clone(points)
			for i := range other {
				other[i].Speedup *= float64(1 + 3*(i%2))
			}
			return usba.Fit(other, held)
		})},
		{"the fit leaves the cost of units out", []string{"F6/svm-p"}, fitted(func(points []usba.Point, held map[string]float64) (*usba.Fitted, error) {
			without := maps.Clone(held)
			without["beta"] = 0
			return usba.Fit(points, without)
		})},
	}
}
