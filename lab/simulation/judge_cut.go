package simulation

//headroom:judge

import (
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// cut judges that a budget that was cut lowers every node that can be reached, in
// the same entry, as far as it takes (P5): where the domain stays too full even
// once they all have obeyed, each of them is at its least.
func (j *judge) cut(c ledger.Command, b before) {
	if c.Budget == nil {
		return
	}
	at := j.placeOf(c.Budget.Domain)
	if at < 0 || j.tree[at].budget >= b.domains[c.Budget.Domain].Budget { // a schedule below a temporary budget cuts later
		return
	}
	p := j.tree[at]
	aimed, high := p.boot-p.room(), (*ledger.Node)(nil)
	for i, n := range j.w.nodes {
		k := j.nodes[i]
		x := j.state.Nodes[n.spec.Node]
		leaves := !j.lies(k.home, at) && j.clocks.reachable[x.Name] // its next acknowledgement frees what it is charged here
		if !k.known || !j.lies(k.home, at) && !j.lies(k.from, at) || leaves {
			continue
		}
		if !j.clocks.reachable[x.Name] || !grantable(x) {
			aimed += x.Charge()
			continue
		}
		obeys := max(x.Target, failSafe(x), x.Floor)
		if x.Sprint != nil {
			obeys = max(obeys, x.Sprint.Cap)
		}
		aimed += obeys
		if obeys > least(x) {
			high = &x
		}
	}
	if aimed > units.Watt && high != nil {
		j.broken("P5", "%s was cut to %v and is still %v over, but %s is not at its least %v: target %v, sprint %q",
			p.name, p.budget, aimed, high.Name, least(*high), high.Target, high.Owes)
	}
}

// clockJudge holds the raises by the clock against the true clocks (P5).
type clockJudge struct {
	asked     []time.Time              // true wall clock of each server when they were last polled
	by        map[lease.Epoch]proposed // of each leadership, at its newest change of a budget
	proposed  []time.Time              // true wall clocks when the entry was made that is applied now
	reachable map[string]bool          // nodes that its proposer could reach then
}

// proposed is what was true when a leader made an entry.
type proposed struct {
	walls     []time.Time
	reachable map[string]bool
}

func (j *judge) walls() []time.Time {
	var walls []time.Time
	for _, s := range j.w.servers {
		walls = append(walls, s.wallNow())
	}
	return walls
}

// polled notes the true clocks at the moment at which a leader requests them.
func (j *judge) polled() { j.clocks.asked = j.walls() }

// proposed notes what is true at the moment at which a leader makes an entry.
func (j *judge) proposed(l *leadership, c ledger.Command) {
	if c.Budget == nil {
		return
	}
	reachable := map[string]bool{}
	for name := range l.s.state.Nodes {
		v, heard := l.leader.Table().View(name, l.s.now())
		reachable[name] = heard && v.Age <= unheardAfter
	}
	j.clocks.by[l.epoch] = proposed{j.walls(), reachable}
}

// applied judges a raise by the clock.
func (k *clockJudge) applied(j *judge, c ledger.Command, b before) {
	if c.Budget == nil || c.Budget.Clock == nil {
		return
	}
	j.w.hit("budget_by_clock")
	if j.state.Domains[c.Budget.Domain].Budget <= b.domains[c.Budget.Domain].Budget {
		return
	}
	j.w.hit("raise_by_clock")
	at, near := time.UnixMicro(c.At), 0
	for i := range j.w.servers {
		if at.Sub(k.asked[i]).Abs() <= clocksApart || at.Sub(k.proposed[i]).Abs() <= clocksApart {
			near++
		}
	}
	if near < j.w.majority() {
		j.broken("P5", "%s had a scheduled raise to %v, but only %d of %d clocks are near %s",
			c.Budget.Domain, c.Budget.Budget, near, len(j.w.servers), at.UTC().Format(time.TimeOnly))
	}
	if c.At < c.Budget.Clock.Due {
		j.broken("P5", "%s had a scheduled raise before it was due", c.Budget.Domain)
	}
}
