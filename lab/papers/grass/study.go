package grass

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"headroom/internal/cli"
	"headroom/jobs/speculation"
	"headroom/lab/papers"
)

// The policies that the study runs, by name.
const (
	none      = "none"
	late      = "late"
	mantri    = "mantri"
	gs        = "gs"
	ras       = "ras"
	grassName = "grass"
	strawman  = "strawman"
	ours      = "ours"
	oracle    = "oracle"
)

// variants are all policies, with the paper's xi where they learn.
func variants() []variant {
	all := []variant{
		{name: none, policy: speculation.None},
		{name: late, policy: speculation.LATE},
		{name: mantri, policy: speculation.Mantri},
		{name: gs, policy: speculation.GS},
		{name: ras, policy: speculation.RAS},
		{name: strawman, policy: speculation.Strawman},
		{name: grassName, policy: speculation.GRASS, xi: speculation.Xi},
		{name: ours, policy: speculation.Ours, xi: speculation.Xi},
		{name: oracle, policy: speculation.Oracle, knows: true},
	}
	for _, xi := range xis() {
		all = append(all, variant{name: xiName(xi), policy: speculation.GRASS, xi: xi})
	}
	return all
}

// xis are the parts of sample jobs that C7 tries.
func xis() []float64 { return []float64{0.02, 0.05, 0.15, 0.25, 0.5} }

func xiName(xi float64) string { return fmt.Sprintf("grass-xi-%.0f", 100*xi) }

// named are the variants of some names.
func named(names ...string) []variant {
	return slices.DeleteFunc(variants(), func(v variant) bool { return !slices.Contains(names, v.name) })
}

// scene is one experiment on all jobs of a load.
type scene struct {
	name string
	// byDeadline, with the slack of the jobs or this one; otherwise by the jobs' error bounds, or
	// exact: all tasks.
	byDeadline, exact bool
	slack             float64
	caps              *caps
	// stages are the intermediate ones after the input's.
	stages int
	// few: jobs of so few tasks that the oracle can search.
	few bool
	// variants that it runs.
	variants []string
}

// capped is the speed of a node under a cap.
const capped = 0.4

// Scenes by name.
const (
	deadlines       = "deadline"
	errorBounds     = "error"
	exactJobs       = "exact"
	deadlinesCapped = "deadline-capped"
	errorsCapped    = "error-capped"
	deadlinesFew    = "deadline-few"
	errorsFew       = "error-few"
)

// slackNames are the scenes of C9 by slack, dagNames those by stages.
func slackNames() []string { return []string{"slack-2", "slack-8", "slack-14", "slack-20"} }

func dagNames(kind string) []string {
	return []string{"dag-2-" + kind, "dag-4-" + kind, "dag-6-" + kind}
}

// scenes are all experiments.
func scenes() []scene {
	all := []string{none, late, mantri, gs, ras, strawman, grassName, ours}
	for _, xi := range xis() {
		all = append(all, xiName(xi))
	}
	some := []string{late, mantri, gs, ras, grassName, ours}
	few := []string{late, gs, ras, grassName, oracle}
	c := &caps{speeds: capped}
	out := []scene{
		{name: deadlines, byDeadline: true, variants: all},
		{name: errorBounds, variants: all},
		{name: exactJobs, exact: true, variants: some},
		{name: deadlinesCapped, byDeadline: true, caps: c, variants: some},
		{name: errorsCapped, caps: c, variants: some},
		{name: deadlinesFew, byDeadline: true, few: true, variants: few},
		{name: errorsFew, few: true, variants: few},
	}
	for i, name := range slackNames() {
		out = append(out, scene{name: name, byDeadline: true, slack: []float64{0.02, 0.08, 0.14, 0.2}[i], variants: []string{late, grassName}})
	}
	for _, kind := range []string{deadlines, errorBounds} {
		for i, name := range dagNames(kind) {
			out = append(out, scene{name: name, byDeadline: kind == deadlines, stages: 2*i + 1, variants: []string{late, grassName}})
		}
	}
	return out
}

// past is what earlier jobs have taught: jobs of a history, not those that are judged, until
// these have ended.
type past struct {
	samples *speculation.Samples
}

func (p *past) of(v variant) *speculation.Samples {
	if v.policy == speculation.GRASS || v.policy == speculation.Ours {
		return p.samples
	}
	return nil
}

