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

// order is a request of an operator, repeated under the same
// id until it is answered.
type order struct {
	id   string
	what string
	// make completes the command on the state of the leader that carries it out; nil for a read.
	make func(leader.View, *ledger.Command) error
	// actor is who makes the request; "operator" where it is empty.
	actor string
	// after, when set, learns of the answer.
	after func(error)
	// check, when set, is the revision that the operator has planned on.
	check  *uint64
	force  bool
	leaver *node // set when it is this node's request to be released

	group int // beginning of the servers in which it was made
	done  bool
	tries int

	// For the history: what was requested and what was seen.
	input any
	op    int
}

// errNothingToDo answers an order that no longer makes sense.
var errNothingToDo = errors.New("nothing to do")

const (
	orderPause = 3 * time.Second
	orderTries = 5
)

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

// askAgain hands the order to a server that takes itself for the leader. An
// order that was sent to servers that were begun again since is given up.
func (w *world) askAgain(o *order) {
	if o.done || o.tries >= orderTries || o.group != w.group {
		return
	}
	if o.tries++; o.tries > 1 {
		w.hit("order_repeated")
	}
	r := w.random(o.id, o.tries)
	leads := slices.DeleteFunc(slices.Clone(w.servers), func(s *server) bool { return !s.up || s.lead == nil })
	if delay := r.upTo(5 * time.Millisecond); len(leads) > 0 {
		s := leads[r.IntN(len(leads))]
		w.add(delay, func() { w.enter(&s.process, func() { s.ordered(o) }) })
	}
	w.add(orderPause, func() { w.askAgain(o) })
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

// someDomain is a domain of the tree, in order of names.
func (w *world) someDomain(r random) (ledger.Domain, bool) {
	list := w.seen().Domains
	if len(list) == 0 {
		return ledger.Domain{}, false
	}
	return list[pick(r, sortedKeys(list))], true
}

func (w *world) someKnownNode(r random) (ledger.Node, bool) {
	list := w.seen().Nodes
	if len(list) == 0 {
		return ledger.Node{}, false
	}
	return list[pick(r, sortedKeys(list))], true
}

func pick(r random, names []string) string { return names[r.IntN(len(names))] }

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

func (w *world) orderBudget(r random) {
	d, ok := w.someDomain(r)
	if !ok {
		return
	}
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
		b := leader.Budget{Domain: d.Name, To: to, Force: o.force, Until: until}
		return b.Build(v, c)
	}
	w.ask(o)
}

// orderTimed requests a budget that comes back by the clock, or a schedule.
func (w *world) orderTimed(r random) {
	d, ok := w.someDomain(r)
	if !ok {
		return
	}
	to, name := w.someBudget(r, d), fmt.Sprintf("s%d", r.IntN(2))
	switch r.IntN(5) {
	case 0:
		w.ask(&order{what: "schedule", make: func(_ leader.View, c *ledger.Command) error {
			c.Schedule = &ledger.SetSchedule{Name: name, Domain: d.Name, Cron: "* * * * *", Budget: to, Force: true}
			return nil
		}})
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
func (w *world) orderDomain(r random) {
	d, ok := w.someDomain(r)
	if !ok {
		return
	}
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
			set.LostCharge = new([]ledger.LostCharge{ledger.LostInherit, ledger.LostKeep, ledger.LostFailSafe}[r.IntN(3)])
		}
	case 4:
		*set = ledger.SetDomain{Name: extra, Parent: d.Name, Budget: w.someBudget(r, d)}
		if _, known := w.seen().Domains[set.Name]; known {
			set.Parent, set.Budget = "", 0
		}
	default:
		w.ask(&order{what: "no-domain", make: func(_ leader.View, c *ledger.Command) error {
			c.RemoveDomain = &ledger.Named{Name: extra}
			return nil
		}})
		return
	}
	w.ask(&order{what: "domain", make: func(_ leader.View, c *ledger.Command) error {
		c.Domain = set
		return nil
	}})
}

// orderSettings changes the operators' settings of a node, or takes them back.
func (w *world) orderSettings(r random) {
	n, ok := w.someKnownNode(r)
	if !ok {
		return
	}
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
	w.ask(&order{what: "settings", make: func(_ leader.View, c *ledger.Command) error {
		c.Node = &ledger.SetNode{Node: node, Settings: x}
		return nil
	}})
}

func (w *world) orderMove(r random) {
	n, ok := w.someKnownNode(r)
	d, _ := w.someDomain(r)
	if ok {
		w.ask(&order{what: "move", make: func(_ leader.View, c *ledger.Command) error {
			c.Move = &ledger.MoveNode{Node: n.Name, To: d.Name}
			return nil
		}})
	}
}

func (w *world) orderDrain(r random) {
	if n, ok := w.someKnownNode(r); ok {
		resume := n.Drained || r.chance(0.2)
		w.ask(&order{what: "drain", make: func(_ leader.View, c *ledger.Command) error {
			c.Drain = &ledger.DrainNode{Node: n.Name, Resume: resume}
			return nil
		}})
	}
}

// orderRemove takes a node out of the cluster without a word on whether it is off:
// one that does not run, if there is one, since others are refused.
func (w *world) orderRemove(r random) {
	n, ok := w.someKnownNode(r)
	for _, x := range w.nodes {
		if known, there := w.seen().Nodes[x.spec.Node]; there && !x.up {
			n = known
			break
		}
	}
	if ok {
		w.ask(&order{what: "remove", make: leader.Remove(n.Name, false)})
	}
}

func (w *world) orderPolicy(r random) {
	p := budget.Policies()[r.IntN(len(budget.Policies()))]
	w.ask(&order{what: "policy", make: func(_ leader.View, c *ledger.Command) error {
		c.Policy = &ledger.Named{Name: string(p)}
		return nil
	}})
}

// orderRead reads what is in force.
func (w *world) orderRead(random) { w.ask(&order{what: "read", input: readInput{}}) }

// orderSprint requests a sprint budget, a sprint, or the end of one.
func (w *world) orderSprint(r random) {
	d, ok := w.someDomain(r)
	if !ok {
		return
	}
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

// askPot requests a sprint budget.
func (w *world) askPot(x *ledger.SetSprintBudget) {
	w.ask(&order{what: "sprint-budget", make: func(_ leader.View, c *ledger.Command) error {
		c.SprintBudget = x
		return nil
	}})
}

func (w *world) cancelSprint(r random) {
	var open []string
	for _, p := range w.seen().SprintsByTime() {
		if p.Open() {
			open = append(open, p.ID)
		}
	}
	if len(open) == 0 {
		return
	}
	id := pick(r, open)
	w.ask(&order{what: "end-sprint", input: sprintInput{id: id}, make: func(_ leader.View, c *ledger.Command) error {
		c.EndSprint = &ledger.EndSprint{ID: id, Why: "cancelled"}
		return nil
	}})
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
	if more < 2*units.Watt || len(nodes) == 0 {
		return
	}
	for _, n := range nodes {
		x.Caps = append(x.Caps, ledger.Target{Node: n.Name, Cap: min(n.Rated, n.Target+more)})
	}
	w.askGrant(x)
}

// askGrant requests a sprint, which is named after the order.
func (w *world) askGrant(x *ledger.GrantSprint) {
	o := &order{what: "sprint", input: sprintInput{grant: true}}
	o.make = func(_ leader.View, c *ledger.Command) error {
		x.ID = o.id
		c.Sprint = x
		return nil
	}
	w.ask(o)
}
