package arbitration

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/scaling/runs"
	"headroom/units"
)

// The clock of a run.
const (
	lookEvery = 5 * time.Second
	planEvery = time.Second
	// lookSoonest is the least time between two looks: jobs that come, begin and end are looked at soon.
	lookSoonest = time.Second
	// lag is how long it takes until a decided share holds.
	lag = time.Second
	// drainMost is how long the jobs of a load may take after the last has come.
	drainMost = 12 * time.Hour
	// downFor is how long a failed machine is away.
	downFor = time.Minute
	// hair is what rounding may leave of a task, s.
	hair = 1e-9
)

// The joules that sprints of a server of 28 containers may take, and the shortest sprint by a timer.
const (
	joulesServer = 9 * units.Kilojoule
	refillServer = 25 * units.Watt
	sprintLeast  = 10 // s
)

// run is one run of one way to decide.
type run struct {
	load    *Load
	cluster *cluster
	jobs    []*job // all, by their arrival
	came    int
	now     time.Duration
	decider decider

	live  []*job // that have come and not ended
	dirty bool   // the plan is to be made again

	pot, potMost   float64 // J
	refill         float64 // W
	sprint         *sprint
	spent, energy  float64 // J
	sprints, holds int

	later []later // what is due, by time
	steps []Step
	// ended are the jobs that have ended since the last look, reports those that it is told of.
	ended, reports []*job
	// wake is when the decider wants to look before its turn; 0 for never.
	wake time.Duration
	// book is what runs teach about how jobs scale; nil where nothing is learned.
	book *runs.Book
}

type later struct {
	at time.Duration
	do func()
}

// sprint is the one that is open.
type sprint struct {
	job    *job
	nodes  []*node
	until  time.Duration
	escrow float64 // J
	drawn  float64 // J
}

// decider decides. pick returns the job whose task begins next, nil for none; look is the job loop's turn.
type decider interface {
	pick(r *run) *job
	look(r *run)
}

func newRun(l *Load, seed uint64, d decider) *run {
	part := float64(l.Containers) / perServer
	r := &run{
		load: l, cluster: newCluster(l.Containers, l.Budget[0].Budget), jobs: l.draw(seed), decider: d,
		potMost: joulesServer.Joules() * part, refill: refillServer.Watts() * part, steps: slices.Clone(l.Budget),
	}
	if _, learns := d.(learning); learns {
		r.book = &runs.Book{}
	}
	r.pot = r.potMost
	if l.Fails > 0 {
		x := drawn(seed, streamFailures)
		for _, n := range r.cluster.nodes {
			arrivals(x, l.Fails, l.For, func(at time.Duration) { r.after(at, func() { r.fail(n) }) })
		}
	}
	return r
}

// after keeps something to do at a moment.
func (r *run) after(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(r.later, at, func(l later, at time.Duration) int {
		if l.at <= at {
			return -1
		}
		return 1
	})
	r.later = slices.Insert(r.later, i, later{at, do})
}

// fail takes a machine away for a while: its tasks begin again elsewhere.
func (r *run) fail(n *node) {
	if n.down {
		return
	}
	n.down = true
	for _, a := range n.running {
		a.job.again = append(a.job.again, a.task)
		a.job.forget(a)
	}
	n.running = nil
	n.settle()
	r.dirty = true
	r.after(r.now+downFor, func() {
		n.down = false
		n.settle()
		r.dirty = true
	})
}

// run runs the jobs to their end, and reports whether that was before drainMost.
func (r *run) run() bool {
	nextLook, nextPlan, looked := lookEvery, planEvery, time.Duration(0)
	r.replan()
	for most := r.load.For + drainMost; r.now < r.load.For || r.came < len(r.jobs) || len(r.live) > 0; {
		if r.now >= most {
			return false
		}
		r.pass(max(r.now, min(nextLook, nextPlan, r.next())))
		if r.happen() {
			nextLook = min(nextLook, max(r.now, looked+lookSoonest))
		}
		if r.wake > r.now {
			nextLook = min(nextLook, max(r.wake, looked+lookSoonest))
		}
		if nextLook <= r.now {
			nextLook, looked, r.wake = r.now+lookEvery, r.now, 0
			r.reports, r.ended = r.ended, nil
			r.decider.look(r)
		}
		if nextPlan <= r.now {
			nextPlan += planEvery
			if r.dirty {
				r.replan()
			}
		}
		r.hand()
		r.pace()
	}
	r.settle()
	return true
}

// next returns when something happens next.
func (r *run) next() time.Duration {
	at := r.now + lookEvery
	if r.came < len(r.jobs) {
		at = min(at, r.jobs[r.came].Arrival)
	}
	if len(r.later) > 0 {
		at = min(at, r.later[0].at)
	}
	if r.sprint != nil {
		at = min(at, r.sprint.until)
	}
	if len(r.steps) > 0 {
		at = min(at, r.steps[0].At)
	}
	for _, n := range r.cluster.nodes {
		if d, ok := n.next(); ok {
			at = min(at, r.now+d)
		}
	}
	return at
}

