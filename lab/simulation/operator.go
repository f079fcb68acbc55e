package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// order is a request of an operator, repeated under the same id until it is answered.
type order struct {
	id     string
	what   string
	actor  string                                   // who makes the request; "operator" where it is empty
	set    func(*ledger.Command)                    // completes the command
	make   func(leader.View, *ledger.Command) error // does so on the state of the leader that carries it out; a read has neither
	after  func(error)                              // when set, learns of the answer
	check  *uint64                                  // when set, is the revision that the operator has planned on
	force  bool
	leaver *node // set when it is this node's request to be released
	group  int   // beginning of the servers in which it was made
	done   bool
	tries  int

	input any // for the history: what was requested, and the number of the operation
	op    int
}

// errNothingToDo answers an order that no longer makes sense.
var errNothingToDo = errors.New("nothing to do")

// ask gives the order a number and hands it to a server.
func (w *world) ask(o *order) {
	o.id, o.group = w.orderID(o.what), w.group
	w.named[o.id] = o
	if o.actor == "" {
		o.actor = "operator"
	}
	w.history.calls(o)
	w.tracef("operator asks for %s", o.id)
	w.askAgain(o)
}

// askAgain hands the order to a server that takes itself for the leader, until the servers are begun again.
func (w *world) askAgain(o *order) {
	if o.done || o.tries >= 5 || o.group != w.group {
		return
	}
	if o.tries++; o.tries > 1 {
		w.hit("order_repeated")
	}
	r := w.random(o.id, o.tries)
	leads := slices.DeleteFunc(slices.Clone(w.servers), func(s *server) bool { return !s.up || s.lead == nil })
	if delay := r.upTo(5 * time.Millisecond); len(leads) > 0 {
		s := pick(r, leads)
		w.add(delay, func() { w.enter(&s.process, func() { s.ordered(o) }) })
	}
	w.add(3*time.Second, func() { w.askAgain(o) })
}

// answered is the answer reaching the operator.
func (w *world) answered(o *order, output any, err error) {
	if o.done {
		return
	}
	o.done = true
	w.history.returns(o, output, err)
	if err != nil {
		w.tracef("%s is refused: %v", o.id, err)
	}
	if o.after != nil {
		o.after(err)
	}
}

// seen is the power tree as operators see it.
func (w *world) seen() *ledger.State { return w.judge.state }

func pick[T any](r random, list []T) T { return list[r.IntN(len(list))] }

// someBudget is a budget for a domain, between too little and ample.
func (w *world) someBudget(r random, d ledger.Domain) units.Power {
	sum := w.seen().Totals()[d.Name]
	most := sum.Unmanaged + sum.Boot + 20*units.Watt
	above := w.seen().Tree()
	for _, n := range w.seen().Nodes {
		if slices.Contains(above.Above(n.Domain), d.Name) {
			most += n.Most()
		}
	}
	least := sum.Floor * 4 / 5
	to := least + units.Power(r.Float64()*float64(max(0, most-least)))
	if r.chance(0.5) && w.ample {
		to = 2 * most
	}
	return min(max(units.Watt, to), d.Usable())
}

func (w *world) orderBudget(r random, d ledger.Domain) {
	o := &order{what: "budget", force: r.chance(0.3)}
	if r.chance(0.2) {
		revision := w.seen().PowerRevision
		o.check = &revision
	}
	w.askBudget(o, d, w.someBudget(r, d), 0)
}

// askBudget requests a budget; until is a wall clock in microseconds, 0 for good.
func (w *world) askBudget(o *order, d ledger.Domain, to units.Power, until int64) {
	o.input = budgetInput{domain: d.Name, to: to}
	o.make = func(v leader.View, c *ledger.Command) error {
		return (&leader.Budget{Domain: d.Name, To: to, Force: o.force, Until: until}).Build(v, c)
	}
	w.ask(o)
}

