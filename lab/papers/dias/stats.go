package dias

import (
	"math"
	"slices"

	"headroom/lab/papers"
)

// of is the stat of one value for each seed; unknown without any, or where one is unknown.
func of(values []float64) papers.Stat {
	n := len(values)
	sum, squares := 0.0, 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(n)
	if n == 0 || math.IsNaN(mean) || math.IsInf(mean, 0) {
		return papers.Stat{} // a class without jobs has no mean
	}
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	half := 0.0
	if n > 1 {
		half = student(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	}
	return papers.Stat{Mean: mean, Low: mean - half, High: mean + half, Known: true}
}

// student is how many standard errors on both sides hold 95 of 100 means, by degrees
// of freedom: a table, then its expansion around the normal's (Abramowitz and Stegun 26.7.5).
func student(freedom int) float64 {
	table := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262}
	if freedom <= len(table) {
		return table[freedom-1]
	}
	const z = 1.959964
	n := float64(freedom)
	const z3, z5, z7 = z * z * z, z * z * z * z * z, z * z * z * z * z * z * z
	return z + (z3+z)/(4*n) + (5*z5+16*z3+3*z)/(96*n*n) + (3*z7+19*z5+17*z3-15*z)/(384*n*n*n)
}

// quantity is one number of a run.
type quantity func(r *result) float64

func meanOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].mean } }
func tailOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].p95 } }
func queueOf(class int) quantity { return func(r *result) float64 { return r.classes[class].queue } }
func execOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].exec } }
func shareOf(class int) quantity {
	return func(r *result) float64 { return 100 * r.classes[class].share }
}
func wasteOf(r *result) float64  { return 100 * r.waste }
func energyOf(r *result) float64 { return r.joules }
func wholeOf(r *result) float64  { return r.idle }

// results are those of a policy in an experiment, one for each seed; none where they
// were not run.
func (s *study) results(name, by string) []*result {
	e := slices.IndexFunc(s.experiments, func(x experiment) bool { return x.name == name })
	if e < 0 {
		return nil
	}
	p := slices.IndexFunc(s.experiments[e].policies, func(x policy) bool { return x.name == by })
	if p < 0 {
		return nil
	}
	var out []*result
	for _, t := range s.trials[e] {
		if p < len(t) {
			out = append(out, &t[p])
		}
	}
	return out
}

// of is a quantity of a policy in an experiment.
func (s *study) of(experiment, policy string, q quantity) papers.Stat {
	var values []float64
	for _, r := range s.results(experiment, policy) {
		values = append(values, q(r))
	}
	return of(values)
}

// change is by how many percent a quantity is higher under a policy than under another
// on the same arrivals.
func (s *study) change(experiment, policy, than string, q quantity) papers.Stat {
	return of(s.each(experiment, policy, than, q))
}