// happen lets happen what is due, and reports whether a look ought to follow soon: a job has come or ended, or a sprint
// is over.
func (r *run) happen() (soon bool) {
	ended := len(r.ended)
	r.complete()
	soon = len(r.ended) > ended
	for len(r.steps) > 0 && r.steps[0].At <= r.now {
		r.cluster.limit(r.steps[0].Budget)
		r.steps = r.steps[1:]
		r.apply()
	}
	for len(r.later) > 0 && r.later[0].at <= r.now {
		do := r.later[0].do
		r.later = r.later[1:]
		do()
	}
	for r.came < len(r.jobs) && r.jobs[r.came].Arrival <= r.now {
		r.jobs[r.came].advised(r.book)
		r.live = append(r.live, r.jobs[r.came])
		r.came++
		soon = true
	}
	if r.sprint != nil && r.sprint.until <= r.now {
		r.settle()
		soon = true
	}
	return soon
}

// pass lets time go by.
func (r *run) pass(to time.Duration) {
	dt := (to - r.now).Seconds()
	r.now = to
	escrow := 0.0
	if s := r.sprint; s != nil {
		for _, n := range s.nodes {
			s.drawn += max(0, (n.draws-n.base).Watts()) * dt
		}
		escrow = s.escrow
	}
	r.energy += r.cluster.draws().Watts() * dt
	r.pot = min(r.potMost-escrow, r.pot+r.refill*dt)
	for _, n := range r.cluster.nodes {
		n.done += n.speed * dt
	}
	for _, j := range r.live {
		j.measure(dt)
	}
}

// complete takes the tasks that have ended off their machines.
func (r *run) complete() {
	for _, n := range r.cluster.nodes {
		ended := false
		for len(n.running) > 0 && n.running[0].until <= n.done+hair {
			j := n.end().job
			j.done++
			ended = true
			r.over(j)
		}
		if ended {
			n.settle()
			r.dirty = true
		}
	}
}

// over ends a job whose last task is done or dropped.
func (r *run) over(j *job) {
	if j.done+j.dropped < len(j.times) || j.end > 0 {
		return
	}
	j.end = r.now
	j.teach(r.book)
	r.ended = append(r.ended, j)
	r.live = slices.DeleteFunc(r.live, func(x *job) bool { return x == j })
	if r.sprint != nil && r.sprint.job == j {
		r.settle()
	}
}

// replan divides the watts again.
func (r *run) replan() {
	r.dirty = false
	r.cluster.plan()
	r.apply()
}

// apply gives the machines their caps.
func (r *run) apply() {
	for _, n := range r.cluster.nodes {
		n.cap = n.base
		if r.sprint != nil && slices.Contains(r.sprint.nodes, n) {
			n.cap = n.sprinting()
		}
		n.settle()
	}
}

// rise returns by how much machines may go above their caps.
func rise(nodes []*node) (sum units.Power) {
	for _, n := range nodes {
		sum += n.sprinting() - n.base
	}
	return sum
}

// nodesOf returns the machines that run tasks of a job.
func (r *run) nodesOf(j *job) (out []*node) {
	for _, n := range r.cluster.nodes {
		if slices.ContainsFunc(j.running, func(a *attempt) bool { return a.node == n }) {
			out = append(out, n)
		}
	}
	return out
}

// begin puts joules aside and lets a job's machines sprint.
func (r *run) begin(j *job, d time.Duration) {
	nodes := r.nodesOf(j)
	watts := rise(nodes).Watts()
	if r.sprint != nil || watts <= 0 {
		return
	}
	d = min(d, seconds(r.pot/watts))
	escrow := math.Min(r.pot, watts*d.Seconds())
	r.pot -= escrow
	r.sprint = &sprint{job: j, nodes: nodes, until: r.now + d, escrow: escrow}
	r.sprints++
	r.apply()
}

// settle ends the sprint: what was not drawn goes back.
func (r *run) settle() {
	s := r.sprint
	if s == nil {
		return
	}
	r.sprint = nil
	r.spent += min(s.drawn, s.escrow)
	r.pot = min(r.potMost, r.pot+max(0, s.escrow-s.drawn))
	r.apply()
}

// drop takes up to n tasks that have not begun away from a job, within its floor.
func (r *run) drop(j *job, n int) {
	j.dropped += max(0, min(n, j.droppable()))
	r.over(j)
}

// hand starts tasks in free containers.
func (r *run) hand() {
	for {
		n := r.cluster.place()
		if n.free() == 0 {
			return
		}
		j := r.decider.pick(r)
		if j == nil {
			return
		}
		if !j.began {
			j.began, j.first, r.wake = true, r.now, r.now+lookSoonest
		}
		n.start(j, j.take())
		n.settle()
		r.dirty = true
	}
}
