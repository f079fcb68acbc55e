package arbitration

import (
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/budget"
	"headroom/jobs/scaling/runs"
	"headroom/lab/events"
	"headroom/units"
)

const (
	lookEvery    = 5 * time.Second
	lookSoonest  = time.Second         // between two looks: jobs that come, begin and end are looked at soon
	planEvery    = time.Second         // the watts are divided
	lag          = time.Second         // until a decided share holds
	drainMost    = 12 * time.Hour      // the jobs may take after the last has come
	downFor      = time.Minute         // a failed machine is away
	hair         = 1e-9                // s, what rounding may leave of a task
	joulesServer = 9 * units.Kilojoule // for sprints of a server of 28 containers
	refillServer = 25 * units.Watt
	sprintLeast  = 10 // s, by a timer
)

// run is one run of one way to decide.
type run struct {
	load   *Load
	nodes  []*node
	budget units.Power
	jobs   []*job // all, by their arrival
	came   int
	// clock has what is due: changes of the budget, failures, shares on their way, arrivals and the end of the sprint. Tasks
	// end by the clocks of their machines.
	clock   events.Clock[time.Duration, func()]
	decider decider
	live    []*job // that have come and not ended
	dirty   bool   // the plan must be made again

	pot, potMost, refill float64 // what is left and the most, J, and W
	sprint               *sprint
	spent, energy        float64 // J
	sprints, holds       int

	ended, reports []*job        // that have ended since the last look, and those that the decider receives
	soon           bool          // a job has come or ended, or a sprint is over, so that a look ought to follow
	wake           time.Duration // when the decider must look before its turn; 0 for never
	book           *runs.Book    // what runs teach about how jobs scale; nil where nothing is learned
}

// Ranks of what is due at one time.
const rankBudget, rankLater, rankArrival, rankSprint = 0, 1, 2, 3

type sprint struct {
	job           *job
	nodes         []*node
	end           events.ID
	over          bool    // its end has come
	escrow, drawn float64 // J
}

// decider decides. pick returns the job whose task begins next, nil for none; look is the job loop's turn.
type decider interface {
	pick(r *run) *job
	look(r *run)
}

func newRun(l *Load, seed uint64, d decider) *run {
	part := float64(l.Containers) / perServer
	r := &run{
		load: l, nodes: newNodes(l.Containers), budget: l.Budget[0].Budget, dirty: true, jobs: l.draw(seed), decider: d,
		potMost: joulesServer.Joules() * part, refill: refillServer.Watts() * part,
	}
	r.pot = r.potMost
	r.divide()
	for _, s := range l.Budget {
		r.clock.Schedule(s.At, rankBudget, func() {
			r.budget, r.dirty = s.Budget, true
			r.divide()
		})
	}
	if l.Fails > 0 {
		x := drawn(seed, streamFailures)
		for _, n := range r.nodes {
			arrivals(x, l.Fails, l.For, func(at time.Duration) { r.clock.Schedule(at, rankLater, func() { r.fail(n) }) })
		}
	}
	for _, j := range r.jobs {
		r.clock.Schedule(j.Arrival, rankArrival, func() {
			j.advised(r.book)
			r.live = append(r.live, j)
			r.came++
			r.soon = true
		})
	}
	return r
}

func (r *run) now() time.Duration { return r.clock.Now() }

// fail takes a machine away for a while: its tasks begin again elsewhere.
func (r *run) fail(n *node) {
	if n.down {
		return
	}
	n.down = true
	for _, a := range n.running.All() {
		a.job.again = append(a.job.again, a.task)
		a.job.forget(a)
	}
	n.running = events.Queue[float64, *attempt]{}
	n.settle()
	r.dirty = true
	r.clock.Schedule(r.now()+downFor, rankLater, func() {
		n.down = false
		n.settle()
		r.dirty = true
	})
}

// run runs the jobs to their end, and reports whether that was before drainMost.
func (r *run) run() bool {
	nextLook, nextPlan, looked := lookEvery, planEvery, time.Duration(0)
	for most := r.load.For + drainMost; r.now() < r.load.For || r.came < len(r.jobs) || len(r.live) > 0; {
		if r.now() >= most {
			return false
		}
		r.pass(min(nextLook, nextPlan, r.next()))
		r.soon = false
		r.complete()
		for due, ok := r.clock.Before(r.now()); ok; due, ok = r.clock.Before(r.now()) {
			due()
		}
		now := r.now()
		if r.soon {
			nextLook = min(nextLook, max(now, looked+lookSoonest))
		}
		if r.wake > now {
			nextLook = min(nextLook, max(r.wake, looked+lookSoonest))
		}
		if nextLook <= now {
			nextLook, looked, r.wake = now+lookEvery, now, 0
			r.reports, r.ended = r.ended, nil
			r.decider.look(r)
		}
		if nextPlan <= now {
			nextPlan += planEvery
			r.divide()
		}
		r.hand()
		r.pace()
	}
	r.settle()
	return true
}