// orderTimed requests a budget that comes back by the clock, or a schedule.
func (w *world) orderTimed(r random, d ledger.Domain) {
	to, name := w.someBudget(r, d), fmt.Sprintf("s%d", r.IntN(2))
	switch r.IntN(5) {
	case 0:
		x := &ledger.SetSchedule{Name: name, Domain: d.Name, Cron: "* * * * *", Budget: to, Force: true}
		w.ask(&order{what: "schedule", set: func(c *ledger.Command) { c.Schedule = x }})
	case 1:
		w.ask(&order{what: "no-schedule", make: func(v leader.View, c *ledger.Command) error {
			c.RemoveSchedule = &ledger.Named{Name: name}
			if _, known := v.State.Schedules[name]; !known {
				return errNothingToDo
			}
			return nil
		}})
	default:
		until := w.wall.Add(w.now + r.between(3*time.Second, 20*time.Second))
		w.askBudget(&order{what: "until", force: r.chance(0.5)}, d, to, until.UnixMicro())
	}
}

// orderDomain changes the settings of a domain, or adds or removes one.
func (w *world) orderDomain(r random, d ledger.Domain) {
	set, extra := &ledger.SetDomain{Name: d.Name}, fmt.Sprintf("rack/x%d", r.IntN(2))
	switch r.IntN(6) {
	case 0:
		set.Unmanaged = new(r.watts(0, 80))
	case 1:
		set.Rating, set.Margin = new(d.Budget*2+r.watts(0, 500)), new(0.2*r.Float64())
	case 2:
		set.BootNodes = new(r.IntN(3))
	case 3:
		if w.on["lost-charge"] {
			set.LostCharge = new(pick(r, []ledger.LostCharge{ledger.LostInherit, ledger.LostKeep, ledger.LostFailSafe}))
		}
	case 4:
		*set = ledger.SetDomain{Name: extra, Parent: d.Name, Budget: w.someBudget(r, d)}
		if _, known := w.seen().Domains[set.Name]; known {
			set.Parent, set.Budget = "", 0
		}
	default:
		w.ask(&order{what: "no-domain", set: func(c *ledger.Command) { c.RemoveDomain = &ledger.Named{Name: extra} }})
		return
	}
	w.ask(&order{what: "domain", set: func(c *ledger.Command) { c.Domain = set }})
}

// orderSettings changes the operators' settings of a node, or takes them back.
func (w *world) orderSettings(r random, n ledger.Node) {
	x := n.Settings
	switch r.IntN(6) {
	case 0:
		x = ledger.Settings{}
	case 1, 2:
		x.FailSafe = new(n.Floor + r.watts(0, 40))
	case 3:
		x.Min = new(n.Floor + r.watts(0, 60))
	case 4:
		x.Max = new(n.Floor + r.watts(30, 150))
	default:
		x.Weight = new(0.5 + 2*r.Float64())
	}
	w.askSettings(n.Name, x)
}

func (w *world) askSettings(node string, x ledger.Settings) {
	w.ask(&order{what: "settings", set: func(c *ledger.Command) { c.Node = &ledger.SetNode{Node: node, Settings: x} }})
}

func (w *world) orderMove(r random, n ledger.Node) {
	to := pick(r, sortedKeys(w.seen().Domains))
	w.ask(&order{what: "move", set: func(c *ledger.Command) { c.Move = &ledger.MoveNode{Node: n.Name, To: to} }})
}

func (w *world) orderDrain(r random, n ledger.Node) {
	resume := n.Drained || r.chance(0.2)
	w.ask(&order{what: "drain", set: func(c *ledger.Command) { c.Drain = &ledger.DrainNode{Node: n.Name, Resume: resume} }})
}

// orderRemove takes a node out of the cluster without a word on whether it is off: one that does not run, or it is refused.
func (w *world) orderRemove(_ random, n ledger.Node) {
	for _, x := range w.nodes {
		if known, there := w.seen().Nodes[x.spec.Node]; there && !x.up {
			n = known
			break
		}
	}
	w.ask(&order{what: "remove", make: leader.Remove(n.Name, false)})
}

func (w *world) orderPolicy(r random) {
	p := pick(r, budget.Policies())
	w.ask(&order{what: "policy", set: func(c *ledger.Command) { c.Policy = &ledger.Named{Name: string(p)} }})
}

// orderRead reads what is in force.
func (w *world) orderRead(random) { w.ask(&order{what: "read", input: readInput{}}) }

// orderSprint requests a sprint budget, a sprint, or the end of one.
func (w *world) orderSprint(r random, d ledger.Domain) {
	switch kind := r.IntN(10); {
	case d.Sprint == nil || kind == 0:
		w.askSprintBudget(r, d)
	case kind < 3:
		w.cancelSprint(r)
	default:
		w.askSprint(r, d)
	}
}

func (w *world) askSprintBudget(r random, d ledger.Domain) {
	x := &ledger.SetSprintBudget{Domain: d.Name, Capacity: units.Energy(1+r.IntN(8)) * units.Kilojoule, Refill: r.watts(100, 2000)}
	if w.on["debt"] || w.on["sprinter-off"] { // which show in small budgets
		x.Capacity, x.Refill = x.Capacity/10, x.Refill/20
	}
	if r.chance(0.3) {
		x.Shares = map[string]float64{"high": 0.6, "low": 0.3}
	}
	w.askPot(x)
}

func (w *world) askPot(x *ledger.SetSprintBudget) {
	w.ask(&order{what: "sprint-budget", set: func(c *ledger.Command) { c.SprintBudget = x }})
}

func (w *world) cancelSprint(r random) {
	open := slices.DeleteFunc(w.seen().SprintsByTime(), func(p ledger.Sprint) bool { return !p.Open() })
	if len(open) == 0 {
		return
	}
	x := &ledger.EndSprint{ID: pick(r, open).ID, Why: "cancelled"}
	w.ask(&order{what: "end-sprint", input: sprintInput{id: x.ID}, set: func(c *ledger.Command) { c.EndSprint = x }})
}

