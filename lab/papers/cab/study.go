package cab

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/papers"
	"headroom/progress"
	"headroom/units"
)

// variant is one way to run a set.
type variant struct {
	name string
	// uncapped: no cap, no job loop. exact: all tasks of all jobs are run. kills: an early stop ends the running maps too, as the
	// paper's does; otherwise they run to their ends.
	uncapped, exact, kills bool
	settings               arbiter.Settings
	mistake                mistake
}

// mistake is what a mutant's job loop does wrong: it sees that there is a cap, and the same one throughout; early stops are
// decided and not carried out; it takes a single task for every job's floor; the first job gets the last one's share, and so on.
type mistake struct{ blind, neverStops, noFloor, swaps bool }

// make makes the mistake in what the job loop sees.
func (m mistake) make(jobs []arbiter.Job) {
	for i := range jobs {
		j := &jobs[i]
		if m.blind {
			j.Power = units.FromWatts(0.98 * j.Full.Watts()) // just enough below the full one to be a cap
		}
		if m.noFloor {
			j.Floor = 1 / float64(j.Tasks)
		}
	}
}

// The variants by name. Where a name ends in how a job is stopped, that differs from the variant of the name alone.
const (
	capped   = "capped"
	approx   = "approxhadoop"
	paper    = "paper"
	released = "released"
	equal    = "equal"
	ours     = "stretch"
	oursKill = "stretch-kill"
)

// noCap is the run that all others are measured against.
func noCap() variant { return variant{uncapped: true, exact: true} }

// variants are those that run under a cap.
func variants() []variant {
	// The paper and its code have no hysteresis; both give new shares every 20 s, the length of the window that they look back.
	window := containers.Damping{Every: 20 * time.Second}
	plain := arbiter.Settings{Estimator: progress.Paper, Containers: containers.Fair}
	even := arbiter.DefaultSettings()
	even.Containers = containers.Equal
	return []variant{
		{name: capped, exact: true, settings: plain},
		{name: approx, kills: true, settings: plain},
		{name: paper, kills: true, settings: arbiter.Settings{Estimator: progress.Paper, Containers: containers.Paper, Damping: window}},
		{name: released, kills: true, settings: arbiter.Settings{Estimator: progress.Released, Containers: containers.Released, Damping: window}},
		{name: equal, settings: even},
		{name: ours, settings: arbiter.DefaultSettings()},
		{name: oursKill, kills: true, settings: arbiter.DefaultSettings()},
	}
}

// named are the variants of some names.
func named(names ...string) []variant {
	return slices.DeleteFunc(variants(), func(v variant) bool { return !slices.Contains(names, v.name) })
}

// schedules are the caps of the experiments: Fig. 4 has the fixed ones, Table II and Fig. 5 the stepping one.
func schedules() []caps {
	return []caps{
		{name: "250", fixed: 250 * units.Watt},
		{name: "200", fixed: 200 * units.Watt},
		{name: "175", fixed: 175 * units.Watt},
		stepping(),
	}
}

func stepping() caps { return caps{name: "stepping", steps: true} }

// key names one experiment: a set of Table I in one of its columns, under caps, by a variant.
type key struct {
	set      int
	caps     string
	quality  int
	variant  string
	measured bool // the queues are those of measured profiles, not those that Table I prints
}

// result holds the figures of one run of an experiment.
type result struct {
	runtime float64    // the set's over the uncapped one
	jobs    [3]float64 // its jobs' over theirs
	held    [3]float64 // the mean of the containers that each job had while all ran
	done    float64    // the least of the jobs' tasks done over what their floors require; below 1 a floor was broken
	// learned is by how much the learned uncapped finish times were off, in the mean of the jobs, as a share of the true ones; a
	// job of which none was learned counts as 1.
	learned float64
}

// trial is all that one seed gave.
type trial struct {
	results map[key]result
	errors  errors
}

// study is what is run: all of it, or what a mutant touches.
type study struct {
	variants  []variant
	measured  []set           // with queues of measured profiles, which ours and its baseline run too
	estimates bool            // finish times are compared with what would come
	blind     blindness       // of the estimators that are compared
	curve     progress.Policy // in the place of ours
	forgets   bool            // job loops have seen no earlier run
}

// whole is the study that targets are judged by.
func whole(measured []set) study {
	return study{estimates: true, measured: measured, variants: variants()}
}