// study is what is run for each seed.
type study struct {
	jobs, history int
	// sizes are the numbers of tasks of a trace's jobs; nil for drawn ones.
	sizes []int
	// only runs these variants, with a mistake; nil runs all as they are.
	only    []string
	mistake func(*variant)
	// scenes are those by these names; nil for all.
	scenes []string
}

// key names the runs of a scene's jobs by a variant.
type key struct{ scene, variant string }

// result is what the jobs of a scene achieved: the mean part of the tasks that were done to a
// deadline, or otherwise the mean time over the ideal, by bin and over all.
type result struct {
	bins [bins]float64
	all  float64
	// left and fresh are the accuracies of the estimates.
	left, fresh float64
}

// trial are the results of a seed.
type trial map[key]result

// run runs the study on each seed.
func (s study) run(ctx context.Context, seed uint64, seeds int, progress io.Writer) ([]trial, error) {
	trials := make([]trial, seeds)
	err := papers.Each(seeds, func(i int) (err error) {
		trials[i], err = s.seed(ctx, seed+uint64(i))
		return err
	}, func(done int) { cli.Notef(progress, "%d of %d seeds", done, seeds) })
	return trials, err
}

// seed runs all scenes on the jobs of a seed.
func (s study) seed(ctx context.Context, seed uint64) (trial, error) {
	t := trial{}
	jobs, history := load(seed, s.jobs, s.sizes), load(seed^0x5bd1e995<<32, s.history, s.sizes)
	fewJobs, fewHistory := few(seed, s.jobs), few(seed^0x2545f491<<32, s.history)
	for _, sc := range scenes() {
		if s.scenes != nil && !slices.Contains(s.scenes, sc.name) {
			continue
		}
		mine, before := jobs, history
		if sc.few {
			mine, before = fewJobs, fewHistory
		}
		m := memory{scene: sc, jobs: before, ran: map[string]outcome{}}
		for _, v := range named(sc.variants...) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if s.only != nil && !slices.Contains(s.only, v.name) {
				continue
			}
			if s.mistake != nil {
				s.mistake(&v)
			}
			r, err := sc.run(mine, v, &m)
			if err != nil {
				return nil, fmt.Errorf("%s by %s: %w", sc.name, v.name, err)
			}
			t[key{sc.name, v.name}] = r
		}
	}
	return t, nil
}

// few are jobs that the oracle can search.
func few(seed uint64, n int) []spec {
	r := rand.New(rand.NewPCG(seed, 0xbb67ae85))
	all := load(seed, n, []int{9})
	for i := range all {
		all[i].tasks, all[i].width = 6+r.IntN(4), 2+r.IntN(2)
	}
	return all
}

// memory runs the jobs of a history that were samples, each once.
type memory struct {
	scene scene
	jobs  []spec
	ran   map[string]outcome
}

