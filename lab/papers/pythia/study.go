// Package pythia is `powerlab paper pythia`: the experiments of PYTHIA (Dimopoulos, Krintz, Wolski:
// "PYTHIA: Admission Control for Multi-Framework, Deadline-Driven, Big Data Workloads", UCSB TR
// 2017-02), with the paper's policies and ours as the admission control of simulated clusters. Only
// the jobs are simulated. All policies get the same, and only the oracle sees what one takes before its end.
package pythia

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/papers"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// source is where jobs come from.
type source struct {
	name string
	// draw gives the jobs of a seed, in the order of their arrivals, with the least time that each can take (its work over its
	// tasks) in the place of its deadline.
	draw       func(seed uint64) []admit.Job
	capacities [3]int // slots
	traced     bool   // the jobs are those of a trace
}

// Which of a source's capacities.
const tight, middle, ample = 0, 1, 2

// parts are the capacities over the peak demand: those of the paper's tightest, the one after it, and its largest, over TR1's peak.
func parts() [3]float64 { return [3]float64{2250. / tr1Peak, 4500. / tr1Peak, 15_000. / tr1Peak} }

// multiple is a deadline type: by what deadlines exceed the least time of their jobs.
type multiple struct {
	name string
	draw func(r *rand.Rand) float64
}

// multiples are the paper's five; the first is the fixed one.
func multiples() []multiple {
	return []multiple{
		{"Fixed2x", func(*rand.Rand) float64 { return 2 }},
		{"Jockey1x2x", func(r *rand.Rand) float64 { return 1 + float64(r.IntN(2)) }},
		{"Jockey2x4x", func(r *rand.Rand) float64 { return 2 + 2*float64(r.IntN(2)) }},
		{"Aria1x3x", func(r *rand.Rand) float64 { return 1 + 2*r.Float64() }},
		{"Aria2x4x", func(r *rand.Rand) float64 { return 2 + 2*r.Float64() }},
	}
}

// The streams of random numbers of a seed.
const jobStream, deadlineStream = 1, 2

// load is a source's jobs with the deadlines of a run. A cut halves the capacity in the middle third of the arrivals.
func (s *source) load(jobs []admit.Job, k key, seed uint64) admit.Load {
	r, m := rand.New(rand.NewPCG(seed, deadlineStream)), multiples()[k.deadlines]
	l := admit.Load{Capacity: s.capacities[k.capacity], Jobs: slices.Clone(jobs)}
	for i := range l.Jobs {
		l.Jobs[i].Deadline *= m.draw(r)
	}
	if first := jobs[0].Arrival; k.cut {
		third := (jobs[len(jobs)-1].Arrival - first) / 3
		l.Changes = []admit.Change{{At: first + third, Slots: l.Capacity / 2}, {At: first + 2*third, Slots: l.Capacity}}
	}
	return l
}

// The moments of the paper's first trace, TR1 (Table I and section IV).
const (
	tr1Jobs   = 159_194
	tr1Hours  = 8_585_673      // of all tasks
	tr1Span   = 91 * 24 * 3600 // three months, s
	tr1Peak   = 9345           // CPUs
	tr1One    = 0.58           // of the jobs have one task
	tr1Ten    = 0.75           // have fewer than 10: "70 to 80 %"
	tr1Large  = 0.13           // have more than 1000
	tr1OneT   = 0.001          // of all time is of jobs with one task
	tr1LargeT = 0.98           // is of jobs with more than 1000
	fewT      = 0.002          // is of jobs with two to nine: all with fewer than ten have "less than 1 %"
	// scale is by what the cluster and the jobs with ten tasks and more are smaller than the paper's. What small jobs get when
	// a cluster is shared depends on how many large ones have piled up, so a trace has to be long against the capacity.
	scale  = 10
	spread = 1.0 // the deviation of the logarithm of task times between jobs: "job computation time varies significantly"
)

// generated are jobs of TR1's moments on a cluster a tenth of the size.
func generated(jobs int) *source {
	return &source{
		name: "generated", capacities: [3]int{2250 / scale, 4500 / scale, 15_000 / scale},
		draw: func(seed uint64) []admit.Job { return generate(seed, jobs) },
	}
}

// class is a part of the generated jobs: from least to most tasks, evenly on a logarithmic scale.
type class struct {
	part, time  float64 // of the jobs, and of all time
	least, most float64
}

func classes() []class {
	return []class{
		{tr1One, tr1OneT, 1, 1},
		{tr1Ten - tr1One, fewT, 2, 9},
		{1 - tr1Ten - tr1Large, 1 - tr1OneT - fewT - tr1LargeT, 10, 1000 / scale},
		{tr1Large, tr1LargeT, 1000 / scale, tr1Peak / scale},
	}
}

func (c *class) tasks(u float64) int { return int(math.Round(c.least * math.Pow(c.most/c.least, u))) }

