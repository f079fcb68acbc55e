package simulation

//headroom:judge

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// judge checks a schedule from outside. It has what no process has: true time, what hardware holds, and the log as it is committed.
type judge struct {
	w *world

	log      []entry // committed since the servers were begun (again), log[0] a sentinel
	commands []ledger.Command
	state    *ledger.State // after log[len(log)-1]
	epoch    lease.Epoch   // of the newest Lead that was applied
	snaps    map[int][]byte

	tree     []place
	nodes    []charged // by node
	accounts map[string]*account
	seqs     map[string]uint64 // highest sequence number of each name in this beginning
	changed  time.Duration     // true time of the newest change of a budget or of what nodes there are
	moved    bool              // something that the sums depend on has changed since they were judged

	caps    map[capKey]gift    // every committed target with its sprint
	carried map[string]bool    // ids of the orders that were carried out since the servers were begun
	arrived map[arrival]uint64 // when a leadership heard a heartbeat
	sprints sprintJudge
	jobs    map[string]*jobBook

	asked     []time.Time              // true wall clock of each server when they were last polled
	proposals map[lease.Epoch]proposed // of each leadership, at its newest change of a budget

	lifted  uint64          // highest generation of the brake that any log has lifted
	mayLift map[uint64]bool // generations that operators have requested to lift

	found []Violation
	once  map[string]bool
}

// charged is the judge's state of one node.
type charged struct {
	known   bool // the log has it
	off     bool // the log has it as off
	charge  units.Power
	home    int // place in the tree that the log charges it in, -1 for none
	from    int // place that it has been moved from and is charged in too, -1 for none
	feed    int // place that it really draws from, -1 while that is not to be judged
	feedSeq uint64
	stamp   lease.Stamp   // the newest taken, whatever it remembers
	forgot  bool          // it has lost its state directory since
	leased  time.Duration // true time of the heartbeat that the lease answers
	ends    time.Duration // true time at which the lease ends on the node's clock
	latest  time.Duration // and the latest at which it may end on any clock (P2)
	told    bool          // the log has learned that another program raised its limit
	lost    string        // domain that it drew from when a recovered log lost sight of it; "" when it is known
	offers  []lease.Grant // leases that were issued to it and may still arrive
	removed time.Duration // true time at which operators took it out, 0 for never
	pid     uint64        // its process at that time
	stored  uint64        // highest generation of the brake that is on its disk
	stint   *stint        // the sprint that it is in, nil for none
}

// place is one domain as the judge sums it.
type place struct {
	name      string
	above     []int // itself and all above
	budget    units.Power
	unmanaged units.Power // in it and below
	boot      units.Power
	bootNodes int
	reserved  units.Power
}

func (p place) room() units.Power { return p.budget - p.unmanaged }

// over is by how much the domain is charged too much.
func (p place) over() units.Power { return max(0, p.reserved+p.boot-p.room()) }

type capKey struct {
	group int
	node  string
	seq   uint64
}

type arrival struct {
	by     *leadership
	node   string
	pid    uint64
	number uint64
}

func newJudge(w *world) *judge {
	j := &judge{
		w: w, nodes: make([]charged, len(w.nodes)), caps: map[capKey]gift{}, arrived: map[arrival]uint64{}, once: map[string]bool{},
		mayLift: map[uint64]bool{}, proposals: map[lease.Epoch]proposed{},
	}
	j.sprints.ran, j.sprints.old = map[string]bool{}, map[string]bool{}
	j.sprints.counted, j.sprints.began = map[epochKey]time.Duration{}, map[epochKey]time.Duration{}
	j.sprints.restored(ledger.New(), nil)
	j.begin(ledger.New())
	return j
}

// begin starts with a log on a state. Of what was committed after its snapshot nothing is known any more.
func (j *judge) begin(s *ledger.State) {
	j.log, j.commands, j.snaps = make([]entry, 1), make([]ledger.Command, 1), map[int][]byte{}
	j.state, j.epoch, j.tree = s, s.Epoch, nil
	j.carried, j.accounts, j.seqs = map[string]bool{}, map[string]*account{}, map[string]uint64{}
	for name, n := range s.Nodes {
		j.accounts[name] = unknownAccount(n)
	}
	j.beginJobs()
}

// broken records a violation; of each promise the first of a schedule.
func (j *judge) broken(promise, format string, args ...any) {
	if j.once[promise] {
		return
	}
	j.once[promise] = true
	what := fmt.Sprintf(format, args...)
	j.found = append(j.found, Violation{Promise: promise, Seed: j.w.schedule.Seed, At: float64(j.w.now.Microseconds()) / 1e6, What: what})
	j.w.tracef("VIOLATION of %s: %s", promise, what)
}

// ended reports whether the schedule has shown what it was run for.
func (j *judge) ended() bool { return j.once[j.w.schedule.Promise] }

// committed takes in an entry that a server is about to apply, and is the command in it. The first server to get there decides what the log
// has; all others must have the same.
func (j *judge) committed(s *server, at int, e entry) (c ledger.Command, ok bool) {
	switch {
	case at < len(j.log):
		if j.log[at].term != e.term || !bytes.Equal(j.log[at].data, e.data) {
			j.broken("consensus", "entry %d differs between servers", at)
		}
		return j.commands[at], true
	case at > len(j.log):
		j.broken("consensus", "entry %d applied before entry %d", at, len(j.log))
		return c, false
	}
	c, err := ledger.Decode(e.data)
	if err != nil {
		j.broken("ledger", "%s cannot decode entry %d: %v", s.name, at, err)
	}
	j.log, j.commands = append(j.log, e), append(j.commands, c)
	j.apply(at, c)
	if at%32 == 0 { // whole replicas are compared here
		j.snaps[at] = j.snapshot(j.state)
	}
	return c, err == nil
}

