package admission

import (
	"math"
	"math/bits"
	"slices"
)

const (
	// windowMost is how many of the newest fractions each distribution holds: enough that one in a hundred needs more than the
	// bound, and few enough that a change of load is learned within that many jobs.
	windowMost = 100
	// samplesLeast is from how many fractions on a distribution is believed before a wider one.
	samplesLeast = 30
	// groupsMost bounds the distributions: users come and go.
	groupsMost = 4096
	// longer is how many times as long as the bound of the times of tasks those of another job may take, where its deadline is all
	// that could say so: whose deadlines are far have longer jobs.
	longer = 2
)

// estimate is what is expected of a job.
type estimate struct {
	// work is the expected work, s; confidence how probable it is that there is no more.
	work, confidence float64
	samples          int
	known            bool
}

// window holds the newest values of a group of jobs, and the same in order.
type window struct {
	newest []float64
	next   int
	sorted []float64
}

func (w *window) add(f float64) {
	if len(w.newest) < windowMost {
		w.newest = append(w.newest, f)
	} else {
		i, _ := slices.BinarySearch(w.sorted, w.newest[w.next])
		w.sorted = slices.Delete(w.sorted, i, i+1)
		w.newest[w.next] = f
		w.next = (w.next + 1) % windowMost
	}
	i, _ := slices.BinarySearch(w.sorted, f)
	w.sorted = slices.Insert(w.sorted, i, f)
}

// bound returns what the next one is not expected to exceed: as far above the greatest as they are apart
// from each other in the mean. It holds with the probability n/(n+1), whatever their distribution.
func (w *window) bound() (most, confidence float64) {
	n := len(w.sorted)
	least, most := w.sorted[0], w.sorted[n-1]
	return most + (most-least)/float64(n), float64(n) / float64(n+1)
}

// median returns what half of them do not exceed.
func (w *window) median() float64 { return w.sorted[(len(w.sorted)-1)/2] }

// within returns how probable it is that the next one does not exceed f.
func (w *window) within(f float64) float64 {
	k, _ := slices.BinarySearch(w.sorted, math.Nextafter(f, 2))
	return float64(k) / float64(len(w.sorted)+1)
}

// group is who shares a distribution: a size class, of one user or of all.
type group struct {
	size int
	user string
	all  bool
}

// history is what is known of jobs that ended.
type history struct {
	fractions window // W / (deadline x tasks)
	times     window // W / tasks, s
}

func (h *history) add(fraction, time float64) {
	h.fractions.add(fraction)
	h.times.add(time)
}

// learned is what Adaptive knows.
type learned struct {
	groups map[group]*history
	whole  history
}

// sizeClass returns the number of binary digits of the tasks, in pairs: 1, 2 to 3, 4 to 15, 16 to 63, and so on.
func sizeClass(tasks int) int { return bits.Len(uint(tasks)) / 2 }

func (l *learned) add(j *job, fraction, time float64) {
	l.whole.add(fraction, time)
	size := sizeClass(j.Tasks)
	for _, g := range []group{{size: size, all: true}, {size: size, user: j.User}} {
		w := l.groups[g]
		if w == nil {
			if len(l.groups) >= groupsMost {
				continue
			}
			w = &history{}
			l.groups[g] = w
		}
		w.add(fraction, time)
	}
}

// of returns the narrowest distribution that is believed; nil while nothing has ended.
func (l *learned) of(j *job) *history {
	size := sizeClass(j.Tasks)
	if w := l.groups[group{size: size, user: j.User}]; w != nil && len(w.fractions.sorted) >= samplesLeast {
		return w
	}
	if w := l.groups[group{size: size, all: true}]; w != nil && len(w.fractions.sorted) >= samplesLeast {
		return w
	}
	if len(l.whole.fractions.sorted) > 0 {
		return &l.whole
	}
	return nil
}

// estimate returns what is expected of j now.
func (c *Controller) estimate(j *job) estimate {
	most := j.limit * float64(j.Tasks)
	switch c.policy {
	case Oracle:
		return estimate{work: j.Work.Seconds(), confidence: 1, known: true}
	case Pythia:
		if c.fraction >= 0 {
			return estimate{work: c.fraction * most, confidence: float64(c.ended) / float64(c.ended+1), samples: c.ended, known: true}
		}
	case Adaptive:
		if w := c.learned.of(j); w != nil {
			return c.expected(j, w)
		}
	default:
	}
	return estimate{}
}

// expected returns Adaptive's estimate by jobs that ended. By the fraction alone, work grows with the deadline, and no deadline helps a
// job that needs more slots than there are: such a job is expected to take as long as the others did for each task, if that is less. A running job keeps its kind of estimate.
func (c *Controller) expected(j *job, h *history) estimate {
	f, p := h.fractions.bound()
	f = min(1, f)
	e := estimate{work: f * j.limit * float64(j.Tasks), confidence: p, samples: len(h.fractions.sorted), known: true}
	if !j.running {
		j.byTime = f*float64(j.Tasks) > float64(c.capacity)
	}
	if j.byTime {
		time, _ := h.times.bound()
		e.work = min(e.work, longer*time*float64(j.Tasks))
	}
	return e
}

// learn learns from an ended job: the paper's Algorithm 1, or what Adaptive does instead. work is the job's whole work, s. It reports whether
// all estimates have changed.
func (c *Controller) learn(j *job, work float64) (changed bool) {
	c.ended++
	if c.policy == Adaptive {
		c.learned.add(j, min(1, work/(j.limit*float64(j.Tasks))), work/float64(j.Tasks))
		most, _ := c.learned.whole.fractions.bound()
		c.fraction = min(1, most)
		return false
	}
	if c.policy != Pythia {
		return false
	}
	deadlineCPUs := work / j.limit
	maxCPUs := float64(min(j.Tasks, max(1, c.capacity)))
	// The paper says that the fraction never exceeds 1, and does not see to it: a job that could not meet its
	// deadline on maxCPUs would set it above 1 for good.
	rate := min(1, deadlineCPUs/maxCPUs)
	if rate <= c.fraction {
		return false
	}
	c.fraction = rate
	return true
}

// ceil returns the ceiling of x, tolerant of the rounding of a division.
func ceil(x float64) int { return int(math.Ceil(x - 1e-9*max(1, x))) }
