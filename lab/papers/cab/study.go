package cab

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/jobs/containers"
	"headroom/lab/papers"
	"headroom/progress"
)

// key names one experiment: a set of Table I in one of its columns, under caps, by a variant.
type key struct {
	set     int
	caps    string
	quality int
	variant string
}

// result is what came of one run of an experiment.
type result struct {
	// runtime is the set's, jobs are its jobs', each over the uncapped one.
	runtime float64
	jobs    []float64
	// done is the least of the jobs' tasks done over what their floors ask for; below 1
	// a floor was broken.
	done float64
	// held is the mean of the containers that each job had while all ran.
	held []float64
}

// errors are the sums of how far finish times were off, as shares of the true ones.
type errors struct {
	learned, fresh, paper float64
	n                     int
}

func (e *errors) add(o errors) {
	e.learned, e.fresh, e.paper, e.n = e.learned+o.learned, e.fresh+o.fresh, e.paper+o.paper, e.n+o.n
}

// trial is all that one seed gave.
type trial struct {
	results map[key]result
	errors  errors
	// follow is what each job held over the run that Fig. 5 shows.
	follow []point
}

// point is one moment of a run.
type point struct {
	at   time.Duration
	cap  float64 // W
	held []int
}

// study runs every experiment with as many seeds as asked for, the first being seed.
// The trials are in the order of their seeds.
func study(ctx context.Context, seed uint64, seeds int) ([]trial, error) {
	trials := make([]trial, seeds)
	err := papers.Each(seeds, func(i int) (err error) {
		trials[i], err = try(ctx, seed+uint64(i))
		return err
	}, func(int) {})
	return trials, err
}

