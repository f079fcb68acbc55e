// Package admit simulates the admission of jobs with deadlines by any
// policy of package admission, and computes the paper's measures.
//
// The one idea: Simulate drives the same Controller as a scheduler, with the same calls. The
// simulation has the work of each job; the controller learns it only when the job has ended,
// except under the policy oracle.
//
// Guarantees: the same load gives the same Outcome, and every number is finite. Jobs have perfect
// speed-up: losses of a real engine between slots are not simulated.
package admit

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"headroom/jobs/admission"
	"headroom/lab/events"
)

// Job is one job of a load, with the true times of its tasks. Times are in seconds.
type Job struct {
	User  string
	Tasks int
	// Arrival is when it is submitted. Deadline counts from there.
	Arrival, Deadline float64
	// Work is the time of all of its tasks together.
	Work float64
}

// Change is a capacity from a time on.
type Change struct {
	At    float64
	Slots int
}

// Load is what is simulated. Jobs and changes are in the order of their times.
type Load struct {
	Capacity int
	Jobs     []Job
	Changes  []Change
}

// Door is what decides: an admission.Controller, or in a study one with a mistake.
type Door interface {
	Submit(now time.Time, j admission.Job) ([]admission.Decision, error)
	Finished(now time.Time, id string, work time.Duration) (out []admission.Decision, met bool, err error)
	SetCapacity(now time.Time, slots int) ([]admission.Decision, error)
	Tick(now time.Time) []admission.Decision
	NextTick() (time.Time, bool)
	Fraction() float64
}

// Ended is the result of one job. What does not exist is nil.
type Ended struct {
	Decision   string   `json:"decision"`
	Slots      float64  `json:"slots"`
	Start      *float64 `json:"start_s"`
	Finish     *float64 `json:"finish_s"`
	Met        bool     `json:"met"`
	Confidence float64  `json:"confidence"`
	Nearest    *float64 `json:"nearest_deadline_s"`
	Reason     string   `json:"reason"`

	got     float64 // the work that it did, s; ended: all of it
	ended   bool
	resized bool
}

// Outcome is the result of a run. Fractions are PYTHIA's estimates of the part of its deadline that a job needs, as they change.
type Outcome struct {
	Jobs      []Ended
	Fractions []float64
	most      float64 // the most slots held at once, in parts of the capacity
}

// epoch is when a simulation begins; only differences count.
var epoch = time.Unix(0, 0).UTC()

func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// Events at the same time come in this order: the end of a job, a change of the capacity, an arrival, a tick of the door.
const (
	rankEnd uint8 = iota
	rankChange
	rankArrival
	rankTick
)

// event lets something happen and returns what the door decides then.
type event func(now time.Time) ([]admission.Decision, error)

// run is one simulation: it drives the door as a scheduler would.
type run struct {
	Load
	door  Door
	clock events.Clock[float64, event]
	out   Outcome
	// jobs are those that run: perfect speed-up, so that the slots of a job are its rate. ends are the events of their ends.
	jobs []events.Work[float64]
	ends []events.ID
	held float64

	ticking bool
	tick    events.ID
}

// Simulate lets a door decide about a load, to the end of the last job.
func Simulate(door Door, l Load) (*Outcome, error) {
	n := len(l.Jobs)
	r := &run{Load: l, door: door, jobs: make([]events.Work[float64], n), ends: make([]events.ID, n), out: Outcome{Jobs: make([]Ended, n), Fractions: []float64{}}}
	for _, c := range l.Changes {
		r.clock.Schedule(c.At, rankChange, func(now time.Time) ([]admission.Decision, error) {
			r.Capacity = c.Slots
			return door.SetCapacity(now, c.Slots)
		})
	}
	for i, j := range l.Jobs {
		r.clock.Schedule(j.Arrival, rankArrival, func(now time.Time) ([]admission.Decision, error) {
			return door.Submit(now, admission.Job{ID: strconv.Itoa(i), User: j.User, Tasks: j.Tasks, Deadline: duration(j.Deadline), Work: duration(j.Work)})
		})
	}
	for do, ok := r.clock.Next(); ok; do, ok = r.clock.Next() {
		decisions, err := do(epoch.Add(duration(r.clock.Now())))
		for i := 0; err == nil && i < len(decisions); i++ {
			err = r.carryOut(&decisions[i])
		}
		if err != nil {
			return nil, err
		}
		if r.Capacity > 0 {
			r.out.most = max(r.out.most, r.held/float64(r.Capacity))
		}
		r.setTick()
	}
	return &r.out, nil
}

