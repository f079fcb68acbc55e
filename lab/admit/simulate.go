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

// Ended is the result of one job.
type Ended struct {
	OutputJob

	// Got is the work that it did, s; ended: all of it.
	Got     float64
	ended   bool
	resized bool
}

// Outcome is the result of a run.
type Outcome struct {
	Jobs      []Ended
	fractions []float64
	most      float64 // the most slots held at once, in parts of the capacity
}

// epoch is when a simulation begins; only differences count.
var epoch = time.Unix(0, 0).UTC()

func at(s float64) time.Time { return epoch.Add(duration(s)) }

func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// kind is a kind of event. Of events at the same time they come in this order.
type kind uint8

const (
	end kind = iota
	change
	arrival
	tick
)

// event is the end of a job or its arrival, or a change of the capacity, by its number, or a tick of the door.
type event struct {
	kind   kind
	number int
}

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
	r := &run{Load: l, door: door, jobs: make([]events.Work[float64], len(l.Jobs)), ends: make([]events.ID, len(l.Jobs))}
	r.out.Jobs = make([]Ended, len(l.Jobs))
	r.out.fractions = []float64{}
	for i, c := range l.Changes {
		r.clock.Schedule(c.At, uint8(change), event{change, i})
	}
	for i, j := range l.Jobs {
		r.clock.Schedule(j.Arrival, uint8(arrival), event{arrival, i})
	}
	for e, ok := r.clock.Next(); ok; e, ok = r.clock.Next() {
		if err := r.happen(e); err != nil {
			return nil, err
		}
		r.setTick()
	}
	return &r.out, nil
}

// happen reports an event to the door and carries out its decisions.
func (r *run) happen(e event) (err error) {
	now := at(r.clock.Now())
	var decisions []admission.Decision
	switch e.kind {
	case end:
		decisions, err = r.end(now, e.number)
	case change:
		r.Capacity = r.Changes[e.number].Slots
		decisions, err = r.door.SetCapacity(now, r.Capacity)
	case arrival:
		j := &r.Jobs[e.number]
		decisions, err = r.door.Submit(now, admission.Job{
			ID: strconv.Itoa(e.number), User: j.User, Tasks: j.Tasks, Deadline: duration(j.Deadline), Work: duration(j.Work),
		})
	case tick:
		r.ticking = false
		decisions = r.door.Tick(now)
	}
	for i := 0; err == nil && i < len(decisions); i++ {
		err = r.carryOut(&decisions[i])
	}
	if r.Capacity > 0 {
		r.out.most = max(r.out.most, r.held/float64(r.Capacity))
	}
	return err
}

// setTick schedules the next tick that the door needs.
func (r *run) setTick() {
	if r.ticking {
		r.clock.Cancel(r.tick)
	}
	var due time.Time
	if due, r.ticking = r.door.NextTick(); r.ticking {
		r.tick = r.clock.Schedule(due.Sub(epoch).Seconds(), uint8(tick), event{kind: tick})
	}
}

// end reports to the door that a job has done its work.
func (r *run) end(now time.Time, i int) ([]admission.Decision, error) {
	e := &r.out.Jobs[i]
	decisions, met, err := r.door.Finished(now, strconv.Itoa(i), duration(r.Jobs[i].Work))
	e.Met, e.ended = met, true
	r.leave(i, r.Jobs[i].Work)
	if f := r.door.Fraction(); f >= 0 {
		r.out.fractions = append(r.out.fractions, f)
	}
	return decisions, err
}

// leave ends the run of a job that did so much work.
func (r *run) leave(i int, work float64) {
	now, e := r.clock.Now(), &r.out.Jobs[i]
	e.Got, e.Finish = work, &now
	r.held -= r.jobs[i].Rate
	if e.resized && now > *e.Start {
		e.Slots = work / (now - *e.Start) // in the mean
	}
}

// carryOut applies a decision about a job.
func (r *run) carryOut(d *admission.Decision) error {
	i, err := strconv.Atoi(d.ID)
	if err != nil || i < 0 || i >= len(r.Jobs) {
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
		r.ends[i] = r.clock.Schedule(w.Ends(), uint8(end), event{end, i})
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
		spent += e.Got
		if e.Met {
			met++
			workMet += jobs[i].Work
		} else {
			lost += e.Got
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

// ratio is a part of a whole; nil of nothing.
func ratio(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	r := min(1, max(0, part/whole))
	return &r
}
