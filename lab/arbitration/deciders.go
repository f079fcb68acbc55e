package arbitration

import (
	"cmp"
	"math"
	"slices"
	"time"

	"headroom/jobs/arbiter"
	"headroom/progress"
	"headroom/units"
)

type order int

const (
	byShare      order = iota // CAB: to the job furthest below its share, or its equal part
	byShareBelow              // the urgent first, and CAB for the others with what that leaves
	byClass                   // the urgent first, equal parts inside a class
	byTurn                    // the urgent first, and in a class who came first
	oneByOne                  // one job at a time: the first of the highest class, to its end
)

type baseline struct {
	order   order
	timer   time.Duration // an urgent job's machines sprint so long after its arrival
	spend   bool          // tolerant jobs sprint too
	theta   float64       // the part of their tasks that tolerant jobs give up, as far as their floors leave
	arbiter arbiter.Arbiter
	one     *job
}

func compareClass(a, b *job) int { return cmp.Compare(a.Class.rank(), b.Class.rank()) }

func (b *baseline) pick(r *run) *job {
	switch b.order {
	case byShare:
		return deficit(r.live, r.load.Containers)
	case byShareBelow:
		j := first(r.live, compareClass)
		if j == nil || j.Class != Urgent {
			j = deficit(r.live, r.load.Containers)
		}
		return j
	case byClass:
		return first(r.live, func(x, y *job) int { return cmp.Or(compareClass(x, y), cmp.Compare(len(x.running), len(y.running))) })
	case byTurn:
		return first(r.live, compareClass)
	case oneByOne:
		if b.one == nil || b.one.end > 0 {
			b.one = first(r.live, compareClass)
		}
		if b.one != nil && b.one.pending() > 0 {
			return b.one
		}
	}
	return nil
}

// first returns the first by an order of the jobs with tasks to begin.
func first(jobs []*job, order func(x, y *job) int) *job {
	var out *job
	for _, j := range jobs {
		if j.open() && (out == nil || order(j, out) < 0) {
			out = j
		}
	}
	return out
}

// deficit returns the job furthest below its share, or its equal part. Containers that all shares leave idle go to who is least above.
func deficit(jobs []*job, containers int) *job {
	below := func(j *job) int {
		want := j.share
		if want == 0 {
			want = containers / len(jobs)
		}
		return want - len(j.running)
	}
	return first(jobs, func(x, y *job) int { return cmp.Compare(below(y), below(x)) })
}

func (b *baseline) look(r *run) {
	if b.theta > 0 {
		for _, j := range r.live {
			if j.Class == Tolerant && j.theta == 0 {
				j.theta = b.theta
				r.drop(j, len(j.times)-units.Ratio(1-b.theta).Kept(len(j.times)))
			}
		}
	}
	if b.order <= byShareBelow {
		b.divide(r)
	}
	if r.sprint == nil {
		b.sprint(r)
	}
}

// sprint lets the first job sprint whose timer is due: of the urgent ones first, and to its end as far as joules go.
func (b *baseline) sprint(r *run) {
	jobs := slices.Clone(r.live)
	slices.SortStableFunc(jobs, compareClass)
	for _, j := range jobs {
		due := j.Arrival + b.timer
		if len(j.running) == 0 || !b.spend && j.Class != Urgent {
			continue
		}
		if due > r.now() {
			if r.wake == 0 || due < r.wake {
				r.wake = due
			}
			continue
		}
		if watts := rise(r.nodesOf(j)).Watts(); watts > 0 && r.pot >= sprintLeast*watts {
			r.begin(j, seconds(r.pot/watts))
			return
		}
	}
}

// divide is CAB's turn: stretch and early stops.
func (b *baseline) divide(r *run) {
	containers := r.load.Containers
	served := func(j *job) bool { return b.order == byShareBelow && j.Class == Urgent }
	for _, j := range r.live {
		if served(j) {
			containers = max(1, containers-len(j.running)-j.pending())
		}
	}
	d, by := r.step(&b.arbiter, containers, false, served)
	if d.Changed {
		told := map[string]int{}
		for _, s := range d.Shares {
			told[s.ID] = s.Containers
		}
		r.clock.Schedule(r.now()+lag, rankLater, func() {
			for _, j := range r.live {
				j.share = told[j.id]
			}
		})
	}
	for _, s := range d.Stops {
		j := by[s.ID]
		j.stopped = true
		r.drop(j, s.Tasks-s.MinTasks-j.dropped)
	}
}

