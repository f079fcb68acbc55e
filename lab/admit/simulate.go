package admit

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"headroom/jobs/admission"
	"headroom/lab/events"
)

// Job is one job of a load, with what its tasks really take. Times are in seconds.
type Job struct {
	User  string
	Tasks int
	// Arrival is when it is submitted, Deadline how long after that it ought to have ended.
	Arrival, Deadline float64
	// Work is what all of its tasks take together.
	Work float64
}

// Change is a capacity from a moment on.
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

// Ended is what became of one job.
type Ended struct {
	// Met reports whether it did all of its work within its deadline. Got is the work that it did, s.
	Met bool
	Got float64

	verdict       admission.Verdict  // Admitted, Queued (began later) or Refused
	start, finish float64            // of a job that ran
	ran, ended    bool               // ended: it did all of its work
	last          admission.Decision // the newest one that named the job
	first         float64            // slots at its start
	resized       bool
}

// Outcome is a whole run.
type Outcome struct {
	Jobs      []Ended
	fractions []float64
	most      float64 // the most slots held at once, in parts of the capacity
}

// epoch is when a simulation begins; only differences count.
var epoch = time.Unix(0, 0).UTC()

func at(s float64) time.Time { return epoch.Add(duration(s)) }

func duration(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// Ranks of what happens at one time, after the ends of jobs.
const (
	change uint8 = iota + 1
	arrival
	tick
)

// event is a change of the capacity or an arrival by its number, or a tick of the door.
type event struct {
	rank   uint8
	number int
}

// nowhere is the slot of a job that does not run.
const nowhere = -1

// run is one simulation: it drives the door as a scheduler would. A running job is a task on a slot of its own, as fast as the
// slots that it holds: perfect speed-up.
type run struct {
	Load
	door Door
	m    events.Machine[event]
	out  Outcome
	// slots is the machine's slot of each job.
	slots []int
	held  float64

	ticking bool
	tick    events.ID
}

// Simulate lets a door decide about a load, to the end of the last job.
func Simulate(door Door, l Load) (*Outcome, error) {
	r := &run{Load: l, door: door}
	r.out.Jobs = make([]Ended, len(l.Jobs))
	r.out.fractions = []float64{}
	for i, c := range l.Changes {
		r.m.Schedule(c.At, change, event{change, i})
	}
	for i, j := range l.Jobs {
		r.m.AddJob(1) // its only task has the job's number
		r.m.Schedule(j.Arrival, arrival, event{arrival, i})
		r.slots = append(r.slots, nowhere)
	}
	for {
		e, ok := r.m.Next()
		if !ok {
			return &r.out, nil
		}
		if err := r.happen(e); err != nil {
			return nil, err
		}
		r.setTick()
	}
}

// happen tells the door of an event and does what it decides.
func (r *run) happen(e events.Event[event]) (err error) {
	now := at(r.m.Now())
	var decisions []admission.Decision
	switch {
	case e.Ended:
		decisions, err = r.end(now, e.Task)
	case e.Own.rank == change:
		r.Capacity = r.Changes[e.Own.number].Slots
		decisions, err = r.door.SetCapacity(now, r.Capacity)
	case e.Own.rank == arrival:
		j := &r.Jobs[e.Own.number]
		decisions, err = r.door.Submit(now, admission.Job{
			ID: name(e.Own.number), User: j.User, Tasks: j.Tasks, Deadline: duration(j.Deadline), Work: duration(j.Work),
		})
	default:
		r.ticking = false
		decisions = r.door.Tick(now)
	}
	if err != nil {
		return err
	}
	for i := range decisions {
		if err := r.carryOut(&decisions[i]); err != nil {
			return err
		}
	}
	if r.Capacity > 0 {
		r.out.most = max(r.out.most, r.held/float64(r.Capacity))
	}
	return nil
}

// setTick lets the door tick when it asks for it.
func (r *run) setTick() {
	if r.ticking {
		r.m.Cancel(r.tick)
	}
	var due time.Time
	if due, r.ticking = r.door.NextTick(); r.ticking {
		r.tick = r.m.Schedule(due.Sub(epoch).Seconds(), tick, event{rank: tick})
	}
}

// end reports that a job has done its work.
func (r *run) end(now time.Time, i int) ([]admission.Decision, error) {
	e := &r.out.Jobs[i]
	decisions, met, err := r.door.Finished(now, name(i), duration(r.Jobs[i].Work))
	e.finish, e.Met, e.Got, e.ended = r.m.Now(), met, r.Jobs[i].Work, true
	r.leave(i)
	if f := r.door.Fraction(); f >= 0 {
		r.out.fractions = append(r.out.fractions, f)
	}
	return decisions, err
}

// leave takes a job from its slot, which runs nothing any more.
func (r *run) leave(i int) {
	r.held -= r.m.Speed(r.slots[i])
	r.slots[i] = nowhere
}

// start runs a job on so many slots.
func (r *run) start(i int, slots float64) {
	if len(r.m.Free()) == 0 {
		r.m.AddSlots(1, 0)
	}
	free := r.m.Free()
	r.slots[i] = int(free[len(free)-1])
	r.m.SetSpeed(r.slots[i], slots)
	r.m.Start(i, r.slots[i], r.Jobs[i].Work)
	r.held += slots
}

// carryOut does what was decided about a job.
func (r *run) carryOut(d *admission.Decision) error {
	i, err := strconv.Atoi(d.ID)
	if err != nil || i < 0 || i >= len(r.Jobs) {
		return fmt.Errorf("decision about unknown job %q", d.ID)
	}
	e := &r.out.Jobs[i]
	if d.Verdict != admission.Resized {
		e.last = *d
	}
	switch d.Verdict {
	case admission.Admitted:
		if e.verdict != admission.Queued {
			e.verdict = admission.Admitted
		}
		e.ran, e.start, e.first = true, r.m.Now(), d.Slots
		r.start(i, d.Slots)
	case admission.Queued, admission.Refused:
		e.verdict = d.Verdict
	case admission.Resized:
		e.resized = true
		r.held += d.Slots - r.m.Speed(r.slots[i])
		r.m.SetSpeed(r.slots[i], d.Slots)
	case admission.Stopped:
		copied := r.m.Copy(r.slots[i])
		e.finish, e.Got = r.m.Now(), copied.Work-copied.Left
		r.m.Drop(i)
		r.leave(i)
	}
	return nil
}
