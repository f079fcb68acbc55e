package dias

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"headroom/internal/cli"
	"headroom/jobs/buffers"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// experiment is one set-up of the paper: what arrives, and the policies compared on it.
type experiment struct {
	name     string
	classes  []class
	policies []policy
	ours     []policy // those of ours, which differ by seed: the first seed's first
	faults   faults   // of a mutant's machine
}

// Names of experiments.
const (
	reference  = "reference"
	sameSize   = "same size"
	mostlyHigh = "mostly high"
	lowLoad    = "low load"
	three      = "three classes"
	triangle   = "triangle count"
	complete   = "complete"
)

// Mean times of jobs with all tasks: of 1117 and 473 MB for two classes, of the three-class set-up for three (its 2.3 jobs a
// minute at 80 % load would be 21 s a job, while all other text jobs take some 100 s).
const (
	lowMean, highMean                  = 125, 53
	threeLow, threeMedium, threeHigh   = 140, 90, 53
	usualLoad, halfLoad, mostlyHighFor = 0.8, 0.5, 0.65
	// completeRate is that of Table 2: its queueing times of NPS imply a load of 0.814.
	completeRate = 0.006079
)

func preemptive() policy    { return policy{name: "P", discipline: buffers.P} }
func nonPreemptive() policy { return policy{name: "NP", discipline: buffers.NP} }

// da drops by class, the highest first, in percent.
func da(percent ...float64) policy {
	return policy{name: "DA" + subscript(percent), discipline: buffers.DA, thetas: parts(percent)}
}

// Budgets of sprints.
const limitedBudget, unlimitedBudget = "limited", "unlimited"

// sprinted is a policy whose highest class sprints: NPS, or DIAS where it drops.
func sprinted(budget string, percent ...float64) policy {
	p := policy{name: "NPS", discipline: buffers.NPS, pot: limited, after: sprintAfter}
	if len(percent) > 0 {
		p.name, p.discipline, p.thetas = "DIAS"+subscript(percent), buffers.DIAS, parts(percent)
	}
	if budget == unlimitedBudget {
		p.pot, p.after = unlimited, 0
	}
	p.name += " " + budget
	return p
}

// subscript names drop ratios, parts makes them parts of 1.
func subscript(percent []float64) string {
	return "(" + strings.ReplaceAll(strings.Trim(fmt.Sprint(percent), "[]"), " ", ",") + ")"
}

func parts(percent []float64) []float64 {
	out := slices.Clone(percent)
	for i := range out {
		out[i] /= 100
	}
	return out
}

// ratios are the drop ratios of Figs. 4 and 5, in percent.
func ratios() []float64 { return []float64{0, 10, 20, 40, 60, 80, 90} }

// text2 is an experiment of two classes of text jobs; low of ten jobs are of the low one, whose jobs are those of 1117 MB.
func text2(name string, load, low, highSize float64) experiment {
	return experiment{
		name: name, policies: []policy{preemptive(), nonPreemptive(), da(0, 10), da(0, 20)},
		classes: loaded(load, class{"high", 10 - low, words(highSize)}, class{"low", low, words(lowMean)}),
	}
}

// experiments are those of section 5, in its order: Figs. 7, 8a, 8b, 8c, 9, 10, and 11 with Table 2.
func experiments() []experiment {
	all := []policy{preemptive(), nonPreemptive()}
	for _, budget := range []string{limitedBudget, unlimitedBudget} {
		all = append(all, sprinted(budget), sprinted(budget, 0, 10), sprinted(budget, 0, 20))
	}
	return []experiment{
		text2(reference, usualLoad, 9, highMean), text2(sameSize, usualLoad, 9, lowMean),
		text2(mostlyHigh, mostlyHighFor, 1, highMean), text2(lowLoad, halfLoad, 9, highMean),
		{
			name:     three,
			classes:  loaded(usualLoad, class{"high", 1, words(threeHigh)}, class{"medium", 4, words(threeMedium)}, class{"low", 5, words(threeLow)}),
			policies: []policy{preemptive(), nonPreemptive(), da(0, 10, 20), da(0, 20, 40)},
		},
		{
			name:     triangle,
			classes:  loaded(usualLoad, class{"high", 3, triangles()}, class{"low", 7, triangles()}),
			policies: []policy{preemptive(), nonPreemptive(), da(0, 1), da(0, 2), da(0, 5), da(0, 10), da(0, 20)},
		},
		{name: complete, classes: []class{{"high", 0.3 * completeRate, triangles()}, {"low", 0.7 * completeRate, triangles()}}, policies: all},
	}
}

// loaded turns the classes' shares of the jobs into rates that give a load with all tasks at base frequency.
func loaded(load float64, classes ...class) []class {
	offered := 0.0
	for _, c := range classes {
		offered += c.rate * profile(c.work, 0).mean
	}
	scale := load / offered
	for i := range classes {
		classes[i].rate *= scale
	}
	return classes
}

// moments of a job's time, s and s^2.
type moments struct{ mean, square float64 }

// profile measures thousands of jobs of a kind at a drop ratio, as before an experiment on real machines
// (section 5.1); its draws are no experiment's.
func profile(w work, theta float64) (m moments) {
	const profiled = 4000
	rng := rand.New(rand.NewPCG(1, 1<<63))
	for range profiled {
		s := w.job(theta, rng).seconds()
		m.mean, m.square = m.mean+s/profiled, m.square+s*s/profiled
	}
	return m
}

