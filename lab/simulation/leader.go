package simulation

import (
	"errors"
	"time"

	"headroom/lease"
	"headroom/ledger"
)

const (
	// urgentDelay gathers acknowledgements before a tick that does not wait for its second.
	urgentDelay = 100 * time.Millisecond
	// clocksWithin is how long a leader waits for the wall clocks of the others.
	clocksWithin = 500 * time.Millisecond
)

// leadership is one server's belief to lead: the table of what it hears, and a
// proposer that has one entry in flight at a time. A leadership that was
// deposed without knowing goes on believing; its entries never commit.
type leadership struct {
	s      *server
	timing ledger.Timing // as its configuration has it
	epoch  lease.Epoch
	table  *ledger.Table
	ready  bool // its Lead entry has been applied
	flight *proposal
	orders []*order
	due    bool // a tick is due
	hurry  bool // an urgent tick is planned
	ticked time.Duration
	poll   *poll    // of the servers' wall clocks, while one is under way
	reads  []*order // questions that wait for the next entry

	appended uint64                   // place in the order of happenings of the newest own entry applied (P3)
	lowered  bool                     // a lower by the clock was tried since the last tick
	news     map[string]time.Duration // for a sabotage: when the log had news of a node
}

// proposal is the entry in flight.
type proposal struct {
	at       int
	appended uint64
	command  ledger.Command
	order    *order
	reads    []*order // that came before it was appended
}

// now is the leader's own monotonic time.
func (s *server) now() time.Duration { return s.clock.read(s.w.now) }