// apply judges what an entry makes of the state.
func (j *judge) apply(at int, c ledger.Command) {
	before := j.before()
	if t := c.Tick; j.w.trace != nil && (t == nil || len(t.Seen)+len(t.Acks)+len(t.Admit)+len(t.Targets)+len(t.Lapsed)+len(t.EndSprints) > 0) {
		j.w.tracef("entry %d: %s", at, j.log[at].data) // no tick that only renews
	}
	switch r, err := j.state.Apply(c); {
	case err != nil:
		j.w.happens("entry_refused", "entry %d refused: %v", at, err)
		return
	case r.Already:
		j.w.hit("order_known_already")
		return
	case c.RequestID != "" && j.carried[c.RequestID]:
		j.broken("ledger", "%s applied a second time", c.RequestID)
	}
	j.carried[c.RequestID] = true
	for _, name := range sortedKeys(j.state.Nodes) {
		if n := j.state.Nodes[name]; n.Admitted && n.Seq > before.nodes[name].Seq {
			j.w.history.seen(aimInput{name, n.Seq}, j.log[at].made)
		}
	}
	j.leads(at, c)
	j.account(c, before)
	j.recount()
	j.inherited(c, before)
	j.weigh(c, before)
	j.cut(c, before)
	j.clock(c, before)
	j.sprints.applied(j, c, before)
	j.brake()
	j.job(c)
	j.mark(c, before)
}

// leads judges that only the leadership in force writes (P3).
func (j *judge) leads(at int, c ledger.Command) {
	switch {
	case c.Lead != nil && c.Epoch.Compare(j.epoch) <= 0, c.Lead == nil && c.Epoch != j.epoch:
		j.broken("P3", "entry %d of epoch %v applied in epoch %v", at, c.Epoch, j.epoch)
	case c.Lead != nil:
		j.epoch = c.Epoch
	}
}

// restore is the state of a snapshot.
func (j *judge) restore(data []byte) *ledger.State {
	s, err := ledger.Restore(data)
	if err != nil {
		j.broken("ledger", "a snapshot cannot be restored: %v", err)
		return ledger.New()
	}
	return s
}

func (j *judge) snapshot(s *ledger.State) []byte {
	data, err := s.Snapshot()
	if err != nil {
		j.broken("ledger", "no snapshot: %v", err)
	}
	return data
}

// restored learns that the servers were begun again from a recovered state.
func (j *judge) restored(s *ledger.State, pots map[potKey]pot) {
	j.lose(s)
	for i := range j.nodes {
		j.nodes[i].feed = -1 // a node moved since the snapshot stands where the log puts it
	}
	j.begin(s)
	j.recount()
	j.sprints.restored(j.state, pots)
}

// answered judges what Apply returned for a leader's entry: its own ticks and plans are never refused, operators' requests may be.
func (j *judge) answered(l *leadership, p *proposal, err error) {
	if err == nil {
		return
	}
	_, floor := errors.AsType[*ledger.FloorError](err)
	switch {
	case p.command.Lead != nil && l.s.state.Epoch.Incarnation > l.epoch.Incarnation:
	case p.order == nil, errors.Is(err, ledger.ErrUnknownCommand), errors.Is(err, ledger.ErrEpoch):
		j.broken("ledger", "entry %d of %s is refused: %v", p.at, l.s.name, err)
	case p.order.what == "budget" && p.order.force && !errors.Is(err, ledger.ErrConflict):
		j.broken("ledger", "a forced budget is refused: %v", err)
	case floor:
		j.w.hit("budget_refused")
	case errors.Is(err, ledger.ErrFloor):
		j.w.hit("job_floor_kept")
	case slices.Contains([]string{"release", "clock", "sprint"}, p.order.what):
		j.w.hit(p.order.what + "_refused")
	default:
		j.w.hit("order_refused")
	}
}

// settled judges the end of a calm: every node that runs is under a lease again, and no domain is over its budget for no reason (P5).
func (j *judge) settled() {
	for i, n := range j.w.nodes {
		c, known := j.state.Nodes[n.spec.Node]
		left := n.disk.Highest.Epoch.Incarnation > j.state.Epoch.Incarnation && !j.state.Restored // for a newer beginning, which this one must not overtake
		switch {
		case left:
			j.w.tracef("%s has heard of a newer beginning", n.name)
			continue
		case n.hw.cord != "" || n.hw.off || !n.up || n.since > j.w.end-calmSpan/2 || j.state.Restored && !c.Unproven:
			continue
		case !known:
			if j.state.Epoch.Incarnation >= n.disk.Highest.Epoch.Incarnation && j.placeOf(n.spec.Domain) >= 0 {
				j.broken("recovery", "%s was never seen", n.name)
			}
			continue
		}
		over := j.overAbove(j.nodes[i].home)
		waits := !c.Admitted && (over != nil || j.w.now-j.changed < calmSpan/4) || c.Drained || braked(j.state)
		if _, state := n.exchange.Cap(); state != lease.Held && c.Controlled && !c.Released && !waits {
			j.broken("recovery", "%s has no lease at the end of the quiet period: %v", n.name, n.exchange.Why())
		}
		if over != nil && grantable(c) && j.w.now-j.changed > calmSpan/4 && c.Charge() > max(least(c), c.Stored) {
			j.broken("P5", "%s is %v over its budget at the end of the quiet period, but %s is charged %v and its least is %v",
				over.name, over.over(), n.name, c.Charge(), least(c))
		}
	}
	for _, s := range j.w.servers {
		if s.applied == len(j.log)-1 && !bytes.Equal(j.snapshot(s.state), j.snapshot(j.state)) {
			j.broken("ledger", "the replica of %s differs at the end", s.name)
		}
	}
}
