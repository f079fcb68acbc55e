package grass

import (
	"math"
	"time"

	"headroom/jobs/speculation"
	"headroom/lab/events"
)

const (
	// lookEvery is how often a job with free slots looks again at tasks that run, and the interval
	// of their reports, as a part of the median task.
	lookEvery = 0.1
	// ownLeast tasks must have ended before the job's own times count more than earlier jobs':
	// the first to end are short ones.
	ownLeast = 10
	// checked: an estimate of t_rem is held against the truth once so much was reported.
	checked = 0.25
)

// variant is one way to run a job.
type variant struct {
	name   string
	policy speculation.Policy
	// xi is that of grass and ours.
	xi float64
	// knows: the policy sees true times. Only the oracle does, and mutants.
	knows bool
	// Mistakes of mutants: copies are not started, and estimates are drawn at random.
	noCopies, random bool
}

// promise is what a job promises: to end after left s, or otherwise on all but err of its tasks.
type promise struct{ left, err float64 }

// run is a job that runs by a policy.
type run struct {
	spec    *spec
	variant variant
	promise promise
	past    *past
	caps    *caps

	m        *events.Machine[look]
	copies   []copied // by slot
	started  []int    // how many copies of each task have started
	restarts []int    // how often each was begun again
	nodes    []node   // by slot
	own      speculation.Durations
	told     time.Duration // what policies received for a task with an input of size 1
	ended    int
	view     speculation.View
	looking  bool
	at       []float64 // when tasks ended
	// left and fresh are how good the estimates of t_rem and t_new were.
	left, fresh speculation.Accuracy
}

// look is an event of the job's own.
type look uint8

const (
	lookAgain look = iota
	lookEnd
	lookCaps
)

// copied is what is known of a copy on a slot.
type copied struct {
	began, gamma float64
	// fresh was expected of it; quarter was left by the estimate at a time.
	fresh, quarter time.Duration
	at             float64
	// steps of progress were reported, the last at this part of the work; the next comes at that.
	steps      int
	last, next float64
}

// node is how much progress a node made, in how many seconds.
type node struct{ progress, busy float64 }

// outcome is what became of a job.
type outcome struct {
	// done is the part of the tasks that were done at the end, after took s.
	done, took  float64
	left, fresh speculation.Accuracy
	// at is when each of the tasks that are done ended.
	at []float64
}

// play runs the job until its promise is kept or due.
func play(s *spec, v variant, p promise, past *past, caps *caps) (outcome, error) {
	s.draw()
	r := &run{
		spec: s, variant: v, promise: p, past: past, caps: caps, m: events.NewMachine[look](s.tasks, s.width),
		copies: make([]copied, s.width), started: make([]int, s.tasks), restarts: make([]int, s.tasks), nodes: make([]node, s.width),
	}
	for i := range s.width {
		r.m.SetSpeed(i, caps.speed(s, i, 0))
	}
	r.view.Tasks = make([]speculation.Task, s.tasks)
	for i := range r.view.Tasks {
		r.view.Tasks[i].ID = i
	}
	if p.left > 0 {
		r.m.Schedule(p.left, 2, lookEnd)
	}
	if caps != nil {
		r.m.Schedule(caps.change(s), 1, lookCaps)
	}
	need := speculation.Bound{Error: p.err}.Need(s.tasks)
	for {
		if err := r.fill(); err != nil {
			return outcome{}, err
		}
		e, ok := r.m.Next()
		switch {
		case !ok || !e.Ended && e.Own == lookEnd:
			return r.outcome(), nil
		case e.Ended:
			r.learn(e.Task, e.Slot)
			if r.m.Done == s.tasks || p.left <= 0 && r.m.Done >= need {
				return r.outcome(), nil
			}
		case e.Own == lookCaps:
			for i := range s.width {
				r.m.SetSpeed(i, caps.speed(s, i, r.m.Now()))
			}
		default:
			r.looking = false
		}
	}
}

func (r *run) outcome() outcome {
	return outcome{done: float64(r.m.Done) / float64(r.spec.tasks), took: r.m.Now(), left: r.left, fresh: r.fresh, at: r.at}
}

// learn takes a task that has ended on a slot.
func (r *run) learn(task, slot int) {
	c := &r.copies[slot]
	took := r.m.Now() - c.began
	r.view.Tasks[task] = speculation.Task{ID: task, State: speculation.Done}
	r.at = append(r.at, r.m.Now())
	r.fresh.Add(c.fresh, seconds(took))
	if c.at > 0 {
		r.left.Add(c.quarter, seconds(r.m.Now()-c.at))
	}
	r.nodes[slot].progress++
	r.nodes[slot].busy += took
	if r.knowsCaps() {
		took *= r.caps.mean(r.spec, slot, c.began, r.m.Now())
	}
	if r.own.Add(seconds(took), r.spec.sizes[task]) == nil {
		r.ended++
	}
}

// knowsCaps reports whether the policy gets the nodes' caps.
func (r *run) knowsCaps() bool { return r.variant.policy == speculation.Ours }

// fill gives the free slots to tasks by the policy.
func (r *run) fill() error {
	free := r.free()
	if len(free) == 0 {
		return nil
	}
	r.see(free)
	d, err := speculation.Decide(r.variant.policy, r.view, r.past.of(r.variant))
	if err != nil {
		return err
	}
	r.view.Greedy = d.Greedy
	for _, task := range d.Restart {
		for slot := range r.m.Slots(task) {
			r.m.Kill(slot)
			r.restarts[task]++
			r.start(task, slot)
			break
		}
	}
	for _, a := range d.Actions {
		if a.Kind == speculation.Wait || a.Kind == speculation.Copy && r.variant.noCopies {
			break
		}
		r.start(a.Task, free[a.Slot])
	}
	if !r.looking && r.m.Free > 0 && r.m.Running > 0 {
		r.looking = true
		r.m.Schedule(r.m.Now()+lookEvery*median(), 3, lookAgain)
	}
	return nil
}

// free are the free slots in their order.
func (r *run) free() []int {
	free := make([]int, 0, r.m.Free)
	for slot := range r.spec.width {
		if !r.m.Busy(slot) {
			free = append(free, slot)
		}
	}
	return free
}

// start runs the next copy of a task on a slot.
func (r *run) start(task, slot int) {
	work, gamma := r.spec.copied(task, r.started[task])
	r.started[task]++
	fresh := float64(r.view.Tasks[task].New)
	if r.knowsCaps() {
		fresh /= r.m.Speed(slot)
	}
	r.copies[slot] = copied{began: r.m.Now(), gamma: gamma, fresh: time.Duration(fresh), next: math.Pow(reports, 1/gamma)}
	r.m.Start(task, slot, work)
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }
