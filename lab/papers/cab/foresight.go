package cab

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

// errors are the sums of how far finish times were off, as shares of the true ones.
type errors struct {
	// Once a minute: ours, ours of a job that never ran before, and the paper's filter.
	learned, fresh, filter float64
	n                      int
	// After a step of the cap: the learned curve and the filter, each as it is and blind to power.
	steps stepErrors
}

type stepErrors struct {
	learned, learnedBlind, filter, filterBlind float64
	n                                          int
}

func (e *errors) add(o *errors) {
	e.learned, e.fresh, e.filter, e.n = e.learned+o.learned, e.fresh+o.fresh, e.filter+o.filter, e.n+o.n
	s := &e.steps
	s.learned, s.learnedBlind = s.learned+o.steps.learned, s.learnedBlind+o.steps.learnedBlind
	s.filter, s.filterBlind, s.n = s.filter+o.steps.filter, s.filterBlind+o.steps.filterBlind, s.n+o.steps.n
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

// estimators are those of one job: ours with earlier runs, ours of a job that it
// has never seen, the paper's filter, and two of them blind to power.
type estimators struct {
	learned, fresh, filter, learnedBlind, filterBlind *progress.Tracker
}

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
		f.errors.note(said, was.end, was.mapEnd, minute, step)
	}
}

func (f *foresight) of(j *arbiter.Job) *estimators {
	if f.jobs[j.ID] == nil {
		pool := f.pool
		if f.blind.learned {
			pool = f.poolBlind
		}
		f.jobs[j.ID] = &estimators{
			learned: progress.NewTrackerWith(f.curve, pool.Prior(j.Name)), fresh: progress.NewTracker(f.curve),
			filter:       progress.NewTracker(progress.Paper),
			learnedBlind: progress.NewTrackerWith(progress.Learned, f.poolBlind.Prior(j.Name)), filterBlind: progress.NewTracker(progress.Paper),
		}
	}
	return f.jobs[j.ID]
}

// each are the estimators in the order of finishes, and which of them are blind.
func (x *estimators) each(b blindness) [5]struct {
	tracker *progress.Tracker
	blind   bool
} {
	return [5]struct {
		tracker *progress.Tracker
		blind   bool
	}{{x.learned, b.learned}, {x.fresh, b.learned}, {x.filter, b.filter}, {x.learnedBlind, true}, {x.filterBlind, true}}
}

func (x *estimators) observe(o progress.Observation, b blindness) {
	for _, t := range x.each(b) {
		_ = t.tracker.Observe(seenBy(o, t.blind)) // what it refuses it passes over
	}
}

// finishes are the ends that the estimators foresee.
type finishes [5]time.Duration

// finish is what each foresees after an observation; known where all do.
func (x *estimators) finish(o progress.Observation, b blindness) (all finishes, known bool) {
	for i, t := range x.each(b) {
		f := t.tracker.Finish(seenBy(o, t.blind).Power, o.Containers, float64(o.Tasks))
		if !f.Known {
			return all, false
		}
		all[i] = f.At
	}
	return all, true
}

// note adds how far the finish times of one look were off.
func (e *errors) note(said finishes, end, mapEnd time.Duration, minute, step bool) {
	if minute {
		e.learned, e.fresh, e.filter = e.learned+off(said[0], end), e.fresh+off(said[1], end), e.filter+off(said[2], mapEnd)
		e.n++
	}
	if step {
		s := &e.steps
		s.learned, s.filter = s.learned+off(said[0], end), s.filter+off(said[2], mapEnd)
		s.learnedBlind, s.filterBlind = s.learnedBlind+off(said[3], end), s.filterBlind+off(said[4], mapEnd)
		s.n++
	}
}

// off is how far a time is from the true one, as a share of that.
func off(said, truth time.Duration) float64 {
	return math.Abs(float64(said-truth)) / float64(truth)
}
