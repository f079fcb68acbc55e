package cab

import (
	"cmp"
	"math"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

// lessons are what earlier runs have taught, by whether the estimators see power or are blind to it.
type lessons [2]progress.Pool

const sighted, blind = 0, 1

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
type sums [estimatorCount]float64

func (s *sums) add(o *sums) {
	for i := range o {
		s[i] += o[i]
	}
}

// errors are those of looks once a minute, and of looks after a step of the cap.
type errors [2]sums

const minute, step = 0, 1

const (
	truthEvery = time.Minute      // how often what was foreseen is compared with what would have come
	stepWindow = 20 * time.Second // how long after a step it is compared at every look: the filter looks back as far
)

// foresight holds estimators of every job of a capped run against what would come.
type foresight struct {
	errors   errors
	blind    blindness
	curve    progress.Policy
	past     *lessons
	trackers [3]estimators // of each job
	cap      units.Power
	stepped  time.Duration // when it last changed, 0 for never
}

type estimators [estimatorCount]*progress.Tracker

// blindness is which of the estimators that are judged a mutant makes blind to power.
type blindness [estimatorCount]bool

// seenBy is an observation as an estimator takes it; to one that is blind the power is always the full one.
func seenBy(o progress.Observation, blind bool) progress.Observation {
	if blind {
		o.Power = o.Full
	}
	return o
}

// observation is a job as an estimator sees it.
func observation(j *arbiter.Job) progress.Observation {
	return progress.Observation{
		Elapsed: j.Elapsed, Tasks: j.Tasks, Done: j.Done, Work: j.Work, Phase: j.Phase, Reduced: j.Reduced,
		Power: j.Power, Full: j.Full, Containers: float64(j.Held - overhead),
	}
}

// learn takes what a run that was kept teaches, as the job loop learns it.
func (l *lessons) learn(e *engine) {
	for k := range l {
		for i, a := range e.apps {
			t := progress.NewTrackerWith(progress.Learned, l[k].Prior(a.name))
			for _, in := range e.seen {
				if n := slices.IndexFunc(in.Jobs, func(j arbiter.Job) bool { return j.ID == id(i) }); n >= 0 {
					_ = t.Observe(seenBy(observation(&in.Jobs[n]), k == blind)) // what it refuses it passes over
				}
				if n := slices.IndexFunc(in.Ended, func(e arbiter.Ended) bool { return e.ID == id(i) }); n >= 0 {
					t.End(in.Ended[n].Runtime, a.tasks)
				}
			}
			l[k].Learn(a.name, t)
		}
	}
}

// look lets the estimators look at every job and compares now and then their predictions of its end with what would come, while
// it has map tasks that have not begun. The filter models no reduce part: it is held against the end of the map part.
func (f *foresight) look(e *engine, jobs []arbiter.Job) {
	if f.cap != 0 && f.cap != e.server.cap {
		f.stepped = e.now()
	}
	f.cap = e.server.cap
	due := [2]bool{minute: e.now()%truthEvery == 0, step: f.stepped > 0 && e.now()-f.stepped < stepWindow}
	var then *engine
	for i := range jobs {
		j := &jobs[i]
		o := observation(j)
		ends, known := f.of(j).finish(o, f.blind)
		if j.Pending == 0 || !due[minute] && !due[step] || !known {
			continue
		}
		if then == nil {
			then = e.frozen()
		}
		was := then.jobs[index(j.ID)]
		var by sums
		for k, at := range ends {
			truth := was.end
			if k == filter || k == filterBlind {
				truth = was.mapEnd
			}
			by[k] = off(at, truth)
		}
		for k := range due {
			if due[k] {
				f.errors[k].add(&by)
			}
		}
	}
}

// of are the estimators of a job.
func (f *foresight) of(j *arbiter.Job) *estimators {
	x := &f.trackers[index(j.ID)]
	if x[learned] == nil {
		own, curve := f.past[sighted].Prior(j.Name), cmp.Or(f.curve, progress.Learned)
		if f.blind[learned] {
			own = f.past[blind].Prior(j.Name)
		}
		*x = estimators{
			progress.NewTrackerWith(curve, own), progress.NewTracker(curve), progress.NewTracker(progress.Paper),
			progress.NewTrackerWith(progress.Learned, f.past[blind].Prior(j.Name)), progress.NewTracker(progress.Paper),
		}
	}
	return x
}

// finish is the end that each foresees after an observation; known where all do.
func (x *estimators) finish(o progress.Observation, b blindness) (all [estimatorCount]time.Duration, known bool) {
	known = true
	for i, t := range x {
		o := seenBy(o, i >= learnedBlind || b[i])
		_ = t.Observe(o) // what it refuses it passes over
		f := t.Finish(o.Power, o.Containers, float64(o.Tasks))
		known, all[i] = known && f.Known, f.At
	}
	return all, known
}

// off is how far a time is from the true one, as a share of that.
func off(said, truth time.Duration) float64 {
	return math.Abs(float64(said-truth)) / float64(truth)
}