// meanTasks is the mean of tasks, by the middles of equal parts.
func (c *class) meanTasks() float64 {
	const parts = 1000
	sum := 0.0
	for i := range parts {
		sum += float64(c.tasks((float64(i)+0.5)/parts)) / parts
	}
	return sum
}

func generate(seed uint64, n int) []admit.Job {
	r := rand.New(rand.NewPCG(seed, jobStream))
	all := classes()
	mean := make([]float64, len(all)) // of a task of the class, s
	for i := range all {
		c := &all[i]
		mean[i] = c.time / c.part * tr1Hours * 3600 / tr1Jobs / scale / c.meanTasks()
	}
	jobs := make([]admit.Job, n)
	now := 0.0
	for i := range jobs {
		now += r.ExpFloat64() * tr1Span / tr1Jobs
		u, k := r.Float64(), 0
		for ; k < len(all)-1 && u >= all[k].part; k++ {
			u -= all[k].part
		}
		tasks := all[k].tasks(r.Float64())
		length := mean[k] * math.Exp(spread*r.NormFloat64()-spread*spread/2)
		jobs[i] = admit.Job{User: string(rune('a' + r.IntN(5))), Tasks: tasks, Arrival: now, Deadline: length, Work: length * float64(tasks)}
	}
	return jobs
}

// How jobs of SWIM, of which only bytes are known, become tasks: HDFS blocks, each read by a map task at the rate of one disk
// shared by the tasks of a node, and the start of a container.
const (
	swimBlock = 128 << 20
	swimRate  = 20e6 // bytes a second
	swimStart = 2    // s
)

// traced reads a trace. A seed begins it at another job and wraps around, so that all seeds have the same jobs in
// the same order, and another history behind each.
func traced(name string, f *traces.File) (*source, error) {
	var jobs []admit.Job
	var d demand
	if f.Swim {
		for v, err := range traces.Volumes(f, f.Name()) {
			if err != nil {
				return nil, err
			}
			tasks := v.Tasks(swimBlock)
			work := v.Work(tasks, swimRate, swimStart)
			jobs = append(jobs, admit.Job{Tasks: tasks, Arrival: v.Arrival, Deadline: work / float64(tasks), Work: work})
			d.add(v.Arrival, tasks, work/float64(tasks))
		}
	} else {
		for j, err := range traces.Tasks(f, f.Name()) {
			if err != nil {
				return nil, err
			}
			tasks, work := len(j.Times), max(j.Work(), 1e-3) // some tasks take no time in the trace
			jobs = append(jobs, admit.Job{Tasks: tasks, Arrival: j.Arrival, Deadline: work / float64(tasks), Work: work})
			for _, t := range j.Times {
				d.add(j.Arrival, 1, t)
			}
		}
	}
	s := &source{name: name, traced: true, draw: func(seed uint64) []admit.Job { return rotate(jobs, seed) }}
	peak := float64(d.peak())
	for i, part := range parts() {
		s.capacities[i] = max(1, int(math.Round(part*peak)))
	}
	return s, nil
}

// rotate begins a trace at another job; the gap at the seam is the mean one.
func rotate(jobs []admit.Job, seed uint64) []admit.Job {
	n := len(jobs)
	by := rand.New(rand.NewPCG(seed, jobStream)).IntN(n)
	first, span := jobs[by].Arrival, jobs[n-1].Arrival-jobs[0].Arrival
	out := slices.Concat(jobs[by:], jobs[:by])
	for i := range out {
		out[i].Arrival -= first
		if i >= n-by {
			out[i].Arrival += span + span/float64(n)
		}
	}
	return out
}

// demand is the tasks that would run at once if each ran when its job arrives: a change at each start and end.
type demand []change

type change struct {
	at float64
	by int
}

func (d *demand) add(at float64, tasks int, length float64) {
	*d = append(*d, change{at, tasks}, change{at + length, -tasks})
}

