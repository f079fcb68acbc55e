package cab

import (
	"context"
	"math/rand/v2"
	"slices"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/papers"
	"headroom/progress"
)

// key names one experiment: a set of Table I in one of its columns, under caps, by a
// variant, with an oracle or without.
type key struct {
	set     int
	caps    string
	quality int
	variant string
	oracle  bool
	// measured: the queues are those of measured profiles, not those that Table I prints.
	measured bool
}

// result holds the figures of one run of an experiment.
type result struct {
	// runtime is the set's, jobs are its jobs', each over the uncapped one.
	runtime float64
	jobs    []float64
	// done is the least of the jobs' tasks done over what their floors require; below 1
	// a floor was broken.
	done float64
	// held is the mean of the containers that each job had while all ran.
	held []float64
	// learned is by how much the learned uncapped finish times were off, in the mean of
	// the jobs, as a share of the true ones; a job of which none was learned counts as 1.
	learned float64
}

// trial is all that one seed gave.
type trial struct {
	results map[key]result
	errors  errors
}

// study is what is run: all of it, or what a mutant touches.
type study struct {
	machine  physics
	variants []variant
	// measured are sets with queues of measured profiles, which ours and its baselines run
	// too; none in a study without.
	measured []set
	// estimates: finish times are compared with what would come, by estimators that are
	// blind to power as set in blind.
	estimates bool
	blind     blindness
	// curve is the estimator in the place of ours; none for ours.
	curve progress.Policy
	// forgets: job loops have seen no earlier run.
	forgets bool
}

// whole is the study that targets are judged by: every variant, and those that they
// compare with an oracle too.
func whole(measured []set) study {
	return study{
		machine: chosen(), estimates: true, measured: measured,
		variants: append(variants(), oracles(named(approx, paper, released, equal, ours))...),
	}
}

// run runs every experiment with the requested number of seeds, the first being seed. The
// trials are in the order of their seeds.
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
	for _, w := range sets() {
		earlier, err := s.earlier(w, seed)
		if err != nil {
			return t, err
		}
		base, _, err := s.drawn(w, rand.New(rand.NewPCG(seed, uint64(w.number))))
		if err != nil {
			return t, err
		}
		base.pool, base.poolBlind = &earlier.all, &earlier.blind
		for _, c := range schedules() {
			base.caps = c
			if err := s.column(ctx, &t, w, base, s.variants, false); err != nil {
				return t, err
			}
			if m := slices.IndexFunc(s.measured, func(m set) bool { return m.number == w.number }); m >= 0 {
				if err := s.column(ctx, &t, s.measured[m], base, s.shipped(), true); err != nil {
					return t, err
				}
			}
		}
	}
	return t, nil
}

// shipped are the variants that run under measured queues: ours and its baseline.
func (s *study) shipped() []variant {
	return slices.DeleteFunc(slices.Clone(s.variants), func(v variant) bool { return v.oracle || v.name != ours && v.name != approx })
}

// drawn is a set with tasks that are drawn now, and what the job loop saw of its run
// without a cap.
func (s *study) drawn(w set, rng *rand.Rand) (setup, []arbiter.Input, error) {
	base := setup{machine: s.machine, apps: w.apps, variant: noCap(), floors: slices.Repeat([]float64{1}, len(w.apps))}
	for _, a := range w.apps {
		base.times = append(base.times, a.draw(rng))
	}
	var see observer
	free, err := run(base, see.record)
	if err != nil {
		return setup{}, nil, err
	}
	base.uncapped = free.ends
	return base, see.seen, nil
}

const (
	// earlierStream keeps the draws of earlier runs apart from those that are judged.
	earlierStream = 1000
	// earlierFree is how often a set has run before without a cap.
	earlierFree = 5
)

// lessons are what earlier runs have taught, and what they would have taught estimators
// blind to power.
type lessons struct{ all, blind progress.Pool }

