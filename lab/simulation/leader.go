package simulation

import (
	"cmp"
	"errors"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// clocksWithin is how long a leader waits for the wall clocks of the others.
const clocksWithin = 500 * time.Millisecond

// leadership is one server's belief to lead: it drives a leader.Leader, carries its outputs out, and brings it heartbeats, orders and the
// time. One that was deposed without knowing goes on believing; its entries never commit.
type leadership struct {
	s        *server
	leader   *leader.Leader
	epoch    lease.Epoch
	flight   *proposal
	timed    uint64 // numbers the timers: the newest counts
	appended uint64 // place in the order of happenings of the newest own entry applied (P3)
	byClock  *order // the change by the clock under way
	known    uint64 // newest brake received by gossip
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

// takeLead begins a leadership.
func (s *server) takeLead() {
	timing := s.w.timing
	timing.Lease = s.length
	e := lease.Epoch{Incarnation: max(1, s.state.Epoch.Incarnation), Term: s.term}
	gap := time.Duration(0)
	if s.ticked > 0 {
		gap = s.now() - s.ticked
	}
	l := &leadership{s: s, epoch: e}
	l.leader = leader.New(leader.Config{
		Server: s.name, Epoch: e, Timing: timing, Found: &ledger.Found{Domains: s.w.domains}, Rules: ledger.Rules, Gap: gap,
	}, l.moment())
	s.lead = l
	began, key := s.w.judge.sprints.began, epochKey{s.group, s.term}
	began[key] = cmp.Or(began[key], s.w.now)
	l.step(l.leader.Start)
	l.echoesArrive()
}

func (l *leadership) moment() leader.Moment {
	return leader.Moment{Mono: l.s.now(), Wall: l.s.wallNow()}
}

// step brings the leadership one input and carries out what follows from it.
func (l *leadership) step(in func(*ledger.State, leader.Moment) []leader.Output) {
	if l.s.lead != l {
		return
	}
	for _, o := range in(l.s.state, l.moment()) {
		if l.s.lead == l {
			l.carryOut(o)
		}
	}
	l.arm()
}

// arm sets the timer that the leadership needs.
func (l *leadership) arm() {
	if l.timed++; l.flight != nil {
		return // its outcome comes first
	}
	timer := l.timed
	l.s.w.timer(&l.s.process, max(time.Microsecond, l.s.clock.wait(l.leader.Due()-l.s.now())), func() {
		if l.s.lead == l && l.timed == timer {
			l.tellBrake(l.s.gossip.known)
			l.step(l.leader.Timer)
		}
	})
}

func (l *leadership) carryOut(o leader.Output) {
	w := l.s.w
	switch o := o.(type) {
	case leader.Propose:
		l.propose(o.Command)
	case leader.Grant:
		w.judge.granted(l, o.NodeGrant)
		n := w.nodeNamed(o.Node)
		w.send(&l.s.process, &n.process, func() { n.granted(l.s, o.Grant) })
	case leader.Wait:
		if n := w.nodeNamed(o.Node); n != nil {
			w.send(&l.s.process, &n.process, func() {
				n.leader = l.s.address
				n.exchange.Waits(o.BrakeLifted)
			})
		}
	case leader.Answer:
		l.answer(o)
	case leader.Prove:
		l.s.verify(func() { l.step(func(*ledger.State, leader.Moment) []leader.Output { return l.leader.Proven(nil) }) })
	case leader.AskClocks:
		l.askClocks()
	case leader.Over:
		l.s.takeLead()
	case leader.Began, leader.Caps, leader.Ticked, leader.Braked:
	}
}

// propose hands a command to the log.
func (l *leadership) propose(c ledger.Command) {
	data, err := c.Encode()
	if err != nil {
		l.s.w.judge.broken("ledger", "%s cannot encode: %v", l.s.name, err)
		return
	}
	if c.Reincarnate != nil {
		l.s.w.hit("reincarnated")
	}
	if c.Budget != nil && c.Budget.Clock != nil {
		l.byClock = &order{what: "clock", id: l.s.w.orderID("clock")}
	}
	l.flight = &proposal{appended: l.s.w.happening(), command: c, order: l.s.w.named[c.RequestID]}
	if l.byClock != nil {
		l.flight.order = l.byClock
	}
	l.s.w.judge.proposed(l, c)
	l.flight.at = l.s.append(data)
}

// applied learns that an entry of the log was applied here.
func (l *leadership) applied(at int, r ledger.Result, err error) {
	p := l.flight
	if p == nil || p.at != at || l.s.log[at].term != l.epoch.Term {
		return
	}
	l.flight, l.appended = nil, p.appended
	l.s.w.judge.answered(l, p, err)
	if err != nil {
		err = leader.RefusedError{Err: err}
	}
	l.step(func(s *ledger.State, now leader.Moment) []leader.Output { return l.leader.Committed(s, now, r, err) })
}

// answer sends the result of an order to its sender.
func (l *leadership) answer(a leader.Answer) {
	w := l.s.w
	o, ok := a.Request.Done.(*order)
	if _, clock := a.Request.ByClock(); clock {
		o, l.byClock, ok = l.byClock, nil, l.byClock != nil
	}
	if !ok || errors.Is(a.Err, ledger.ErrEpoch) {
		return // whether it was carried out shows elsewhere, or it is requested again
	}
	if a.Result.Already && w.judge.carried[o.id] {
		w.hit("order_known_already")
	}
	if o.leaver != nil {
		if n := o.leaver; a.Err == nil && o.group == w.group {
			w.send(&l.s.process, &n.process, func() { n.released(o.id) })
		}
		return
	}
	output, r := o.observed(l.s.state), l.s.random
	if delay, lost := r.upTo(5*time.Millisecond), r.chance(w.net.loss); !lost {
		w.add(delay, func() { w.answered(o, output, a.Err) })
	}
}

// ordered is an order arriving at a server.
func (s *server) ordered(o *order) {
	l := s.lead
	if l == nil || o.group != s.group {
		return
	}
	r := &leader.Request{Build: o.make, Done: o}
	if o.set != nil {
		r.Build = func(_ leader.View, c *ledger.Command) error {
			o.set(c)
			return nil
		}
	}
	if r.Build == nil {
		l.step(func(*ledger.State, leader.Moment) []leader.Output { return l.leader.Read(r) })
		return
	}
	r.Command.Actor, r.Command.RequestID, r.Command.Check = o.actor, o.id, o.check
	r.Command.Caller, r.Command.Content = "operator/"+o.actor, o.what
	l.step(func(s *ledger.State, now leader.Moment) []leader.Output { return l.leader.Ask(s, now, r) })
}

// report is a heartbeat arriving at a server: the leader takes it in, others name the leader.
func (s *server) report(n *node, r ledger.Report) {
	if s.lead != nil {
		s.lead.heard(r)
		return
	}
	if hint := s.hint; hint != nobody && hint != s.address {
		s.w.send(&s.process, &n.process, func() { n.leader = hint })
	}
}

// heard takes in a heartbeat.
func (l *leadership) heard(r ledger.Report) {
	l.s.w.judge.heard(l, r)
	l.step(func(s *ledger.State, now leader.Moment) []leader.Output {
		l.leader.Heard(s, now, r)
		return nil
	})
	if r.Boot == twinBoot && len(l.leader.Table().Conflicts(l.s.now())) > 0 {
		l.s.w.hit("identity_conflict")
	}
}

// braked learns of a brake from the gossip.
func (l *leadership) braked(generation uint64) {
	l.step(func(*ledger.State, leader.Moment) []leader.Output {
		l.tellBrake(generation)
		return nil
	})
}

func (l *leadership) tellBrake(generation uint64) {
	l.known = max(l.known, generation)
	l.leader.Brake(leader.Brake{Generation: generation, Actor: "gossip"})
}

// askClocks requests the wall clocks of the other servers.
func (l *leadership) askClocks() {
	told, at := map[string]int64{}, map[string]time.Duration{}
	for _, peer := range l.s.w.servers {
		if peer == l.s {
			continue
		}
		l.s.to(peer, func() {
			wall := peer.wallNow().UnixMicro()
			peer.to(l.s, func() { told[peer.name], at[peer.name] = wall, l.s.now() })
		})
	}
	l.s.w.judge.asked = l.s.w.judge.walls()
	l.s.w.timer(&l.s.process, clocksWithin, func() {
		clocks := map[string]int64{l.s.name: l.s.wallNow().UnixMicro()}
		for name, t := range told {
			clocks[name] = t + (l.s.now() - at[name]).Microseconds()
		}
		l.step(func(s *ledger.State, now leader.Moment) []leader.Output {
			return l.leader.Clocks(s, now, clocks, len(l.s.w.servers))
		})
	})
}
