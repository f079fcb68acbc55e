package dias

import (
	"slices"

	"headroom/lab/report"
)

// quantity is one number of a run.
type quantity func(r *result) float64

func meanOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].mean } }
func tailOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].p95 } }
func queueOf(class int) quantity { return func(r *result) float64 { return r.classes[class].queue } }
func execOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].exec } }
func shareOf(class int) quantity {
	return func(r *result) float64 { return 100 * r.classes[class].share }
}
func wasteOf(r *result) float64     { return 100 * r.waste }
func overtakenOf(r *result) float64 { return 100 * r.overtaken }
func energyOf(r *result) float64    { return r.joules }
func wholeOf(r *result) float64     { return r.idle }

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
func (s *study) of(experiment, policy string, q quantity) report.Stat {
	var values []float64
	for _, r := range s.results(experiment, policy) {
		values = append(values, q(r))
	}
	return report.Of(values)
}

// change is by how many percent a quantity is higher under a policy than under another
// on the same arrivals.
func (s *study) change(experiment, policy, than string, q quantity) report.Stat {
	return report.Of(s.each(experiment, policy, than, q))
}