// earlier are the lessons of earlier runs of jobs of the same names, with other tasks:
// five without a cap, and one under the stepping cap.
func (s *study) earlier(w set, seed uint64) (*lessons, error) {
	out := &lessons{}
	if s.forgets {
		return out, nil
	}
	rng := rand.New(rand.NewPCG(seed, earlierStream+uint64(w.number)))
	learn := func(seen []arbiter.Input) {
		learnFrom(&out.all, seen, w.apps, false)
		learnFrom(&out.blind, seen, w.apps, true)
	}
	var base setup
	for range earlierFree {
		drawn, seen, err := s.drawn(w, rng)
		if err != nil {
			return nil, err
		}
		learn(seen)
		base = drawn
	}
	for i, a := range w.apps { // other tasks, beside an uncapped time that only the cap's steps use
		base.times[i] = a.draw(rng)
	}
	base.variant, base.caps, base.pool = variant{name: capped, exact: true}, stepping(), &out.all
	var see observer
	if _, err := run(base, see.record); err != nil {
		return nil, err
	}
	learn(see.seen)
	return out, nil
}

// column runs a set under one schedule of caps by variants at every quality.
func (s *study) column(ctx context.Context, t *trial, w set, base setup, by []variant, measured bool) error {
	for _, v := range by {
		base.variant = v
		for q, quality := range qualities() {
			if err := ctx.Err(); err != nil {
				return err
			}
			k := key{w.number, base.caps.name, quality, v.name, v.oracle, measured}
			base.floors = w.floors(q, v)
			if q > 0 && slices.Equal(base.floors, w.floors(q-1, v)) {
				before := k
				before.quality = qualities()[q-1]
				t.results[k] = t.results[before] // the same run
				continue
			}
			r, err := s.one(t, k, base)
			if err != nil {
				return err
			}
			t.results[k] = r
		}
	}
	return nil
}

// floors are the quality floors of a set's jobs in a column of Table I.
func (w set) floors(column int, v variant) []float64 {
	floors := make([]float64, len(w.apps))
	for i := range floors {
		floors[i] = 1
		if !v.exact {
			floors[i] = containers.QueueFloors()[w.queues[i][column]-1]
		}
	}
	return floors
}

// one runs one experiment and measures it.
func (s *study) one(t *trial, k key, base setup) (result, error) {
	see := &observer{}
	if s.estimates && k.variant == capped {
		see.judge = newForesight(base, s.blind, s.curve)
	}
	o, err := run(base, see.watch)
	if err != nil {
		return result{}, err
	}
	if see.judge != nil {
		t.errors.add(&see.judge.errors)
	}
	r := result{runtime: slices.Max(o.ends).Seconds() / slices.Max(base.uncapped).Seconds(), done: 1, held: see.means()}
	for i, end := range o.ends {
		r.jobs = append(r.jobs, end.Seconds()/base.uncapped[i].Seconds())
		r.done = min(r.done, float64(o.done[i])/float64(o.least[i]))
		r.learned += off(o.learned[i], base.uncapped[i]) / float64(len(o.ends))
	}
	return r, nil
}

// figure5 is the run that Fig. 5 shows: set 3 at 85 %, stepping caps.
func figure5() key { return key{set: 3, caps: "stepping", quality: 85, variant: ours} }

// observer looks at a run through the eyes of the job loop.
type observer struct {
	sum   []float64
	looks int
	judge *foresight
	seen  []arbiter.Input
}

// record keeps what the job loop saw.
func (o *observer) record(_ *engine, in *arbiter.Input) { o.seen = append(o.seen, *in) }

func (o *observer) watch(e *engine, in *arbiter.Input) {
	if len(in.Jobs) == len(e.jobs) {
		o.looks++
		if o.sum == nil {
			o.sum = make([]float64, len(e.jobs))
		}
		for i, j := range e.jobs {
			o.sum[i] += float64(j.held())
		}
	}
	if o.judge != nil {
		o.judge.look(e, in)
	}
}

// means are the mean containers of each job while all ran.
func (o *observer) means() []float64 {
	out := slices.Clone(o.sum)
	for i := range out {
		out[i] /= float64(o.looks)
	}
	return out
}