func (r *run) next() time.Duration {
	at := events.Never[time.Duration]()
	if due, ok := r.clock.Until(); ok {
		at = due
	}
	for _, n := range r.nodes {
		if until, ok := n.running.Next(); ok && n.speed > 0 {
			at = min(at, r.now()+seconds((until-n.done)/n.speed))
		}
	}
	return at
}

func (r *run) pass(to time.Duration) {
	dt := max(0, to-r.now()).Seconds()
	r.clock.Advance(to)
	room, draws := r.potMost, units.Power(0)
	if s := r.sprint; s != nil {
		for _, n := range s.nodes {
			s.drawn += max(0, (n.draws-n.base).Watts()) * dt
		}
		room -= s.escrow
	}
	for _, n := range r.nodes {
		draws += n.draws
		n.done += n.speed * dt
	}
	r.energy += draws.Watts() * dt
	r.pot = min(room, r.pot+r.refill*dt)
	for _, j := range r.live {
		j.measure(dt)
	}
}

// complete takes the tasks that have ended off their machines.
func (r *run) complete() {
	for _, n := range r.nodes {
		ended := false
		for until, ok := n.running.Next(); ok && until <= n.done+hair; until, ok = n.running.Next() {
			_, a, _ := n.running.Pop()
			a.job.forget(a)
			a.job.done++
			ended = true
			r.over(a.job)
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
	j.end, r.soon = r.now(), true
	j.teach(r.book)
	r.ended = append(r.ended, j)
	r.live = slices.DeleteFunc(r.live, func(x *job) bool { return x == j })
	if r.sprint != nil && r.sprint.job == j {
		r.settle()
	}
}

// divide divides the watts again where that must be.
func (r *run) divide() {
	if r.dirty {
		r.dirty = false
		plan(r.nodes, r.budget)
		r.apply()
	}
}

func (r *run) apply() {
	for _, n := range r.nodes {
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

func (r *run) nodesOf(j *job) (out []*node) {
	for _, n := range r.nodes {
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
	s := &sprint{job: j, nodes: nodes, escrow: escrow}
	s.end = r.clock.Schedule(r.now()+d, rankSprint, func() {
		s.over, r.soon = true, true
		r.settle()
	})
	r.sprint = s
	r.sprints++
	r.apply()
}

// settle ends the sprint: what was not drawn goes back.
func (r *run) settle() {
	s := r.sprint
	if s == nil {
		return
	}
	if r.sprint = nil; !s.over {
		r.clock.Cancel(s.end)
	}
	r.spent += min(s.drawn, s.escrow)
	r.pot = min(r.potMost, r.pot+max(0, s.escrow-s.drawn))
	r.apply()
}

// drop takes up to n tasks that have not begun away from a job, within its floor.
func (r *run) drop(j *job, n int) {
	floor := units.Ratio(j.Floor).Least(len(j.times))
	j.dropped += max(0, min(n, j.pending()-len(j.again), len(j.times)-j.dropped-floor))
	r.over(j)
}

// hand starts tasks in free containers.
func (r *run) hand() {
	for {
		n := slices.MaxFunc(r.nodes, func(a, b *node) int { return a.free() - b.free() })
		if n.free() == 0 {
			return
		}
		j := r.decider.pick(r)
		if j == nil {
			return
		}
		if !j.began {
			j.began, j.first, r.wake = true, r.now(), r.now()+lookSoonest
		}
		task := j.take()
		a := &attempt{job: j, task: task, until: n.done + j.times[task], from: n.done, node: n, slow: 1}
		a.id = n.running.Push(a.until, 0, a)
		j.running = append(j.running, a)
		n.settle()
		r.dirty = true
	}
}

// The machines of the study: each container is a twenty-eighth of the server of CAB's study.
const (
	perServer   = 28
	idleServer  = 100 * units.Watt
	ratedServer = 350 * units.Watt
	riseServer  = 100 * units.Watt // of a sprint, above the cap
	exponent    = 1.15             // of dynamic power over speed
	nodesMost   = 4
	slowest     = 0.05 // the speed below which no cap brings a machine, as a part of full speed
)

// scaled returns a server's power scaled to so many containers.
func scaled(p units.Power, containers int) units.Power {
	return p * units.Power(containers) / perServer
}

// node is one machine: its containers run tasks at one speed, which follows from its cap and from how many of them are busy.
type node struct {
	name        string
	containers  int
	idle, rated units.Power
	base, cap   units.Power // its share of the budget, and what it may draw now: more in a sprint
	most        units.Power // bounds its share; 0 for no bound
	down        bool

	// running are its tasks in the order of their ends, in time that passes as fast as they run.
	running events.Queue[float64, *attempt]
	// speed is how fast its tasks run, as a part of full speed; draws is what it draws. done is the time of running: the
	// work that a task that began at time 0 would have done, in seconds at full speed.
	speed float64
	draws units.Power
	done  float64
}

func (n *node) floor() units.Power { return n.idle + n.idle/8 }

func (n *node) sprinting() units.Power { return min(n.rated, n.base+scaled(riseServer, n.containers)) }

type attempt struct {
	job         *job
	task        int
	from, until float64 // the node's done when it began, and when it ends
	node        *node
	id          events.ID // in node.running
	slow        float64   // how many times as long it takes for the other tasks of its job as it would alone
}

// settle brings speed and draw up to the cap and to what runs.
func (n *node) settle() {
	if n.down {
		n.speed, n.draws = 0, 0
		return
	}
	n.speed, n.draws = speedAt(n.cap, n.idle, n.rated, n.containers, n.running.Len())
}

// speedAt returns how fast tasks run on a machine under a cap with so many of its containers busy, as a part
// of full speed, and what the machine draws then.
func speedAt(limit, idle, rated units.Power, containers, busy int) (speed float64, draws units.Power) {
	if busy == 0 {
		return 0, idle
	}
	dynamic := float64(rated-idle) * float64(busy) / float64(containers)
	room := max(0, float64(limit-idle))
	speed = math.Pow(room/dynamic, 1/exponent)
	switch {
	case speed >= 1:
		return 1, idle + units.Power(dynamic)
	case speed < slowest:
		return slowest, idle + units.Power(dynamic*math.Pow(slowest, exponent))
	}
	return speed, idle + units.Power(room)
}

func (n *node) free() int {
	if n.down {
		return 0
	}
	return n.containers - n.running.Len()
}

func newNodes(containers int) (nodes []*node) {
	count := min(nodesMost, containers)
	for i := range count {
		n := containers / count
		if i < containers%count {
			n++
		}
		nodes = append(nodes, &node{name: fmt.Sprintf("n%02d", i+1), containers: n, idle: scaled(idleServer, n), rated: scaled(ratedServer, n)})
	}
	return nodes
}

// plan divides a budget among machines as the coordinators do, by what each can use.
func plan(all []*node, watts units.Power) {
	var nodes []budget.Node
	for _, n := range all {
		demand := n.idle + units.Power(float64(n.rated-n.idle)*float64(n.running.Len())/float64(n.containers))
		most := n.rated
		if n.most > 0 {
			most = min(most, n.most)
		}
		if n.down {
			demand, most = n.idle, n.idle
		}
		nodes = append(nodes, budget.Node{Name: n.name, Domain: "site", Least: n.floor(), Most: most, Demand: demand, Weight: float64(n.containers)})
	}
	tree, err := budget.NewTree([]budget.Domain{{Name: "site", Budget: max(watts, 1)}})
	if err != nil {
		panic(err) // one domain with a budget above 0 W is a tree
	}
	caps := budget.Divide(tree, nodes, budget.Weighted).Caps
	for _, n := range all {
		n.base = caps[n.name]
	}
}

// speeds returns how much work all containers do in a second if all are busy, under the caps and in a sprint.
func speeds(nodes []*node) (slow, fast float64) {
	for _, n := range nodes {
		base, _ := speedAt(n.base, n.idle, n.rated, n.containers, n.containers)
		sprint, _ := speedAt(n.sprinting(), n.idle, n.rated, n.containers, n.containers)
		slow, fast = slow+base*float64(n.containers), fast+sprint*float64(n.containers)
	}
	return slow, fast
}

// seconds returns seconds as a time, rounded up.
func seconds(s float64) time.Duration { return time.Duration(math.Ceil(s * float64(time.Second))) }