// takeLead begins a leadership with its Lead entry.
func (s *server) takeLead() {
	timing := s.w.timing
	timing.Lease = s.length
	if bend := s.w.bent.timing; bend != nil {
		timing = bend(timing)
	}
	e := lease.Epoch{Incarnation: max(1, s.state.Epoch.Incarnation), Term: s.term}
	l := &leadership{s: s, epoch: e, timing: timing, table: ledger.NewTable(timing, s.now()), due: true, ticked: s.now()}
	if s.lead != nil { // the same leadership in a newer incarnation
		l.orders = s.lead.orders
	}
	s.lead = l
	s.w.judge.sprints.led(epochKey{s.group, s.term}, s.w.now)
	gap := time.Duration(0)
	if s.ticked > 0 {
		gap = s.now() - s.ticked
	}
	l.propose(ledger.Command{Lead: &ledger.Lead{Server: s.name, Gap: gap}}, nil)
	l.echoesArrive()
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

// silent tells whether a node may be taken for gone, as the coordinator's desk has it.
func (l *leadership) silent(node string) bool {
	return l.table.Silent(node, l.s.now()) > l.s.w.timing.Lost
}

// heard takes in a heartbeat.
func (l *leadership) heard(r ledger.Report) {
	l.s.w.judge.heard(l, r)
	l.table.Heard(r, l.s.now())
	if r.Boot == twinBoot && len(l.table.Conflicts(l.s.now())) > 0 {
		l.s.w.hit("identity_conflict")
	}
	switch {
	case !l.ready:
	case l.table.Brake() > l.s.state.Brake.Set:
		l.pump()
	case !l.hurry && ledger.Urgent(l.s.state, l.table, r.Node):
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
	if l.flight != nil || !l.ready {
		return
	}
	state := l.s.state
	brake, incarnation := max(l.table.Brake(), l.s.gossip.known), l.table.Incarnation()
	switch {
	case len(state.Domains) == 0:
		l.propose(ledger.Command{Found: &ledger.Found{Domains: l.s.w.domains}}, nil)
	case state.Leases.Length == 0:
		l.propose(ledger.Command{SetLease: &ledger.SetLease{Length: l.s.length, Settle: l.timing.Settle}}, nil)
	case incarnation > state.Epoch.Incarnation && state.Restored:
		l.s.w.hit("reincarnated")
		l.propose(ledger.Command{Reincarnate: &ledger.Reincarnate{Above: incarnation}}, nil)
	case brake > state.Brake.Set:
		l.propose(ledger.Command{Actor: "gossip", Brake: &ledger.SetBrake{Generation: brake}}, nil)
	case len(l.orders) > 0:
		o := l.orders[0]
		l.orders = l.orders[1:]
		l.carryOut(o)
	case l.due:
		if l.lookAtTheClock() {
			return // the tick follows
		}
		l.due = false
		l.tick()
	}
}

func (l *leadership) tick() {
	now := l.s.now()
	t := ledger.Decide(l.s.state, l.table, now)
	t.Elapsed = now - l.ticked
	l.ticked, l.lowered = now, false
	if bend := l.s.w.bent.tick; bend != nil {
		bend(l, &t)
	}
	l.propose(ledger.Command{Actor: "leader", Tick: &t}, nil)
}

// carryOut proposes an operator's order as it is planned on the state of now.
func (l *leadership) carryOut(o *order) {
	c, ok := o.make(l)
	if !ok {
		l.answer(o, errNothingToDo)
		l.pump()
		return
	}
	if c.Actor == "" {
		c.Actor = "operator"
	}
	c.RequestID = o.id
	c.Check = o.check
	if bend := l.s.w.bent.command; bend != nil {
		bend(l, &c)
	}
	l.propose(c, o)
}

// propose marks what was heard and hands the command to the log.
func (l *leadership) propose(c ledger.Command, o *order) {
	c.Epoch = l.epoch
	c.At = l.s.wallNow().UnixMicro()
	data, err := c.Encode()
	if err != nil {
		l.s.w.judge.broken("ledger", "%s cannot encode: %v", l.s.name, err)
		return
	}
	l.table.Mark()
	l.flight = &proposal{appended: l.s.w.happening(), command: c, order: o, reads: l.reads}
	l.reads = nil
	l.s.w.judge.proposed(l, c)
	l.flight.at = l.s.append(data)
	if l.s.w.bent.early {
		l.grant()
	}
	if l.s.w.bent.unpaid && c.Sprint != nil {
		l.startUnpaid(c.Sprint)
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
	if p.order != nil && !errors.Is(err, ledger.ErrEpoch) {
		p.order.already = r.Already
		l.answer(p.order, err)
	}
	for _, read := range p.reads {
		l.answer(read, nil)
	}
	switch {
	case p.command.Reincarnate != nil && err == nil:
		l.s.takeLead()
		return
	case p.command.Lead != nil && err != nil: // an incarnation has begun that was not applied here yet
		l.s.takeLead()
		return
	case p.command.Lead != nil:
		l.ready = true
		l.every()
		return
	}
	l.grant()
	l.pump()
}

// answer tells whoever gave the order what came of it.
func (l *leadership) answer(o *order, err error) {
	w := l.s.w
	if o.leaver != nil {
		if n := o.leaver; err == nil && o.group == w.group {
			w.send(&l.s.process, &n.process, func() { n.released(o.id) })
		}
		return
	}
	output, r := o.observed(l), l.s.dice
	if delay, lost := r.upTo(5*time.Millisecond), r.chance(w.net.loss); !lost {
		w.add(delay, func() { w.answered(o, output, err) })
	}
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

// poll is a question for the wall clocks of all servers.
type poll struct {
	told map[string]int64         // as told, microseconds
	at   map[string]time.Duration // when, leader's monotonic time
}

// lookAtTheClock asks the other servers for their wall clocks when a change of a
// budget is due by this one's. A lower asks nobody: it reports whether it has put one
// before the tick, which it does once a tick.
func (l *leadership) lookAtTheClock() bool {
	due := ledger.Due(l.s.state, l.s.wallNow())
	if l.poll != nil || len(due) == 0 {
		return false
	}
	if !due[0].Quorum {
		if l.lowered {
			return false
		}
		l.lowered = true
		l.carryOutDue(&poll{told: map[string]int64{}})
		return true
	}
	p := &poll{told: map[string]int64{}, at: map[string]time.Duration{}}
	l.poll = p
	for _, peer := range l.s.w.servers {
		if peer == l.s {
			continue
		}
		l.s.to(peer, func() {
			wall := peer.wallNow().UnixMicro()
			peer.to(l.s, func() { p.told[peer.name], p.at[peer.name] = wall, l.s.now() })
		})
	}
	l.s.w.judge.polled()
	l.s.w.timer(&l.s.process, clocksWithin, func() {
		if l.s.lead == l {
			l.poll = nil
			l.carryOutDue(p)
		}
	})
	return false
}

// carryOutDue puts the oldest change that is due before all orders.
func (l *leadership) carryOutDue(p *poll) {
	due := ledger.Due(l.s.state, l.s.wallNow())
	if len(due) == 0 {
		return
	}
	x := due[0]
	o := &order{what: "clock", id: l.s.w.orderID("clock"), group: l.s.w.group}
	o.input = budgetInput{domain: x.Domain, to: x.Budget}
	l.s.w.history.calls(o)
	o.make = func(*leadership) (ledger.Command, bool) {
		clocks := map[string]int64{l.s.name: l.s.wallNow().UnixMicro()}
		for name, told := range p.told {
			clocks[name] = told + (l.s.now() - p.at[name]).Microseconds()
		}
		b := &ledger.SetBudget{
			Domain: x.Domain, Budget: x.Budget,
			Clock: &ledger.Clock{Schedule: x.Schedule, Due: x.At.UnixMicro(), Servers: clocks, Voters: len(l.s.w.servers)},
		}
		plan, err := ledger.PlanBudget(l.s.state, l.table, l.s.now(), x.Domain, x.Budget)
		b.Targets = plan.Lowers()
		return ledger.Command{Actor: "clock", Budget: b}, err == nil
	}
	l.orders = append([]*order{o}, l.orders...)
	l.pump()
}
