package simulation

import (
	"errors"
	"time"

	"headroom/lease"
	"headroom/ledger"
)

// urgentDelay gathers acknowledgements before a tick that does not wait for its second.
const urgentDelay = 100 * time.Millisecond

// leadership is one server's belief to lead: the table of what it hears, and a
// proposer that has one entry in flight at a time. A leadership that was
// deposed without knowing goes on believing; its entries never commit.
type leadership struct {
	s      *server
	epoch  lease.Epoch
	table  *ledger.Table
	ready  bool // its Lead entry has been applied
	flight *proposal
	orders []*order
	due    bool // a tick is due
	hurry  bool // an urgent tick is planned
	ticked time.Duration

	appended uint64 // place in the order of happenings of the newest own entry applied (P3)
}

// proposal is the entry in flight.
type proposal struct {
	at       int
	appended uint64
	command  ledger.Command
	order    *order
}

// now is the leader's own monotonic time.
func (s *server) now() time.Duration { return s.clock.read(s.w.now) }

// takeLead begins a leadership with its Lead entry.
func (s *server) takeLead(e lease.Epoch) {
	l := &leadership{s: s, epoch: e, table: ledger.NewTable(s.w.timing, s.now()), due: true, ticked: s.now()}
	s.lead = l
	l.propose(ledger.Command{Lead: &ledger.Lead{Server: s.name}}, nil)
}

// every makes a tick due each second.
func (l *leadership) every() {
	if l.s.lead != l {
		return
	}
	l.due = true
	l.pump()
	l.s.w.timer(&l.s.process, l.s.clock.wait(l.s.w.timing.Tick), l.every)
}

// heard takes in a heartbeat.
func (l *leadership) heard(r ledger.Report) {
	l.s.w.judge.heard(l, r)
	l.table.Heard(r, l.s.now())
	if l.ready && !l.hurry && ledger.Urgent(l.s.state, l.table, r.Node) {
		l.hurry = true
		l.s.w.timer(&l.s.process, urgentDelay, func() {
			if l.s.lead == l {
				l.hurry, l.due = false, true
				l.pump()
			}
		})
	}
}

// pump proposes what waits, one entry at a time.
func (l *leadership) pump() {
	switch {
	case l.flight != nil || !l.ready:
	case len(l.s.state.Domains) == 0:
		l.propose(ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains(l.s.w.domains)}}, nil)
	case len(l.orders) > 0:
		o := l.orders[0]
		l.orders = l.orders[1:]
		l.carryOut(o)
	case l.due:
		l.due = false
		l.tick()
	}
}

func (l *leadership) tick() {
	now := l.s.now()
	t := ledger.Decide(l.s.state, l.table, now)
	t.Elapsed = now - l.ticked
	l.ticked = now
	if bend := l.s.w.bent.tick; bend != nil {
		bend(l, &t)
	}
	l.propose(ledger.Command{Actor: "leader", Tick: &t}, nil)
}

// carryOut plans an operator's order on the state as it is now, and proposes it
// with its lowers. A node's request to be released needs no plan.
func (l *leadership) carryOut(o *order) {
	if o.leaver != nil {
		release := &ledger.Release{Node: o.leaver.spec.Node, MachineID: o.leaver.spec.MachineID}
		l.propose(ledger.Command{Actor: o.leaver.name, RequestID: o.id, Release: release}, o)
		return
	}
	plan, err := ledger.PlanBudget(l.s.state, l.table, l.s.now(), o.domain, o.budget)
	if err != nil {
		l.s.w.judge.broken("ledger", "%s cannot plan budget %v of %s: %v", l.s.name, o.budget, o.domain, err)
		return
	}
	set := &ledger.SetBudget{Domain: o.domain, Budget: o.budget, Force: o.force, Targets: plan.Lowers()}
	c := ledger.Command{Actor: "operator", RequestID: o.id, Budget: set}
	if o.check {
		revision := l.s.state.PowerRevision
		c.Check = &revision
	}
	l.propose(c, o)
}

// propose marks what was heard and hands the command to the log.
func (l *leadership) propose(c ledger.Command, o *order) {
	c.Epoch = l.epoch
	c.At = int64(l.s.now() / time.Microsecond)
	data, err := c.Encode()
	if err != nil {
		l.s.w.judge.broken("ledger", "%s cannot encode: %v", l.s.name, err)
		return
	}
	l.table.Mark()
	l.flight = &proposal{appended: l.s.w.happening(), command: c, order: o}
	l.flight.at = l.s.append(data)
	if l.s.w.bent.early {
		l.grant()
	}
}

// applied learns that an entry of the log was applied here.
func (l *leadership) applied(at int, r ledger.Result, err error) {
	p := l.flight
	if p == nil || p.at != at || l.s.log[at].term != l.epoch.Term {
		return
	}
	l.flight, l.appended = nil, p.appended
	l.s.w.judge.answered(l, p, err)
	if p.order != nil && (err == nil || r.Already || !errors.Is(err, ledger.ErrEpoch)) {
		p.order.done = true
	}
	if p.command.Release != nil && err == nil {
		n, id := p.order.leaver, p.order.id
		l.s.w.send(&l.s.process, &n.process, func() { n.released(id) })
	}
	if p.command.Lead != nil {
		l.ready = err == nil
		l.every()
		return
	}
	l.grant()
	l.pump()
}

// grant pushes leases that answer the marked heartbeats.
func (l *leadership) grant() {
	for _, g := range l.table.Grants(l.s.state, l.s.now()) {
		l.s.w.judge.granted(l, g)
		n := l.s.w.nodeNamed(g.Node)
		l.s.w.send(&l.s.process, &n.process, func() { n.granted(l.s, g.Grant) })
	}
}

// report is a heartbeat arriving at a server: the leader takes it in, others
// tell who leads.
func (s *server) report(n *node, r ledger.Report) {
	if s.lead != nil {
		s.lead.heard(r)
		return
	}
	if hint := s.hint; hint != nobody && hint != s.id {
		s.w.send(&s.process, &n.process, func() { n.leader = hint })
	}
}
