package grass

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/speculation"
	"headroom/lab/events"
)

const (
	lookEvery      = 0.1  // how often a job with free slots looks at tasks that run, and the interval of reports, in median tasks
	ownLeast       = 10   // tasks must have ended before the job's own times count: the first to end are short ones
	checked        = 0.25 // an estimate of t_rem is held against the truth once so much was reported
	estimateStep   = 0.01 // by how much the estimate of a task must change before policies get it: less than it is accurate
	meanSize       = 1.3  // the median task over one with an input of size 1, until tasks of the job itself have ended
	accuracyBefore = 0.74 // of estimates before any of the job's own was checked: the mean of the paper's two
)

// variant is one way to run a job.
type variant struct {
	name   string
	policy speculation.Policy
	xi     float64 // of grass and ours
	// noCopies is the mistake of a mutant: copies are not started.
	noCopies bool
}

// promise is what a job promises: to end after left s, or otherwise on all but err of its tasks.
type promise struct{ left, err float64 }

// run is a job that runs by a policy.
type run struct {
	outcome
	spec    *spec
	variant variant
	promise promise
	past    *speculation.Samples
	caps    caps

	m        *events.Machine[look]
	copies   []copied // by slot
	started  []int    // how many copies of each task have started
	restarts []int    // how often each was begun again
	nodes    []node   // by slot
	own      speculation.Durations
	told     time.Duration // what policies received for a task with an input of size 1
	view     speculation.View
	looking  bool
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
	// fresh was expected of it; quarter was left by the estimate at a time. steps of progress were reported, the last at this part
	// of the work; the next comes at that.
	fresh, quarter               time.Duration
	began, gamma, at, last, next float64
	steps                        int
}

// node is how much progress a node made, in how many seconds.
type node struct{ progress, busy float64 }

// outcome is what became of a job.
type outcome struct {
	done, took  float64              // the part of the tasks that were done at the end, after so many s
	left, fresh speculation.Accuracy // how good the estimates of t_rem and t_new were
	at          []float64            // when each of the tasks that are done ended
}

// accuracy is the mean of both estimates' accuracies.
func (o *outcome) accuracy() float64 {
	a, ok := o.left.Value()
	b, ok2 := o.fresh.Value()
	if !ok || !ok2 {
		return accuracyBefore
	}
	return (a + b) / 2
}

// play runs the job until its promise is kept or due.
func play(s *spec, v variant, p promise, past *speculation.Samples, caps caps) (outcome, error) {
	s.draw()
	r := &run{
		spec: s, variant: v, promise: p, past: past, caps: caps, m: events.NewMachine[look](s.tasks, s.width),
		copies: make([]copied, s.width), started: make([]int, s.tasks), restarts: make([]int, s.tasks), nodes: make([]node, s.width),
	}
	r.setSpeeds()
	for i := range s.tasks {
		r.view.Tasks = append(r.view.Tasks, speculation.Task{ID: i})
	}
	if p.left > 0 {
		r.m.Schedule(p.left, 2, lookEnd)
	}
	if caps {
		r.m.Schedule(caps.change(s), 1, lookCaps)
	}
	need := speculation.Bound{Error: p.err}.Need(s.tasks)
	for over := false; !over; {
		if err := r.fill(); err != nil {
			return outcome{}, err
		}
		e, ok := r.m.Next()
		switch {
		case !ok || !e.Ended && e.Own == lookEnd:
			over = true
		case e.Ended:
			r.learn(e.Task, e.Slot)
			over = r.m.Done == s.tasks || p.left <= 0 && r.m.Done >= need
		case e.Own == lookCaps:
			r.setSpeeds()
		default:
			r.looking = false
		}
	}
	r.done, r.took = float64(r.m.Done)/float64(s.tasks), r.m.Now()
	return r.outcome, nil
}

func (r *run) setSpeeds() {
	for i := range r.spec.width {
		r.m.SetSpeed(i, r.caps.speed(r.spec, i, r.m.Now()))
	}
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
	_ = r.own.Add(seconds(took), r.spec.sizes[task]) // tasks take time
}

// knowsCaps reports whether the policy gets the nodes' caps.
func (r *run) knowsCaps() bool { return r.variant.policy == speculation.Ours }