// peak is the most at once; what ends at a time has left what begins then.
func (d *demand) peak() (most int) {
	slices.SortFunc(*d, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now := 0
	for _, c := range *d {
		now += c.by
		most = max(most, now)
	}
	return most
}

// key is one run of a source's jobs.
type key struct {
	policy              admission.Policy
	deadlines, capacity int // which of the multiples, and of the source's capacities
	cut                 bool
	byTasks             bool // slots are shared in proportion to tasks, by NoDrop and Reactive
}

// measures are the paper's of one run, as parts of 1.
type measures struct{ sdr, ptr, wasted float64 }

type trial map[key]measures

// study is what is run: a source on some seeds, by doors that may have a mistake.
type study struct {
	*source

	door func(p admission.Policy, slots int) (admit.Door, error)
	// apart runs NoDrop for each deadline type. Otherwise one run serves all types: it never looks at deadlines.
	apart bool
}

func honest(p admission.Policy, slots int) (admit.Door, error) { return admission.New(p, slots) }

// keys are the runs of a study: the paper's four policies and ours at all capacities under the fixed deadlines, at the two smaller ones
// under the variable deadlines, those that share also by tasks, and ours and what it is held against while the capacity is cut, too.
func keys() (all []key) {
	for i := range multiples() {
		for capacity := tight; capacity <= ample; capacity++ {
			if i > 0 && capacity == ample {
				continue
			}
			add := func(cut, byTasks bool, policies ...admission.Policy) {
				for _, p := range policies {
					all = append(all, key{p, i, capacity, cut, byTasks})
				}
			}
			add(false, false, admission.Policies()...)
			if capacity < ample {
				add(true, false, admission.Adaptive, admission.Pythia, admission.Reactive)
				add(false, true, admission.NoDrop, admission.Reactive)
			}
		}
	}
	return all
}

// run makes all runs on so many seeds.
func (s *study) run(ctx context.Context, seed uint64, seeds int) ([]trial, error) {
	trials := make([]trial, seeds)
	err := papers.Each(seeds, func(i int) (err error) {
		trials[i], err = s.trial(ctx, seed+uint64(i))
		return err
	}, func(int) {})
	return trials, err
}

func (s *study) trial(ctx context.Context, seed uint64) (trial, error) {
	jobs, t := s.draw(seed), trial{}
	shared := map[key]*admit.Outcome{} // of NoDrop, but for the deadline type
	for _, k := range keys() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := s.load(jobs, k, seed)
		alike := key{policy: k.policy, capacity: k.capacity, byTasks: k.byTasks}
		o := shared[alike]
		if k.policy != admission.NoDrop || o == nil || s.apart {
			door, err := s.door(k.policy, l.Capacity)
			if err != nil {
				return nil, err
			}
			if c, ok := door.(interface{ ShareByTasks() }); ok && k.byTasks {
				c.ShareByTasks()
			}
			if o, err = admit.Simulate(door, l); err != nil {
				return nil, fmt.Errorf("%s by %s: %w", s.name, k.policy, err)
			}
		}
		if k.policy == admission.NoDrop {
			shared[alike] = o
			o.Judge(l.Jobs)
		}
		m := o.Measure(l.Jobs)
		t[k] = measures{*m.SDR, *m.PTR, 0}
		if m.Wasted != nil { // where nothing was done, nothing was wasted
			t[k] = measures{*m.SDR, *m.PTR, *m.Wasted}
		}
	}
	return t, nil
}

// NewCommand is `powerlab paper pythia`. Its generated jobs of a seed are enough for jobs to pile up under nodrop until small ones no
// longer get a slot each.
func NewCommand() *cobra.Command { return newCommand(20_000) }

func newCommand(jobs int) *cobra.Command {
	return papers.Study{
		Paper: "pythia", Seeds: 5, Traces: true,
		Short: "Admission control of jobs with deadlines (PYTHIA)",
		Long: `Repeats PYTHIA's experiments: admission of jobs with deadlines to a cluster of three capacities, from far too small to
ample, under the paper's five deadline types and four policies, and under ours (adaptive), also while the capacity is
halved for a third of the time. Only the policy oracle has the time of a job before the job has ended.

The paper's traces are not public. Jobs are generated with the published moments of its first trace, on a tenth of its
slots. --traces names a folder of published traces, and repeats the study on each of them:

  hawk-format/GOOG_subtrace.tr, YH1_sub.tr, YH2_sub.tr    as published with Hawk, Eagle and Pigeon
  swim/FB-2010_samples_24_times_1hr_0.tsv                 of SWIM; tasks are derived from its bytes

Without it those targets are not_run. A seed draws jobs and deadlines; on a trace it draws the deadlines and the job
that the trace begins with.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) { return simulate(ctx, o, jobs) },
	}.Command()
}

// simulate runs all experiments. Traces are read before anything runs, so that a mistake in one costs no time.
func simulate(ctx context.Context, o *papers.Options, jobs int) (*papers.Result, error) {
	sources := []*source{generated(jobs)}
	var left []report.Target
	for _, name := range []string{"google", "yahoo1", "yahoo2", "facebook2010"} {
		why, err := o.Traces.Read(name, func(f *traces.File) error {
			s, err := traced(name, f)
			sources = append(sources, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		if why != "" {
			for _, t := range (&figures{source: &source{name: name, traced: true}}).targets() {
				missing := report.Left(t.ID, t.What, t.Unit, why)
				missing.Paper = t.Paper
				left = append(left, missing)
			}
		}
	}
	out := &papers.Result{}
	for _, s := range sources {
		cli.Notef(o.Progress, "%s: %d seeds of %d runs", s.name, o.Seeds, len(keys()))
		trials, err := (&study{source: s, door: honest}).run(ctx, o.Seed, o.Seeds)
		if err != nil {
			return nil, err
		}
		out.Targets = append(out.Targets, (&figures{source: s, trials: trials}).targets()...)
	}
	out.Targets = append(out.Targets, left...)
	return out, nil
}