// recall are the samples that a variant's earlier jobs gave.
func (m *memory) recall(v variant) (*past, error) {
	p := &past{samples: speculation.NewSamples(speculation.AllFactors)}
	for i := range m.jobs {
		s := &m.jobs[i]
		policy, sample := speculation.Explore(v.xi, s.explore)
		if !sample {
			continue
		}
		k := fmt.Sprint(i, policy)
		o, ok := m.ran[k]
		if !ok {
			var err error
			if o, err = m.scene.play(s, variant{name: string(policy), policy: policy}, p); err != nil {
				return nil, err
			}
			m.ran[k] = o
		}
		if err := p.add(s, m.scene, policy, o); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// meanSize makes the time of a task with an input of size 1 of the median task: about the mean
// of the inputs' sizes. It counts only until tasks of the job itself have ended.
const meanSize = 1.3

// unitBefore is the time of a task with an input of size 1, s, by the median task of earlier jobs.
func unitBefore() float64 { return median() / meanSize }

// accuracyBefore is that of estimates before any of the job's own was checked: the mean of the
// paper's two.
const accuracyBefore = 0.74

// accuracyOf is the mean of both estimates' accuracies.
func accuracyOf(left, fresh *speculation.Accuracy) float64 {
	a, ok := left.Value()
	b, ok2 := fresh.Value()
	if !ok || !ok2 {
		return accuracyBefore
	}
	return (a + b) / 2
}

// parts of a job, up to its end, are samples.
func parts() []float64 { return []float64{0.125, 0.25, 0.5, 0.75, 1} }

// add takes samples from a job that has ended.
func (p *past) add(s *spec, sc scene, policy speculation.Policy, o outcome) error {
	x := speculation.Sample{
		Greedy: policy == speculation.GS, ByDeadline: sc.byDeadline, Tasks: s.tasks, Width: s.width, Utilisation: s.utilisation, Accuracy: accuracyOf(&o.left, &o.fresh),
	}
	for _, part := range parts() {
		x.Size, x.Result = part*o.took, o.within(part*o.took)
		if !sc.byDeadline {
			n := int(part * float64(len(o.at)))
			x.Size, x.Result = float64(n), o.last(n)
		}
		if x.Size > 0 {
			if err := p.samples.Add(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// within is how many tasks ended in the last so many seconds.
func (o *outcome) within(length float64) float64 {
	n := 0
	for _, at := range o.at {
		if at > o.took-length {
			n++
		}
	}
	return float64(n)
}

// last is how long the last n tasks took.
func (o *outcome) last(n int) float64 {
	if n == len(o.at) {
		return o.took
	}
	return o.took - o.at[len(o.at)-n-1]
}

// promise is what a job of the scene promises for its input's stage.
func (sc *scene) promise(s *spec) promise {
	slack := s.slack
	if sc.slack > 0 {
		slack = sc.slack
	}
	switch {
	case sc.byDeadline:
		// The deadline is for all stages, each with the slack. What later ones are expected to take,
		// their ideal, is not left for the input's.
		left := s.ideal() * (1 + slack)
		for _, later := range s.later(sc.stages) {
			left += later.ideal() * slack
		}
		return promise{left: left}
	case sc.exact:
		return promise{}
	}
	return promise{err: s.err}
}

// later are the stages after the input's, each with half of the tasks of the one before.
func (s *spec) later(n int) []spec {
	all := make([]spec, n)
	tasks := s.tasks
	for i := range all {
		tasks = max(1, tasks/2)
		all[i] = *s
		all[i].seed, all[i].tasks, all[i].width, all[i].sizes = s.seed+uint64(i)+1, tasks, min(s.width, max(2, tasks)), nil
	}
	return all
}

// play runs a job of the scene.
func (sc *scene) play(s *spec, v variant, p *past) (outcome, error) {
	return play(s, v, sc.promise(s), p, sc.caps)
}

// run runs the jobs by a variant, one after another: each may learn from those that have ended.
func (sc *scene) run(jobs []spec, v variant, m *memory) (result, error) {
	p, err := m.recall(v)
	if err != nil {
		return result{}, err
	}
	var r result
	var n [bins]float64
	var left, fresh mean
	for i := range jobs {
		s := &jobs[i]
		policy, sample := speculation.Explore(v.xi, s.explore)
		as := v
		if sample {
			as.policy = policy
		}
		o, err := sc.play(s, as, p)
		if err != nil {
			return result{}, err
		}
		if sample {
			if err := p.add(s, *sc, policy, o); err != nil {
				return result{}, err
			}
		}
		value := o.done
		if !sc.byDeadline {
			after, err := sc.after(s, v)
			if err != nil {
				return result{}, err
			}
			value = (o.took + after) / s.ideal()
		}
		r.bins[s.bin] += value
		n[s.bin]++
		r.all += value / float64(len(jobs))
		left.add(o.left.Value())
		fresh.add(o.fresh.Value())
	}
	for b := range r.bins {
		r.bins[b] /= n[b] // without jobs it is unknown
	}
	r.left, r.fresh = left.value(), fresh.value()
	return r, nil
}

// after is how long the stages after the input's take; all of their tasks are needed.
func (sc *scene) after(s *spec, v variant) (took float64, err error) {
	for _, later := range s.later(sc.stages) {
		// Samples are of the bounds of inputs: the strawman decides on exact stages.
		o, err := play(&later, v, promise{}, &past{}, sc.caps)
		if err != nil {
			return 0, err
		}
		took += o.took
	}
	return took, nil
}

// mean is a mean of what is known.
type mean struct{ sum, n float64 }

func (m *mean) add(x float64, known bool) {
	if known {
		m.sum, m.n = m.sum+x, m.n+1
	}
}

func (m *mean) value() float64 { return m.sum / max(1, m.n) }