// fill gives the free slots to tasks by the policy.
func (r *run) fill() error {
	var free []int
	for slot := range r.spec.width {
		if !r.m.Busy(slot) {
			free = append(free, slot)
		}
	}
	if len(free) == 0 {
		return nil
	}
	r.see(free)
	d, err := speculation.Decide(r.variant.policy, r.view, r.past)
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

// see makes the view of the job with these slots free.
func (r *run) see(free []int) {
	v := &r.view
	v.Slots, v.Width, v.Utilisation = len(free), r.spec.width, r.spec.utilisation
	v.Bound = speculation.Bound{ByDeadline: r.promise.left > 0, Left: max(0, seconds(r.promise.left-r.m.Now())), Error: r.promise.err}
	v.Report, v.Accuracy, v.Speeds = seconds(lookEvery*median()), r.accuracy(), nil
	if r.variant.policy == speculation.LATE {
		v.Slow = r.slow(free)
	}
	if r.variant.policy == speculation.Mantri {
		v.Restarts, v.Durations = true, r.own.Ratios()
	}
	if bool(r.caps) && r.knowsCaps() {
		for _, slot := range free {
			v.Speeds = append(v.Speeds, r.m.Speed(slot))
		}
	}
	// Of a task with an input of size 1, by the job's own tasks that have ended, and by earlier jobs' while they are few.
	v.Typical = seconds(median() / meanSize)
	if r.m.Done >= ownLeast {
		v.Typical, _ = r.own.New(1)
	}
	all := math.Abs(float64(v.Typical)/float64(max(1, r.told))-1) >= estimateStep
	if all {
		r.told = v.Typical
	}
	for i := range v.Tasks {
		if all || r.m.Copies(i) > 0 {
			r.seeTask(i, &v.Tasks[i])
		}
	}
}

// seeTask is what the policy sees of a task.
func (r *run) seeTask(i int, t *speculation.Task) {
	*t = speculation.Task{ID: i, New: time.Duration(float64(r.told) * r.spec.sizes[i]), Restarted: r.restarts[i]}
	if r.m.Ended(i) {
		*t = speculation.Task{ID: i, State: speculation.Done}
		return
	}
	if copies := r.m.Copies(i); copies > 0 {
		t.State, t.Copies, t.Remaining = speculation.Running, copies, -1
		r.seeCopies(i, t)
	}
	if r.variant.policy == speculation.Oracle {
		work, _ := r.spec.copied(i, r.started[i])
		t.New = seconds(work)
	}
}

// seeCopies is t_rem by the copy that will end first, as its reports have it.
func (r *run) seeCopies(i int, t *speculation.Task) {
	for slot := range r.m.Slots(i) {
		c := r.m.Copy(slot)
		speed := r.m.Speed(slot)
		left, part := r.reported(slot, c)
		if r.variant.policy == speculation.Oracle {
			left = seconds(c.Left / speed)
		}
		if t.Remaining >= 0 && left >= t.Remaining {
			continue
		}
		t.Remaining, t.Rate = left, 1/max(1e-9, (left.Seconds()+r.m.Now()-c.Began))
		if bool(r.caps) && r.knowsCaps() {
			t.Speed, t.Measured = speed, speed
			if part > 0 {
				t.Measured = r.caps.mean(r.spec, slot, c.Began, r.m.Now())
			}
		}
	}
}

// reported is the estimate of t_rem by the last report of a copy, and the part that it had
// done. Before the first report it is what was expected, until the report is overdue.
func (r *run) reported(slot int, c events.Copy) (left time.Duration, part float64) {
	k := &r.copies[slot]
	now := r.m.Now()
	done := 1 - c.Left/c.Work
	for k.steps < fullSteps && done >= k.next {
		k.steps++
		k.last, k.next = k.next, math.Pow(reports*float64(k.steps+1), 1/k.gamma)
	}
	part = reports * float64(k.steps)
	if k.steps == 0 {
		elapsed := seconds(now - c.Began)
		return max(k.fresh-elapsed, time.Duration(float64(elapsed)*(1-reports)/reports)), 0
	}
	since := (done - k.last) * c.Work / r.m.Speed(slot)
	left, _ = speculation.Remaining(seconds(max(0, now-c.Began-since)), min(1, part), seconds(max(0, since)))
	if k.at == 0 && part >= checked {
		k.quarter, k.at = left, now
	}
	return left, part
}

// slow are the free slots of nodes that are among the slowest quarter by all they have done, where nodes differ at all.
func (r *run) slow(free []int) []bool {
	var scores []float64
	for _, n := range r.nodes {
		if n.busy > 0 {
			scores = append(scores, n.progress/n.busy)
		}
	}
	if bool(!r.caps) || len(scores) == 0 {
		return nil
	}
	slices.Sort(scores)
	limit := scores[len(scores)/4]
	slow := make([]bool, len(free))
	for i, slot := range free {
		n := r.nodes[slot]
		slow[i] = n.busy > 0 && n.progress/n.busy < limit
	}
	return slow
}
