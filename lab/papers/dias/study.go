package dias

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"headroom/jobs/buffers"

	"headroom/lab/papers"
)

// experiment is one set-up of the paper: what arrives, and the policies compared on it.
type experiment struct {
	name, what string
	classes    []class
	policies   []policy
	// found are the policies of ours, which differ by seed: the first seed's first.
	found []policy
	// faults are those of a mutant's machine.
	faults faults
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

// Mean times of jobs with all tasks: of 1117 and 473 MB for two classes, of the
// three-class set-up for three (its 2.3 jobs a minute at 80 % load would be 21 s a job,
// while all other text jobs take some 100 s).
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
const (
	limitedBudget   = "limited"
	unlimitedBudget = "unlimited"
)

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

func subscript(percent []float64) string {
	var words []string
	for _, x := range percent {
		words = append(words, fmt.Sprintf("%g", x))
	}
	return "(" + strings.Join(words, ",") + ")"
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

// text2 is an experiment of two classes of text jobs; low of ten jobs are of the low one,
// whose jobs are those of 1117 MB.
func text2(name, what string, load, low, highSize float64) experiment {
	e := experiment{name: name, what: what, policies: []policy{preemptive(), nonPreemptive(), da(0, 10), da(0, 20)}}
	e.classes = loaded(load, class{"high", 10 - low, words(highSize)}, class{"low", low, words(lowMean)})
	return e
}

// experiments are those of section 5, in its order.
func experiments() []experiment {
	ref := text2(reference, "Fig. 7", usualLoad, 9, highMean)
	triple := experiment{
		name: three, what: "Fig. 9",
		classes:  loaded(usualLoad, class{"high", 1, words(threeHigh)}, class{"medium", 4, words(threeMedium)}, class{"low", 5, words(threeLow)}),
		policies: []policy{preemptive(), nonPreemptive(), da(0, 10, 20), da(0, 20, 40)},
	}
	count := experiment{
		name: triangle, what: "Fig. 10",
		classes:  loaded(usualLoad, class{"high", 3, triangles()}, class{"low", 7, triangles()}),
		policies: []policy{preemptive(), nonPreemptive(), da(0, 1), da(0, 2), da(0, 5), da(0, 10), da(0, 20)},
	}
	all := experiment{
		name: complete, what: "Fig. 11, Table 2",
		classes:  []class{{"high", 0.3 * completeRate, triangles()}, {"low", 0.7 * completeRate, triangles()}},
		policies: []policy{preemptive(), nonPreemptive(), da(0, 10), da(0, 20)},
	}
	for _, budget := range []string{limitedBudget, unlimitedBudget} {
		all.policies = append(all.policies, sprinted(budget), sprinted(budget, 0, 10), sprinted(budget, 0, 20))
	}
	return []experiment{
		ref,
		text2(sameSize, "Fig. 8a", usualLoad, 9, lowMean),
		text2(mostlyHigh, "Fig. 8b", mostlyHighFor, 1, highMean),
		text2(lowLoad, "Fig. 8c", halfLoad, 9, highMean),
		triple, count, all,
	}
}

// loaded turns the classes' shares of the jobs into rates that give a load.
func loaded(load float64, classes ...class) []class {
	e := experiment{classes: classes}
	scale := load / e.offered()
	for i := range classes {
		classes[i].rate *= scale
	}
	return classes
}

// offered is the load of the classes with all tasks at base frequency.
func (e experiment) offered() float64 {
	sum := 0.0
	for _, c := range e.classes {
		sum += c.rate * profile(c.work, 0).mean
	}
	return sum
}

// moments of a job's time, s and s^2.
type moments struct{ mean, square float64 }

// profiled is how many jobs profiling takes, as before an experiment on real machines
// (section 5.1); its draws are no experiment's.
const profiled = 4000

// profile measures jobs of a kind at a drop ratio.
func profile(w work, theta float64) moments {
	rng := rand.New(rand.NewPCG(1, 1<<63))
	var m moments
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
	classes []measured // the highest first
	waste   float64    // of all machine time
	joules  float64    // of all jobs, each job
	idle    float64    // the same with what the idle server drew
	busy    float64    // of the time
	// overtaken is the part of the jobs that a later one of their class has overtaken.
	overtaken float64
}

// measured is one class of a run, in seconds and joules each job.
type measured struct {
	mean, p95   float64 // response time
	queue, exec float64
	share       float64 // of the last runs' time that was sprinted
	joules      float64
	jobs        int
}

// warm is the part of the jobs that come before latencies count.
const warm = 0.1

// measure sums a run up.
func measure(o *outcome, classes int) result {
	r := result{classes: make([]measured, classes)}
	if w, known := o.waste.Ratio(); known {
		r.waste = w
	}
	responses := make([][]float64, classes)
	joules, counts := make([]float64, classes), make([]int, classes)
	for i := range o.jobs {
		d := &o.jobs[i]
		joules[d.class] += d.joules
		if d.overtaken {
			r.overtaken += 1 / float64(len(o.jobs))
		}
		counts[d.class]++
		if float64(i) < warm*float64(len(o.jobs)) {
			continue
		}
		m := &r.classes[d.class]
		m.jobs++
		m.mean, m.queue, m.exec, m.share = m.mean+d.response, m.queue+d.response-d.exec, m.exec+d.exec, m.share+d.fast
		responses[d.class] = append(responses[d.class], d.response)
	}
	for k := range r.classes {
		r.classes[k].finish(responses[k])
		r.classes[k].joules = joules[k] / float64(max(1, counts[k]))
		r.joules += joules[k] / float64(len(o.jobs))
	}
	r.busy = o.busy / o.span
	r.idle = r.joules + idleWatts*(o.span-o.busy)/float64(len(o.jobs))
	return r
}

// finish turns sums into means.
func (m *measured) finish(responses []float64) {
	if m.jobs == 0 {
		return
	}
	m.share /= m.exec
	n := float64(m.jobs)
	m.mean, m.queue, m.exec = m.mean/n, m.queue/n, m.exec/n
	slices.Sort(responses)
	m.p95 = responses[(95*m.jobs+99)/100-1]
}

// try runs all policies of an experiment on the arrivals of the k-th seed.
func (e experiment) try(ctx context.Context, seed uint64, k int, stream uint64, jobs int) (trial, error) {
	tr := arrive(seed, stream, e.classes, jobs)
	var t trial
	for _, p := range e.policies {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.name == ours {
			p = e.found[k]
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

// run tries every experiment with the requested number of seeds, the first being seed, on
// all cores. said is called after each trial with the number done.
func run(ctx context.Context, all []experiment, seed uint64, seeds, jobs int, said func(done, of int)) (*study, error) {
	s := &study{experiments: all, trials: make([][]trial, len(all))}
	for i := range s.trials {
		s.trials[i] = make([]trial, seeds)
	}
	err := papers.Each(len(all)*seeds, func(i int) (err error) {
		e, k := i%len(all), i/len(all)
		s.trials[e][k], err = all[e].try(ctx, seed+uint64(k), k, uint64(e), jobs)
		return err
	}, func(done int) { said(done, len(all)*seeds) })
	return s, err
}