// step lets the job loop decide about the jobs that have begun, but for those that are served first anyway.
func (r *run) step(a *arbiter.Arbiter, containers int, joint bool, first func(*job) bool) (arbiter.Decision, map[string]*job) {
	in, by := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: containers}, map[string]*job{}
	in.Settings.Joint = joint
	for _, j := range r.reports {
		in.Ended = append(in.Ended, arbiter.Ended{ID: j.id, Runtime: j.end - j.first})
	}
	for _, j := range r.live {
		if by[j.id] = j; j.began && !first(j) {
			in.Jobs = append(in.Jobs, r.reported(j, joint))
		}
	}
	d := a.Step(r.now(), in)
	for _, u := range d.Uncapped {
		by[u.ID].uncapped = u.At
	}
	return d, by
}

func (r *run) reported(j *job, ratio bool) arbiter.Job {
	mean := func(of func(n *node) units.Power) (sum units.Power) {
		for _, a := range j.running {
			sum += of(a.node) * perServer / units.Power(a.node.containers)
		}
		return sum / units.Power(max(1, len(j.running)))
	}
	return arbiter.Job{
		ID: j.id, Name: cmp.Or(j.Name, string(j.Class)), Curve: j.curve, Tasks: len(j.times), Done: j.done, Running: len(j.running), Pending: j.pending(), Dropped: j.dropped, Work: j.work(),
		Phase: progress.Map, Reduced: -1, Elapsed: max(1, r.now()-j.first), Floor: j.Floor, Uncapped: j.uncapped, Stopped: j.stopped, Held: len(j.running),
		Power: mean(func(n *node) units.Power { return n.cap }), Full: mean(func(n *node) units.Power { return n.rated }),
		Base: mean(func(n *node) units.Power { return n.base }), Fast: mean((*node).sprinting), ByRatio: ratio,
	}
}

// tweak is how a member of our family differs from the default.
type tweak struct {
	percent time.Duration // the price of quality; 0 the default
	exact   bool          // no task is given up
	keep    reserve
	noHolds bool                     // no machine gives watts to others
	oracle  bool                     // the times of tasks, and how much faster a sprint is, are known exactly
	shared  bool                     // jobs hold no more than their shares while another has room
	edit    func(look *arbiter.Look) // changes the arbiter's input; nil for no change
}

// joint is ours: the arbiter as the coordinators run it.
type joint struct {
	tweak

	arbiter       arbiter.Arbiter
	movers        arbiter.Movers
	order, shares map[string]int
}

func (o *joint) pick(r *run) *job {
	over := func(j *job) int { // 1 for a job that holds its share or more, where shares bind
		if o.shared && len(j.running) >= o.shares[j.id] {
			return 1
		}
		return 0
	}
	place := func(j *job) int {
		if at, known := o.order[j.id]; known {
			return at
		}
		return math.MaxInt // one that no look has seen is the last of its class
	}
	return first(r.live, func(x, y *job) int {
		return cmp.Or(cmp.Compare(over(x), over(y)), compareClass(x, y), cmp.Compare(place(x), place(y)))
	})
}

func (o *joint) look(r *run) {
	d, by := r.step(&o.arbiter, r.load.Containers, true, func(*job) bool { return false })
	outlooks := map[string]arbiter.Outlook{}
	for _, x := range d.Outlooks {
		outlooks[x.ID] = x
	}
	look := arbiter.Look{Joint: true, Pools: map[string]arbiter.Pool{"": {Containers: r.load.Containers}}}
	for _, j := range r.live {
		look.Jobs = append(look.Jobs, o.contender(r, j, outlooks[j.id]))
	}
	for _, n := range r.nodes {
		if !o.noHolds {
			sprints := r.sprint != nil && slices.Contains(r.sprint.nodes, n)
			look.Nodes = append(look.Nodes, arbiter.Node{Name: n.name, Target: n.base, Floor: n.floor(), Most: n.rated, Held: n.most, Sprints: sprints})
		}
	}
	if o.edit != nil {
		o.edit(&look)
	}
	o.carryOut(r, o.movers.Step(r.now(), look), by)
}