func (r *run) setTick() {
	if r.ticking {
		r.clock.Cancel(r.tick)
	}
	var due time.Time
	if due, r.ticking = r.door.NextTick(); r.ticking {
		r.tick = r.clock.Schedule(due.Sub(epoch).Seconds(), rankTick, func(now time.Time) ([]admission.Decision, error) {
			r.ticking = false
			return r.door.Tick(now), nil
		})
	}
}

func (r *run) end(now time.Time, i int) ([]admission.Decision, error) {
	e := &r.out.Jobs[i]
	decisions, met, err := r.door.Finished(now, strconv.Itoa(i), duration(r.Jobs[i].Work))
	e.Met, e.ended = met, true
	r.leave(i, r.Jobs[i].Work)
	if f := r.door.Fraction(); f >= 0 {
		r.out.Fractions = append(r.out.Fractions, f)
	}
	return decisions, err
}

func (r *run) leave(i int, work float64) {
	now, e := r.clock.Now(), &r.out.Jobs[i]
	e.got, e.Finish = work, &now
	r.held -= r.jobs[i].Rate
	if e.resized && now > *e.Start {
		e.Slots = work / (now - *e.Start) // in the mean
	}
}

func (r *run) carryOut(d *admission.Decision) error {
	i, err := strconv.Atoi(d.ID)
	if err != nil {
		return fmt.Errorf("decision about unknown job %q", d.ID)
	}
	now, e, w := r.clock.Now(), &r.out.Jobs[i], &r.jobs[i]
	if d.Verdict != admission.Resized {
		e.Confidence, e.Reason, e.Nearest = d.Confidence, d.Reason(), nil
		if d.Nearest > 0 {
			e.Nearest = new(d.Nearest.Seconds())
		}
	}
	switch d.Verdict {
	case admission.Admitted:
		if e.Decision != admission.Queued.String() {
			e.Decision = admission.Admitted.String()
		}
		e.Start, e.Slots = &now, d.Slots
		*w = events.Work[float64]{Left: r.Jobs[i].Work, Rate: d.Slots, Since: now}
		r.ends[i] = r.clock.Schedule(w.Ends(), rankEnd, func(now time.Time) ([]admission.Decision, error) { return r.end(now, i) })
		r.held += d.Slots
	case admission.Queued, admission.Refused:
		e.Decision = d.Verdict.String()
	case admission.Resized:
		e.resized = true
		r.held += d.Slots - w.Rate
		if d.Slots != w.Rate {
			w.SetRate(now, d.Slots)
			r.clock.Move(r.ends[i], w.Ends())
		}
	case admission.Stopped:
		r.clock.Cancel(r.ends[i])
		r.leave(i, r.Jobs[i].Work-w.LeftAt(now))
	}
	return nil
}

// Measures are the paper's measures of a run. What has no denominator is nil.
type Measures struct {
	// SDR is the part of the jobs that met their deadlines, PTR their part of all work, and Wasted the part of the slots'
	// time that went to jobs that missed.
	SDR, PTR, Wasted *float64
}

// Measure returns the measures of a run of jobs.
func (o *Outcome) Measure(jobs []Job) Measures {
	var met, all, workMet, workAll, lost, spent float64
	for i := range o.Jobs {
		e := &o.Jobs[i]
		all++
		workAll += jobs[i].Work
		spent += e.got
		if e.Met {
			met++
			workMet += jobs[i].Work
		} else {
			lost += e.got
		}
	}
	return Measures{SDR: ratio(met, all), PTR: ratio(workMet, workAll), Wasted: ratio(lost, spent)}
}

// Judge decides again which jobs have met their deadlines, by those of the jobs: for a run by a door that looks at none.
func (o *Outcome) Judge(jobs []Job) {
	for i := range o.Jobs {
		e := &o.Jobs[i]
		e.Met = e.ended && *e.Finish-jobs[i].Arrival <= jobs[i].Deadline+slack
	}
}

// slack is by how much a time may miss another through rounding, s.
const slack = 1e-6

func ratio(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	r := min(1, max(0, part/whole))
	return &r
}
