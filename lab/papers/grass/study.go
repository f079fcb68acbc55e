package grass

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"headroom/internal/cli"
	"headroom/jobs/speculation"
	"headroom/lab/papers"
)

// The policies that the study runs, by name.
const (
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
		{name: late, policy: speculation.LATE},
		{name: mantri, policy: speculation.Mantri},
		{name: gs, policy: speculation.GS},
		{name: ras, policy: speculation.RAS},
		{name: strawman, policy: speculation.Strawman},
		{name: grassName, policy: speculation.GRASS, xi: speculation.Xi},
		{name: ours, policy: speculation.Ours, xi: speculation.Xi},
		{name: oracle, policy: speculation.Oracle},
	}
	for _, xi := range xis() {
		all = append(all, variant{name: xiName(xi), policy: speculation.GRASS, xi: xi})
	}
	return all
}

// xis are the parts of sample jobs that C7 tries.
func xis() []float64 { return []float64{0.02, 0.05, 0.15, 0.25, 0.5} }

func xiName(xi float64) string { return fmt.Sprintf("grass-xi-%.0f", 100*xi) }

// xiNames are the variants of C7.
func xiNames() (names []string) {
	for _, xi := range xis() {
		names = append(names, xiName(xi))
	}
	return names
}

// scene is one experiment on all jobs of a load.
type scene struct {
	name string
	// byDeadline, with the slack of the jobs or this one; otherwise by the jobs' error bounds, or exact: all tasks. few: jobs of so
	// few tasks that the oracle can search.
	byDeadline, exact, few bool
	slack                  float64
	caps                   caps
	stages                 int // after the input's
	variants               []string
}

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
	all := append([]string{late, mantri, gs, ras, strawman, grassName, ours}, xiNames()...)
	two, capped, few := []string{late, grassName}, []string{grassName, ours}, []string{grassName, oracle}
	out := []scene{
		{name: deadlines, byDeadline: true, variants: all},
		{name: errorBounds, variants: all},
		{name: exactJobs, exact: true, variants: []string{late, mantri, grassName}},
		{name: deadlinesCapped, byDeadline: true, caps: true, variants: capped},
		{name: errorsCapped, caps: true, variants: capped},
		{name: deadlinesFew, byDeadline: true, few: true, variants: few},
		{name: errorsFew, few: true, variants: few},
	}
	for i, name := range slackNames() {
		out = append(out, scene{name: name, byDeadline: true, slack: []float64{0.02, 0.08, 0.14, 0.2}[i], variants: two})
	}
	for _, kind := range []string{deadlines, errorBounds} {
		for i, name := range dagNames(kind) {
			out = append(out, scene{name: name, byDeadline: kind == deadlines, stages: 2*i + 1, variants: two})
		}
	}
	return out
}

// study is what is run for each seed.
type study struct {
	jobs, history int
	sizes         []int // of a trace's jobs, tasks; nil for drawn ones
	// only these variants and scenes are run, with a mistake; nil for all.
	only, scenes []string
	mistake      func(*variant)
}

// key names the runs of a scene's jobs by a variant.
type key struct{ scene, variant string }

// result is what the jobs of a scene achieved, by bin and over all: the mean part of the tasks that were done to a
// deadline, or otherwise the mean time over the ideal.
type result struct {
	by         [bins + 1]float64
	byDeadline bool
}

const everything = bins // the place of the mean over all bins

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
		for _, v := range variants() {
			if !slices.Contains(sc.variants, v.name) || s.only != nil && !slices.Contains(s.only, v.name) {
				continue
			}
			if s.mistake != nil {
				s.mistake(&v)
			}
			r, err := sc.run(ctx, mine, before, v)
			if err != nil {
				return nil, fmt.Errorf("%s by %s: %w", sc.name, v.name, err)
			}
			t[key{sc.name, v.name}] = r
		}
	}
	return t, nil
}

// add takes samples from a job that has ended: of its parts up to its end.
func (sc *scene) add(past *speculation.Samples, s *spec, policy speculation.Policy, o outcome) error {
	x := speculation.Sample{
		Greedy: policy == speculation.GS, ByDeadline: sc.byDeadline, Tasks: s.tasks, Width: s.width, Utilisation: s.utilisation, Accuracy: o.accuracy(),
	}
	for _, part := range []float64{0.125, 0.25, 0.5, 0.75, 1} {
		x.Size, x.Result = part*o.took, o.within(part*o.took)
		if !sc.byDeadline {
			n := int(part * float64(len(o.at)))
			x.Size, x.Result = float64(n), o.last(n)
		}
		if x.Size > 0 {
			if err := past.Add(x); err != nil {
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
	switch slack := cmp.Or(sc.slack, s.slack); {
	case sc.byDeadline:
		// The deadline is for all stages, each with the slack. What later ones are expected to take, their ideal, is not left.
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

// run runs the jobs by a variant, one after another: each may learn from those that have ended, and from samples of a history.
func (sc *scene) run(ctx context.Context, jobs, history []spec, v variant) (r result, err error) {
	past := speculation.NewSamples(speculation.AllFactors)
	for i := range history {
		if _, sample := speculation.Explore(v.xi, history[i].explore); sample {
			if _, err := sc.input(&history[i], variant{xi: v.xi}, past); err != nil {
				return r, err
			}
		}
	}
	r.byDeadline = sc.byDeadline
	var n [bins]float64
	for i := range jobs {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		value, err := sc.job(&jobs[i], v, past)
		if err != nil {
			return r, err
		}
		bin := jobs[i].bin
		r.by[bin] += value
		n[bin]++
		r.by[everything] += value / float64(len(jobs))
	}
	for b := range n {
		r.by[b] /= n[b] // without jobs it is unknown
	}
	return r, nil
}

// input runs the stage of a job that has its input, and makes a sample of it where its draw has one.
func (sc *scene) input(s *spec, v variant, past *speculation.Samples) (outcome, error) {
	policy, sample := speculation.Explore(v.xi, s.explore)
	if sample {
		v.policy = policy
	}
	o, err := play(s, v, sc.promise(s), past, sc.caps)
	if err == nil && sample {
		err = sc.add(past, s, policy, o)
	}
	return o, err
}

// job runs a job by a variant and returns what it achieved.
func (sc *scene) job(s *spec, v variant, past *speculation.Samples) (value float64, err error) {
	o, err := sc.input(s, v, past)
	if err != nil || sc.byDeadline {
		return o.done, err
	}
	after := 0.0
	for _, later := range s.later(sc.stages) { // all of their tasks are needed
		// Samples are of the bounds of inputs: the strawman decides on exact stages.
		o, err := play(&later, v, promise{}, nil, sc.caps)
		if err != nil {
			return 0, err
		}
		after += o.took
	}
	return (o.took + after) / s.ideal(), nil
}

// value is what a scene's jobs achieved in a bin; NaN where that was not run.
func (t trial) value(scene, variant string, bin int) float64 {
	if r, ok := t[key{scene, variant}]; ok {
		return r.by[bin]
	}
	return math.NaN()
}

// gain is by how many percent one variant is better than another: by how much more is done to a deadline, or how much less time
// it takes.
func (t trial) gain(scene, mine, than string, bin int) float64 {
	a, b := t.value(scene, mine, bin), t.value(scene, than, bin)
	if t[key{scene, mine}].byDeadline {
		return (a/b - 1) * 100
	}
	return (1 - a/b) * 100
}