func (o *joint) contender(r *run, j *job, outlook arbiter.Outlook) arbiter.Contender {
	c := arbiter.Contender{
		ID: j.id, Class: string(j.Class), Rank: j.Class.rank(), Tasks: len(j.times), Dropped: j.dropped, Running: len(j.running), Pending: j.pending(),
		Floor: j.Floor, Age: r.now() - j.Arrival, Run: 1, Outlook: outlook, MaySprint: o.keep != save || j.Class == Urgent, MayDeflate: !o.exact, Theta: j.theta, Percent: o.percent,
		On: map[string]int{}, Offer: o.offer(r, j), Curve: j.curve,
	}
	if j.began {
		c.Elapsed = max(1, r.now()-j.first)
	}
	if j.Deadline > 0 {
		c.Deadline = j.Deadline - c.Age + c.Elapsed
	}
	for _, a := range j.running {
		c.On[a.node.name]++
	}
	if r.sprint != nil && r.sprint.job == j {
		c.Sprint = "s-" + j.id
	}
	if o.oracle {
		c.Outlook.Rest, c.Outlook.Speed = r.truth(j)
	}
	return c
}

func (o *joint) offer(r *run, j *job) arbiter.Offer {
	nodes := r.nodesOf(j)
	out := arbiter.Offer{Domain: "site", Balance: units.FromJoules(max(0, r.pot)), Capacity: units.FromJoules(r.potMost), Rise: rise(nodes), Nodes: len(nodes)}
	switch o.keep {
	case spend:
		out.Capacity /= 10
	case free:
		out.Capacity = 0
	case usual, save:
	}
	if s := r.sprint; s != nil && s.job != j {
		out.Busy, out.BusyRank, out.Yields = "s-"+s.job.id, s.job.Class.rank(), true
		for _, n := range s.nodes {
			out.BusyOn = append(out.BusyOn, n.name)
		}
	}
	return out
}

// truth is what is left of a job, and how many times as fast it is in a sprint, which only the simulation has.
func (r *run) truth(j *job) (progress.Rest, float64) {
	work := 0.0
	for _, a := range j.running {
		work += a.until - a.node.done
	}
	all := work
	for _, a := range j.running {
		all += a.node.done - a.from
	}
	tasks := slices.Clone(j.again)
	for t := j.next; t < len(j.times)-j.dropped; t++ {
		tasks = append(tasks, t)
	}
	for _, t := range tasks {
		work, all = work+j.times[t], all+j.times[t]
	}
	n := float64(len(j.running) + len(tasks))
	slow, fast := speeds(r.nodes)
	if all <= 0 {
		return progress.Rest{}, fast / slow
	}
	mean := all / n
	return progress.Rest{Work: work / mean, Task: seconds(mean * float64(r.load.Containers) / slow), Ended: 1 << 40, Known: true}, fast / slow
}

func (o *joint) carryOut(r *run, out arbiter.Moves, by map[string]*job) {
	if d := out.Divisions[""]; len(d.Shares) > 0 {
		order, shares := map[string]int{}, map[string]int{}
		for i, s := range d.Shares {
			order[s.ID], shares[s.ID] = i, s.Containers
		}
		r.clock.Schedule(r.now()+lag, rankLater, func() {
			o.order, o.shares = order, shares
			for _, j := range r.live {
				if n, told := shares[j.id]; told && j.curve != nil {
					j.limit = cmp.Or(n, -1)
				}
			}
		})
	}
	if len(out.Ends) > 0 {
		r.settle()
		r.wake = r.now() + lookSoonest
	}
	for _, g := range out.Grants {
		r.begin(by[g.ID], g.Duration)
	}
	for _, d := range out.Deflates {
		j := by[d.ID]
		j.theta = d.Theta
		r.drop(j, len(j.times)-j.dropped-units.Ratio(1-d.Theta).Kept(len(j.times)))
	}
	for _, n := range r.nodes {
		most := units.Power(0)
		if at := slices.IndexFunc(out.Holds, func(h arbiter.Hold) bool { return h.Node == n.name }); at >= 0 {
			most = out.Holds[at].Most
			if n.most == 0 {
				r.holds++
			}
		}
		r.dirty = r.dirty || most != n.most
		n.most = most
	}
}
