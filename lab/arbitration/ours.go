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