// try is one seed: every set with the same tasks in all its experiments.
func try(ctx context.Context, seed uint64) (trial, error) {
	t := trial{results: map[key]result{}}
	for _, w := range sets() {
		rng := rand.New(rand.NewPCG(seed, uint64(w.number)))
		base := setup{apps: w.apps, variant: noCap(), floors: []float64{1, 1, 1}}
		for _, a := range w.apps {
			base.times = append(base.times, a.draw(rng))
		}
		var before observer
		free, err := run(base, before.record)
		if err != nil {
			return t, err
		}
		base.uncapped = free.ends
		base.history, base.pool = append(before.seen, arbiter.Input{}), before.pool(base.apps)
		for _, c := range schedules() {
			base.caps = c
			if err := t.column(ctx, w, base); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

// column runs a set under one schedule of caps by every variant at every quality.
func (t *trial) column(ctx context.Context, w set, base setup) error {
	for _, v := range variants() {
		base.variant, base.settings = v, v.settings
		for q, quality := range qualities() {
			if err := ctx.Err(); err != nil {
				return err
			}
			k := key{w.number, base.caps.name, quality, v.name}
			base.floors = w.floors(q, v)
			if q > 0 && slices.Equal(base.floors, w.floors(q-1, v)) {
				before := k
				before.quality = qualities()[q-1]
				t.results[k] = t.results[before] // the same run
				continue
			}
			r, err := t.one(k, base)
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
func (t *trial) one(k key, s setup) (result, error) {
	see := &observer{keep: k == figure5(), estimate: k.variant == capped}
	o, err := run(s, see.watch)
	if err != nil {
		return result{}, err
	}
	if see.keep {
		t.follow = see.points
	}
	t.errors.add(see.errors)
	longest := time.Duration(0)
	for _, d := range s.uncapped {
		longest = max(longest, d)
	}
	r := result{runtime: o.makespan().Seconds() / longest.Seconds(), done: 1, held: see.means()}
	for i, end := range o.ends {
		r.jobs = append(r.jobs, end.Seconds()/s.uncapped[i].Seconds())
		r.done = min(r.done, float64(o.done[i])/float64(o.least[i]))
	}
	return r, nil
}

// figure5 is the run that Fig. 5 shows: set 3 at 85 %, stepping caps.
func figure5() key { return key{3, "stepping", 85, ours} }

// observer looks at a run through the eyes of the job loop.
type observer struct {
	keep, estimate bool
	points         []point
	sum            []float64
	looks          int
	trackers       map[string]*three
	errors         errors
	seen           []arbiter.Input
}

// three are estimators of one job: ours as it knows earlier runs, ours of a job that
// it has never seen, and the paper's filter.
type three struct {
	learned, fresh, filter *progress.Tracker
}

// truthEvery is how often what was foreseen is compared with what would have come.
const truthEvery = time.Minute

// record keeps what the job loop saw.
func (o *observer) record(_ *engine, in *arbiter.Input) { o.seen = append(o.seen, *in) }

// pool is what estimators have learned of the jobs that were seen.
func (o *observer) pool(apps []app) *progress.Pool {
	var pool progress.Pool
	for i, a := range apps {
		t := progress.NewTracker(progress.Learned)
		for k := range o.seen {
			for n := range o.seen[k].Jobs {
				if j := &o.seen[k].Jobs[n]; j.ID == id(i) {
					_ = t.Observe(observation(j)) // what it refuses it passes over
				}
			}
			if n := slices.IndexFunc(o.seen[k].Ended, func(e arbiter.Ended) bool { return e.ID == id(i) }); n >= 0 {
				t.End(o.seen[k].Ended[n].Runtime, a.tasks)
			}
		}
		pool.Learn(a.name, t)
	}
	return &pool
}

// observation is a job as an estimator sees it.
func observation(j *arbiter.Job) progress.Observation {
	return progress.Observation{
		Elapsed: j.Elapsed, Tasks: j.Tasks, Done: j.Done, Work: j.Work, Phase: j.Phase, Reduced: j.Reduced,
		Power: j.Power, Full: j.Full, Containers: float64(j.Held - overhead),
	}
}

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
	if o.keep {
		p := point{at: e.now, cap: e.server.cap.Watts()}
		for _, j := range e.jobs {
			p.held = append(p.held, j.held())
		}
		o.points = append(o.points, p)
	}
	if o.estimate {
		o.foresee(e, in)
	}
}

// foresee lets both estimators look at every job and compares now and then what they
// say of its end with what would come, while it has map tasks that have not begun. The
// filter knows no reduce part: it is held against the end of the map part.
func (o *observer) foresee(e *engine, in *arbiter.Input) {
	var then *engine
	for i := range in.Jobs {
		j := &in.Jobs[i]
		p, on := o.tracked(j, e.pool), float64(j.Held-overhead)
		for _, t := range []*progress.Tracker{p.learned, p.fresh, p.filter} {
			_ = t.Observe(observation(j)) // what it refuses it passes over
		}
		if j.Pending == 0 || e.now%truthEvery != 0 {
			continue
		}
		a, b, c := p.learned.Finish(j.Power, on, float64(j.Tasks)), p.fresh.Finish(j.Power, on, float64(j.Tasks)), p.filter.Finish(j.Power, on, float64(j.Tasks))
		if !a.Known || !b.Known || !c.Known {
			continue
		}
		if then == nil {
			then = e.frozen()
		}
		was := then.jobs[index(j.ID)]
		o.errors.add(errors{learned: off(a.At, was.end), fresh: off(b.At, was.end), paper: off(c.At, was.mapEnd), n: 1})
	}
}

// off is how far a time is from the true one, as a share of that.
func off(said, truth time.Duration) float64 {
	return math.Abs(float64(said-truth)) / float64(truth)
}

func (o *observer) tracked(j *arbiter.Job, pool *progress.Pool) *three {
	if o.trackers == nil {
		o.trackers = map[string]*three{}
	}
	if o.trackers[j.ID] == nil {
		o.trackers[j.ID] = &three{
			learned: progress.NewTrackerWith(progress.Learned, pool.Prior(j.Name)),
			fresh:   progress.NewTracker(progress.Learned), filter: progress.NewTracker(progress.Paper),
		}
	}
	return o.trackers[j.ID]
}

// means are the mean containers of each job while all ran.
func (o *observer) means() []float64 {
	out := slices.Clone(o.sum)
	for i := range out {
		out[i] /= float64(o.looks)
	}
	return out
}
