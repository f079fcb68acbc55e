package cab

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

// The estimators of a job: ours with earlier runs, ours of a job that it has never seen, the
// paper's filter, and two of them blind to power.
const (
	learned = iota
	fresh
	filter
	learnedBlind
	filterBlind
	estimatorCount
)

// sums are how far the finish times of each estimator were off, as shares of the true ones.
type sums struct {
	off [estimatorCount]float64
	n   int
}

func (s *sums) add(off [estimatorCount]float64, n int) {
	for i := range off {
		s.off[i] += off[i]
	}
	s.n += n
}

// errors are those of looks once a minute, and of looks after a step of the cap.
type errors struct{ minute, step sums }

func (e *errors) add(o *errors) {
	e.minute.add(o.minute.off, o.minute.n)
	e.step.add(o.step.off, o.step.n)
}

// blindness is which of the estimators that are judged a mutant makes blind to power.
type blindness struct{ learned, filter bool }

const (
	// truthEvery is how often what was foreseen is compared with what would have come.
	truthEvery = time.Minute
	// stepWindow is how long after a step it is compared at every look: the filter looks
	// back as far, so longer after it no estimate is scaled from one cap to another.
	stepWindow = 20 * time.Second
)

// foresight holds estimators of every job of a capped run against what would come.
type foresight struct {
	errors errors
	blind  blindness
	curve  progress.Policy
	// pool and poolBlind are what earlier runs taught.
	pool, poolBlind *progress.Pool
	jobs            map[string]*estimators
	cap             units.Power
	stepped         time.Duration // when the cap last stepped; 0: never
}

// estimators are those of one job.
type estimators [estimatorCount]*progress.Tracker

func newForesight(s setup, blind blindness, curve progress.Policy) *foresight {
	if curve == "" {
		curve = progress.Learned
	}
	return &foresight{blind: blind, curve: curve, pool: s.pool, poolBlind: s.poolBlind, jobs: map[string]*estimators{}}
}

// learnFrom is what a run that was seen teaches, as the job loop learns it.
func learnFrom(pool *progress.Pool, seen []arbiter.Input, apps []app, blind bool) {
	for i, a := range apps {
		t := progress.NewTrackerWith(progress.Learned, pool.Prior(a.name))
		for k := range seen {
			for n := range seen[k].Jobs {
				if j := &seen[k].Jobs[n]; j.ID == id(i) {
					_ = t.Observe(seenBy(observation(j), blind)) // what it refuses it passes over
				}
			}
			if n := slices.IndexFunc(seen[k].Ended, func(e arbiter.Ended) bool { return e.ID == id(i) }); n >= 0 {
				t.End(seen[k].Ended[n].Runtime, a.tasks)
			}
		}
		pool.Learn(a.name, t)
	}
}

// observation is a job as an estimator sees it.
func observation(j *arbiter.Job) progress.Observation {
	return progress.Observation{
		Elapsed: j.Elapsed, Tasks: j.Tasks, Done: j.Done, Work: j.Work, Phase: j.Phase, Reduced: j.Reduced,
		Power: j.Power, Full: j.Full, Containers: float64(j.Held - overhead),
	}
}

// seenBy is an observation as one sees it who is blind to power: as if it were the full
// one always.
func seenBy(o progress.Observation, blind bool) progress.Observation {
	if blind {
		o.Power = o.Full
	}
	return o
}

// look lets the estimators look at every job and compares now and then their predictions of
// its end with what would come, while it has map tasks that have not begun. The filter
// models no reduce part: it is held against the end of the map part.
func (f *foresight) look(e *engine, in *arbiter.Input) {
	if f.cap != 0 && f.cap != e.server.cap {
		f.stepped = e.now()
	}
	f.cap = e.server.cap
	minute, step := e.now()%truthEvery == 0, f.stepped > 0 && e.now()-f.stepped < stepWindow
	var then *engine
	for i := range in.Jobs {
		j := &in.Jobs[i]
		x := f.of(j)
		seen := observation(j)
		x.observe(seen, f.blind)
		if j.Pending == 0 || !minute && !step {
			continue
		}
		said, known := x.finish(seen, f.blind)
		if !known {
			continue
		}
		if then == nil {
			then = e.frozen()
		}
		was := then.jobs[index(j.ID)]
		var by [estimatorCount]float64
		for i, at := range said {
			truth := was.end
			if i == filter || i == filterBlind {
				truth = was.mapEnd
			}
			by[i] = off(at, truth)
		}
		if minute {
			f.errors.minute.add(by, 1)
		}
		if step {
			f.errors.step.add(by, 1)
		}
	}
}

func (f *foresight) of(j *arbiter.Job) *estimators {
	if f.jobs[j.ID] == nil {
		pool := f.pool
		if f.blind.learned {
			pool = f.poolBlind
		}
		f.jobs[j.ID] = &estimators{
			progress.NewTrackerWith(f.curve, pool.Prior(j.Name)), progress.NewTracker(f.curve), progress.NewTracker(progress.Paper),
			progress.NewTrackerWith(progress.Learned, f.poolBlind.Prior(j.Name)), progress.NewTracker(progress.Paper),
		}
	}
	return f.jobs[j.ID]
}

// of reports whether an estimator is blind.
func (b blindness) of(estimator int) bool {
	return estimator >= learnedBlind || b.filter && estimator == filter || b.learned && estimator != filter
}

func (x *estimators) observe(o progress.Observation, b blindness) {
	for i, t := range x {
		_ = t.Observe(seenBy(o, b.of(i))) // what it refuses it passes over
	}
}

// finish is the end that each foresees after an observation; known where all do.
func (x *estimators) finish(o progress.Observation, b blindness) (all [estimatorCount]time.Duration, known bool) {
	for i, t := range x {
		f := t.Finish(seenBy(o, b.of(i)).Power, o.Containers, float64(o.Tasks))
		if !f.Known {
			return all, false
		}
		all[i] = f.At
	}
	return all, true
}

// off is how far a time is from the true one, as a share of that.
func off(said, truth time.Duration) float64 {
	return math.Abs(float64(said-truth)) / float64(truth)
}