// run runs every experiment with the requested number of seeds, the first being seed. The trials are in the order of their seeds.
func (s *study) run(ctx context.Context, seed uint64, seeds int) ([]trial, error) {
	trials := make([]trial, seeds)
	err := papers.Each(seeds, func(i int) (err error) {
		trials[i], err = s.try(ctx, seed+uint64(i))
		return err
	}, func(int) {})
	return trials, err
}

// try is one seed: every set with the same tasks in all its experiments.
func (s *study) try(ctx context.Context, seed uint64) (trial, error) {
	t := trial{results: map[key]result{}}
	for i, w := range sets() {
		past, err := s.earlier(w, seed)
		if err != nil {
			return t, err
		}
		free, err := drawn(w, rand.New(rand.NewPCG(seed, uint64(w.number))))
		if err != nil {
			return t, err
		}
		base := free.setup
		base.past, base.keeps, base.floors = past, false, [3]float64{}
		for _, c := range schedules() {
			base.caps = c
			for _, v := range s.variants {
				base.variant = v
				if err := s.row(ctx, &t, w, base, false); err != nil {
					return t, err
				}
				if s.measured != nil && (v.name == ours || v.name == approx) {
					if err := s.row(ctx, &t, s.measured[i], base, true); err != nil {
						return t, err
					}
				}
			}
		}
	}
	return t, nil
}

// drawn is the run without a cap of a set with tasks that are drawn now.
func drawn(w set, rng *rand.Rand) (*engine, error) {
	base := setup{apps: w.apps, variant: noCap(), floors: [3]float64{1, 1, 1}, keeps: true}
	for i, a := range w.apps {
		base.times[i] = a.draw(rng)
	}
	free, err := run(base)
	if err != nil {
		return nil, err
	}
	for i, j := range free.jobs {
		free.uncapped[i] = j.end
	}
	return free, nil
}

// earlier are the lessons of earlier runs of jobs of the same names, with other tasks:
// five without a cap, and one under the stepping cap.
func (s *study) earlier(w set, seed uint64) (*lessons, error) {
	const stream, free = 1000, 5 // the stream keeps their draws apart from those that are judged
	past := &lessons{}
	if s.forgets {
		return past, nil
	}
	rng := rand.New(rand.NewPCG(seed, stream+uint64(w.number)))
	var last setup
	for range free {
		e, err := drawn(w, rng)
		if err != nil {
			return nil, err
		}
		past.learn(e)
		last = e.setup
	}
	for i, a := range w.apps { // other tasks, beside an uncapped time that only the cap's steps use
		last.times[i] = a.draw(rng)
	}
	last.variant, last.caps, last.past = named(capped)[0], stepping(), past
	e, err := run(last)
	if err != nil {
		return nil, err
	}
	past.learn(e)
	return past, nil
}

// row runs a set at every quality, under one schedule of caps by a variant.
func (s *study) row(ctx context.Context, t *trial, w set, base setup, measured bool) error {
	if s.estimates && base.variant.name == capped {
		base.judge = &foresight{blind: s.blind, curve: s.curve, past: base.past}
	}
	var r result
	for q, quality := range qualities() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if floors := w.floors(q, base.variant); floors != base.floors { // otherwise the same run
			base.floors = floors
			e, err := run(base)
			if err != nil {
				return err
			}
			r = e.result()
		}
		t.results[key{w.number, base.caps.name, quality, base.variant.name, measured}] = r
	}
	if base.judge != nil {
		for k := range t.errors {
			t.errors[k].add(&base.judge.errors[k])
		}
	}
	return nil
}

// result measures a run that is over.
func (e *engine) result() result {
	r := result{done: 1, held: e.sum}
	last := time.Duration(0)
	for i, j := range e.jobs {
		last = max(last, j.end)
		r.jobs[i] = j.end.Seconds() / e.uncapped[i].Seconds()
		r.done = min(r.done, float64(j.Done)/float64(containers.MinTasks(len(j.Times), e.floors[i])))
		r.held[i] /= e.looks
		r.learned += off(e.learned[i], e.uncapped[i]) / float64(len(e.jobs))
	}
	r.runtime = last.Seconds() / slices.Max(e.uncapped[:]).Seconds()
	return r
}