// askSprint requests a sprint of some nodes, most often one that fits.
func (w *world) askSprint(r random, d ledger.Domain) {
	x := &ledger.GrantSprint{Domain: d.Name, Duration: r.between(time.Second, 10*time.Second)}
	if len(d.Sprint.Shares) > 0 {
		x.Class = pick(r, sortedKeys(d.Sprint.Shares))
	}
	more, least, bold := r.watts(10, 80), r.IntN(3), r.chance(0.1)
	var nodes []ledger.Node
	for i, n := range w.seen().NodesByName() {
		if n.Grantable() && n.Owes == "" && i%3 >= least && slices.Contains(w.seen().Tree().Above(n.Domain), d.Name) && n.Target < n.Rated {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		if !bold {
			more = min(more, w.judge.headroom(n.Domain)/units.Power(len(nodes)))
		}
	}
	for _, n := range nodes {
		x.Caps = append(x.Caps, ledger.Target{Node: n.Name, Cap: min(n.Rated, n.Target+more)})
	}
	if more >= 2*units.Watt && len(nodes) > 0 {
		w.askGrant(x)
	}
}

// askGrant requests a sprint, which is named after the order.
func (w *world) askGrant(x *ledger.GrantSprint) {
	o := &order{what: "sprint", input: sprintInput{grant: true}}
	o.set = func(c *ledger.Command) {
		x.ID = o.id
		c.Sprint = x
	}
	w.ask(o)
}

// orderJob is what a scheduler and the job loop request: a job with a floor, its uncapped finish time, an early stop, tasks dropped or the
// end. All is requested again while no answer comes, and an old request may be repeated much later.
func (w *world) orderJob(r random) {
	running := w.runningJobs()
	if len(running) == 0 || len(running) < 3 && r.chance(0.2) {
		w.orderNewJob(r)
		return
	}
	id := pick(r, running)
	tasks := jobTasks(id)
	switch kind := r.IntN(10); {
	case kind == 0:
		x := &ledger.FinishJob{ID: id, State: ledger.JobDone, Tasks: tasks, Done: tasks, Runtime: time.Minute}
		w.askJob("finish-job", func(c *ledger.Command) { c.Finish = x })
	case kind == 1:
		x := &ledger.SetUncapped{ID: id, Uncapped: r.between(time.Second, time.Minute)}
		w.askJob("uncapped", func(c *ledger.Command) { c.SetUncapped = x })
	case kind < 5:
		least := ledger.LeastTasks(w.seen().Jobs[id].Floor, tasks)
		if r.chance(0.4) { // above the floor, or below it
			least = uint32(r.IntN(int(tasks) + 1))
		}
		w.askJob("stop-job", func(c *ledger.Command) { c.StopJob = &ledger.StopJob{ID: id, Tasks: tasks, MinTasks: least} })
	default:
		w.orderDrops(r, id)
	}
}

func (w *world) runningJobs() (running []string) {
	for _, id := range sortedKeys(w.seen().Jobs) {
		if w.seen().Jobs[id].State == ledger.JobAccepted {
			running = append(running, id)
		}
	}
	return running
}

// orderDeflation requests a drop ratio, at times beyond the floor, lower than before or by another seed.
func (w *world) orderDeflation(r random) {
	running := w.runningJobs()
	if len(running) == 0 {
		w.orderNewJob(r)
		return
	}
	id := pick(r, running)
	theta := ledger.MostTheta(w.seen().Jobs[id].Floor) * r.Float64()
	if r.chance(0.3) {
		theta = r.Float64()
	}
	x := &ledger.DeflateJob{ID: id, Theta: theta, Seed: uint64(r.IntN(10) / 9)}
	w.askJob("deflate", func(c *ledger.Command) { c.DeflateJob = x })
}

func (w *world) orderNewJob(r random) {
	n := len(w.seen().Jobs)
	x := ledger.Job{ID: fmt.Sprintf("job-%d", n), Class: "low", State: ledger.JobAccepted, Submitted: int64(n)}
	x.Floor = pick(r, []float64{0.3, 0.5, 0.75, 0.9, 1})
	if namesDrops(x.ID) {
		x.Engine = "yarn"
	}
	w.askJob("job", func(c *ledger.Command) { c.Job = &x })
}

// jobTasks is how many map tasks a job has, by its id: 7 to 24.
func jobTasks(id string) uint32 {
	sum := uint32(0)
	for _, b := range []byte(id) {
		sum = sum*31 + uint32(b)
	}
	return 7 + sum%18
}

// namesDrops reports whether a job is of an engine whose drops are recorded one by one under
// a drop ratio too; of others the ratio leaves tasks out beside those that are recorded.
func namesDrops(id string) bool { return jobTasks(id)%2 == 0 }

// orderDrops requests that some tasks be dropped, at times those requested before, out of order.
func (w *world) orderDrops(r random, id string) {
	tasks := int(jobTasks(id))
	first := r.IntN(tasks)
	x := &ledger.DropTasks{ID: id, Of: uint32(tasks), Ranges: []ledger.TaskRange{{First: uint32(first), Last: uint32(min(tasks-1, first+r.IntN(4)))}}}
	if again := r.chance(0.3); again && len(w.drops) > 0 {
		x = pick(r, w.drops)
	}
	w.drops = append(w.drops, x)
	o := w.askJob("drop", func(c *ledger.Command) { c.DropTasks = x })
	o.after = func(err error) {
		if err == nil && o.group == w.group {
			w.judge.dropsTold(x)
		}
	}
}

func (w *world) askJob(what string, set func(*ledger.Command)) *order {
	o := &order{what: what, actor: "scheduler", set: set}
	w.ask(o)
	return o
}