// trial is one experiment with one seed: a result for each policy.
type trial []result

// result is what one run came to.
type result struct {
	classes   []measured // the highest first
	waste     float64    // of all machine time
	joules    float64    // of all jobs, each job
	idle      float64    // the same with what the idle server drew
	busy      float64    // of the time
	overtaken float64    // the part of the jobs that a later one of their class has overtaken
}

// measured is one class of a run, in seconds and joules each job.
type measured struct {
	mean, p95   float64 // response time
	queue, exec float64
	share       float64 // of the last runs' time that was sprinted
	joules      float64
}

// measure sums a run up; the first tenth of the jobs comes before latencies count.
func measure(o *outcome, classes int) result {
	const warm = 0.1
	r := result{classes: make([]measured, classes), busy: o.busy / o.span}
	r.waste, _ = o.waste.Ratio()
	responses := make([][]float64, classes)
	counts, n := make([]float64, classes), float64(len(o.jobs))
	for i := range o.jobs {
		d := &o.jobs[i]
		m := &r.classes[d.class]
		m.joules += d.joules
		counts[d.class]++
		if d.overtaken {
			r.overtaken += 1 / n
		}
		if float64(i) >= warm*n {
			m.mean, m.queue, m.exec, m.share = m.mean+d.response, m.queue+d.response-d.exec, m.exec+d.exec, m.share+d.fast
			responses[d.class] = append(responses[d.class], d.response)
		}
	}
	for k := range r.classes {
		m := &r.classes[k]
		r.joules += m.joules / n
		m.joules /= max(1, counts[k])
		m.finish(responses[k])
	}
	r.idle = r.joules + idleWatts*(o.span-o.busy)/n
	return r
}

// finish turns sums into means.
func (m *measured) finish(responses []float64) {
	if len(responses) == 0 {
		return
	}
	m.share /= m.exec
	n := float64(len(responses))
	m.mean, m.queue, m.exec = m.mean/n, m.queue/n, m.exec/n
	slices.Sort(responses)
	m.p95 = responses[(95*len(responses)+99)/100-1]
}

// try runs all policies of an experiment on the arrivals of the k-th seed.
func (e experiment) try(ctx context.Context, seed uint64, k int, stream uint64, jobs int) (t trial, err error) {
	tr := arrive(seed, stream, e.classes, jobs)
	for _, p := range e.policies {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.name == ours {
			p = e.ours[k]
		}
		o, err := simulate(tr, p, e.faults)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		t = append(t, measure(o, len(e.classes)))
	}
	return t, nil
}

// study is all experiments with all seeds.
type study struct {
	experiments []experiment
	trials      [][]trial // by experiment and seed
}

// run tries every experiment with the requested number of seeds, the first being seed, on all cores.
func run(ctx context.Context, all []experiment, seed uint64, seeds, jobs int, progress io.Writer) (*study, error) {
	s := &study{experiments: all, trials: make([][]trial, len(all))}
	for i := range s.trials {
		s.trials[i] = make([]trial, seeds)
	}
	err := papers.Each(len(all)*seeds, func(i int) (err error) {
		e, k := i%len(all), i/len(all)
		s.trials[e][k], err = all[e].try(ctx, seed+uint64(k), k, uint64(e), jobs)
		return err
	}, func(done int) {
		if done%len(all) == 0 {
			cli.Notef(progress, "%d of %d seeds", done/len(all), seeds)
		}
	})
	return s, err
}

// quantity is one number of a run.
type quantity func(r *result) float64

func meanOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].mean } }
func tailOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].p95 } }
func queueOf(class int) quantity { return func(r *result) float64 { return r.classes[class].queue } }
func execOf(class int) quantity  { return func(r *result) float64 { return r.classes[class].exec } }
func wasteOf(r *result) float64  { return 100 * r.waste }
func busyOf(r *result) float64   { return 100 * r.busy }

// index is the place of an experiment, below 0 where it is not run.
func (s *study) index(name string) int {
	return slices.IndexFunc(s.experiments, func(x experiment) bool { return x.name == name })
}

// values are a quantity of a policy in an experiment, one for each seed; none where they were not run.
func (s *study) values(name, by string, q quantity) (all []float64) {
	e := s.index(name)
	if e < 0 {
		return nil
	}
	p := slices.IndexFunc(s.experiments[e].policies, func(x policy) bool { return x.name == by })
	if p < 0 {
		return nil
	}
	for _, t := range s.trials[e] {
		if p < len(t) {
			all = append(all, q(&t[p]))
		}
	}
	return all
}

// of is a quantity of a policy in an experiment.
func (s *study) of(experiment, policy string, q quantity) report.Stat {
	return report.Of(s.values(experiment, policy, q))
}

// each is by how many percent a quantity is higher under a policy than under another on the same arrivals, by seed.
func (s *study) each(experiment, policy, than string, q quantity) []float64 {
	a, b := s.values(experiment, policy, q), s.values(experiment, than, q)
	if len(a) != len(b) {
		return nil
	}
	for i := range a {
		a[i] = (a[i]/b[i] - 1) * 100
	}
	return a
}

// change is the stat of each.
func (s *study) change(experiment, policy, than string, q quantity) report.Stat {
	return report.Of(s.each(experiment, policy, than, q))
}
