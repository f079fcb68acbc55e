package demo

import (
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/units"
)

// The texts of events; they are part of summary.json's contract.
const (
	eventCut     = "budget cut"
	eventKilled  = "leader killed"
	eventLeader  = "new leader"
	eventDown    = "powerd killed"
	eventBack    = "powerd back"
	eventRaised  = "budget raised"
	eventLowered = "budget lowered"
	eventSprint  = "sprint"
	eventShares  = "shares moved"
	eventDrops   = "tasks dropped"
	eventJob     = "job submitted"
)

// event is something that the demo did or saw.
type event struct {
	at     time.Duration
	what   string
	detail string
}

// tracker is the current state of the demo, for the screen and the judge.
type tracker struct {
	mu     sync.Mutex
	zero   time.Time // t = 0
	budget units.Power
	known  uint64 // revision that the budget is of

	samples []sample
	cuts    []time.Duration
	events  []event
	jobs    []*headroomv1.Job
	energy  map[string]float64 // joules by job id
}

func newTracker(budget units.Power) *tracker {
	return &tracker{budget: budget, energy: map[string]float64{}}
}

// locked calls f while no other goroutine uses the tracker.
func (b *tracker) locked(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// now is the time since t = 0; 0 before it.
func (b *tracker) now() (d time.Duration) {
	b.locked(func() { d = b.sinceZero() })
	return d
}

func (b *tracker) sinceZero() time.Duration {
	if b.zero.IsZero() {
		return 0
	}
	return time.Since(b.zero)
}

// commit stores the budget of a revision, and when a lower one was first seen in force.
// An older revision than the known one changes nothing.
func (b *tracker) commit(revision uint64, budget units.Power) {
	b.locked(func() {
		if revision < b.known {
			return
		}
		if budget < b.budget {
			b.cuts = append(b.cuts, b.sinceZero())
		}
		b.known, b.budget = revision, budget
	})
}

// note records an event at the moment at.
func (b *tracker) note(at time.Duration, what, detail string) {
	b.locked(func() { b.events = append(b.events, event{at, what, detail}) })
}

// setJobs stores the newest list of jobs, jobList returns it.
func (b *tracker) setJobs(jobs []*headroomv1.Job) { b.locked(func() { b.jobs = jobs }) }

func (b *tracker) jobList() (jobs []*headroomv1.Job) {
	b.locked(func() { jobs = b.jobs })
	return jobs
}

// add stamps a sample with the time and the budget in force, and keeps it.
func (b *tracker) add(s *sample) {
	b.locked(func() {
		s.at, s.budget = b.sinceZero(), b.budget
		b.samples = append(b.samples, *s)
	})
}

// draws is the newest sum of the nodes' power; 0 if unknown.
func (b *tracker) draws() (p units.Power) {
	b.locked(func() {
		if n := len(b.samples); n > 0 && b.samples[n-1].measured != nil {
			p = *b.samples[n-1].measured
		}
	})
	return p
}

// lastCut is when the newest lower budget was first seen in force.
func (b *tracker) lastCut() (at time.Duration) {
	b.locked(func() {
		if at = b.sinceZero(); len(b.cuts) > 0 {
			at = b.cuts[len(b.cuts)-1]
		}
	})
	return at
}

// burnt divides the energy that a node has used among the jobs that had tasks
// running on it, by the number of tasks. Energy of a node without tasks belongs to no job.
func (b *tracker) burnt(node string, joules float64) {
	b.locked(func() {
		total := uint32(0)
		for _, j := range b.jobs {
			total += j.GetProgress().GetRunningOn()[node]
		}
		for _, j := range b.jobs {
			if n := j.GetProgress().GetRunningOn()[node]; n > 0 && joules > 0 {
				b.energy[j.GetId()] += joules * float64(n) / float64(total)
			}
		}
	})
}
