package simulation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headroom/capping"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// bends are the places where a rule of the design can be broken on purpose: each
// replaces a piece of correct behaviour by a plausible mistake. All are nil or
// false in a real run.
type bends struct {
	timing    func(ledger.Timing) ledger.Timing                   // what the leader's table believes
	tick      func(*leadership, *ledger.Tick)                     // changes what the leader commits
	command   func(*leadership, *ledger.Command)                  // changes how an order is carried out
	applied   func(before, after *ledger.State, c ledger.Command) // changes what every replica makes of an entry
	recovered func(*ledger.State)                                 // changes a recovered state
	report    func(*node, *ledger.Report)                         // changes what a node reports
	grant     func(*node, *lease.Grant)                           // changes how a node reads a grant
	boot      func(*node)                                         // changes what a powerd finds when it starts
	receipt   bool                                                // a lease counts from the arrival of its grant
	awake     bool                                                // powerd reads the clock that stands still in suspend
	early     bool                                                // heartbeats are answered before the entry has committed
	unpaid    bool                                                // a sprint is pushed before its escrow has committed
	mute      bool                                                // who learns of the brake tells nobody
	patient   bool                                                // a lower cap waits until it is stored
	stale     bool                                                // reads are answered by whoever takes himself for the leader
	// despite carries out a command that Apply has refused, and tells whether it did.
	despite func(*ledger.State, ledger.Command, error) bool
}

// Sabotage is one rule of the design that can be broken on purpose, to see that
// the judges find it.
type Sabotage struct {
	// Name for --sabotage.
	Name string `json:"name"`
	// Breaks is the promise under which the judges find it.
	Breaks string `json:"breaks"`

	bent bends
}

// Sabotages are all of them, by promise.
func Sabotages() []Sabotage {
	return []Sabotage{
		{"lease-from-receipt", "P2", bends{receipt: true}},
		{"clock-without-suspend", "P2", bends{awake: true}},
		{"answer-before-commit", "P3", bends{early: true}},
		{"epoch-not-checked", "P3", bends{grant: forgetEpoch}},
		{"raise-before-lower", "P1", bends{tick: countLowersAtOnce}},
		{"old-acknowledgement", "P4", bends{tick: countOldAcks}},
		{"written-not-read-back", "P4", bends{report: reportWrites}},
		{"charge-ends-with-lease", "P4", bends{tick: dropSilent}},
		{"no-drift-margin", "P4", bends{timing: withoutMargin}},
		{"lost-is-off", "P4", bends{command: callLostOff}},
		{"move-frees-at-once", "P4", bends{applied: forgetMoves}},
		{"snapshot-is-believed", "P4", bends{recovered: believeSnapshot}},
		{"fail-safe-not-stored", "P4", bends{applied: forgetStored}},
		{"cut-waits-for-lost", "P5", bends{command: waitForLost}},
		{"clock-of-the-leader", "P5", bends{command: trustOwnClock}},
		{"unproven-readback-ignored", "P4", bends{applied: ignoreUnproven}},
		{"unmeasured-is-escrow", "P8", bends{applied: chargeEscrows}},
		{"escrow-after-start", "P8", bends{unpaid: true}},
		{"refund-twice", "P8", bends{applied: refundTwice}},
		{"refund-unmeasured", "P8", bends{applied: refundUnmeasured}},
		{"sprint-runs-again", "P8", bends{grant: forgetSprints}},
		{"gaps-refill", "P8", bends{tick: countGaps}},
		{"brake-not-stored", "brake", bends{boot: forgetBrake}},
		{"lease-lifts-brake", "brake", bends{grant: liftByLease}},
		{"brake-stays-local", "brake", bends{mute: true}},
		{"floor-not-checked", "P9", bends{despite: dropAnyway}},
		{"drops-forgotten", "P9", bends{applied: forgetDrops}},
		{"ratio-not-checked", "P9", bends{despite: deflateAnyway}},
		{"restore-awaits-no-unknown", "P1", bends{recovered: awaitNobody}},
		{"old-incarnation-lowers", "P4", bends{tick: countOldIncarnations}},
		{"lift-any-generation", "brake", bends{despite: liftAnyway}},
		{"pending-folded-low", "P4", bends{applied: foldLow}},
		{"control-again-uncharged", "P4", bends{applied: keepCeiling}},
		{"restore-forgives-debt", "P8", bends{recovered: forgiveDebt}},
		{"lost-settlement-believes-node", "P8", bends{applied: believeTold}},
		{"sprint-beside-ending", "P8", bends{despite: sprintAnyway}},
		{"old-heartbeat-counts", "P4", bends{tick: countOldHeartbeats}},
		{"request-keys-lost-at-failover", "ledger", bends{applied: forgetRequests}},
		{"lapse-ignores-grant", "P4", bends{tick: lapseByNews}},
		{"lease-length-per-server", "P4", bends{tick: waitOwnLength}},
		{"failed-write-acknowledged", "P4", bends{report: reportFailed}},
		{"cut-waits-for-disk", "P5", bends{patient: true}},
	}
}

// findSabotage is the sabotage of a name; "" is none.
func findSabotage(name string) (Sabotage, error) {
	if name == "" {
		return Sabotage{}, nil
	}
	list := Sabotages()
	i := slices.IndexFunc(list, func(s Sabotage) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		return Sabotage{}, fmt.Errorf("%q is none of %s", name, strings.Join(names, ", "))
	}
	return list[i], nil
}

// countLowersAtOnce commits a lower as acknowledged with the tick that follows it.
func countLowersAtOnce(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		if n.Ceiling > n.Target && n.Grantable() {
			t.Acks = append(t.Acks, ledger.Ack{
				Node: n.Name, Process: n.Process, Number: n.Heard, Seq: n.Seq, Effective: n.Target, Stored: n.FailSafeCap(),
			})
		}
	}
}

// countOldAcks counts every read-back for the newest target, whichever it names.
func countOldAcks(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		v, ok := l.table.View(n.Name, l.s.now())
		if ok && n.Grantable() && v.Report.EffectiveKnown && v.Report.Effective < n.Ceiling && v.Report.Process == n.Process {
			t.Acks = append(t.Acks, ledger.Ack{
				Node: n.Name, Process: n.Process, Number: v.Report.Number, Seq: n.Seq, Effective: v.Report.Effective, Stored: v.Report.Stored,
			})
		}
	}
}

// reportWrites makes a node report what it wrote instead of what reads back.
func reportWrites(n *node, r *ledger.Report) { r.Effective = n.hw.want }

// dropSilent takes for granted that a node which has not been heard for as long
// as a lease runs has fallen to its fail-safe cap.
func dropSilent(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		v, ok := l.table.View(n.Name, l.s.now())
		if !ok || v.Age < l.s.w.timing.Lease || !n.Grantable() || n.Charge() == n.FailSafeCap() {
			continue
		}
		t.Acks = append(t.Acks, ledger.Ack{
			Node: n.Name, Process: n.Process, Number: n.Heard, Seq: n.Seq + 1, Effective: n.FailSafeCap(), Stored: n.FailSafeCap(),
		})
		t.Targets = append(t.Targets, ledger.Target{Node: n.Name, Cap: n.Least()})
	}
}

// withoutMargin takes the drift margin out of the time after which a lease counts as over.
func withoutMargin(t ledger.Timing) ledger.Timing {
	t.Settle -= t.Fallen() - t.Lease - t.Settle
	return t
}

// callLostOff asserts of the first node that is not heard that it is off.
func callLostOff(l *leadership, c *ledger.Command) {
	for _, n := range l.s.state.NodesByName() {
		if v, ok := l.table.View(n.Name, l.s.now()); ok && v.Age > l.s.w.timing.Lease && n.Off == "" {
			*c = ledger.Command{Actor: c.Actor, RequestID: c.RequestID, PowerOff: &ledger.PowerOff{Node: n.Name, By: "silence"}}
			return
		}
	}
}

// forgetMoves charges a moved node in its new place only.
func forgetMoves(_, after *ledger.State, c ledger.Command) {
	if c.Move != nil {
		n := after.Nodes[c.Move.Node]
		n.From, n.FromSeq = "", 0
		after.Nodes[n.Name] = n
	}
}

// believeSnapshot charges nodes what a restored snapshot says.
func believeSnapshot(s *ledger.State) {
	for name, n := range s.Nodes {
		if n.Unproven {
			n.Unproven, n.Ceiling = false, n.Target
			s.Nodes[name] = n
		}
	}
}

// forgetStored takes a fail-safe cap that was declared or set for one that is stored.
func forgetStored(_, after *ledger.State, _ ledger.Command) {
	for name, n := range after.Nodes {
		n.Stored = n.FailSafeCap()
		after.Nodes[name] = n
	}
}

// waitForLost leaves the lowers of a cut to later while a node is not heard.
func waitForLost(l *leadership, c *ledger.Command) {
	if c.Budget == nil {
		return
	}
	for name, n := range l.s.state.Nodes {
		if v, ok := l.table.View(name, l.s.now()); n.Grantable() && (!ok || v.Age > l.s.w.timing.Lost) {
			c.Budget.Targets = nil
		}
	}
}

// trustOwnClock gives the leader's clock for everybody's.
func trustOwnClock(l *leadership, c *ledger.Command) {
	if c.Budget != nil && c.Budget.Clock != nil {
		for _, s := range l.s.w.servers {
			c.Budget.Clock.Servers[s.name] = l.s.wallNow().UnixMicro()
		}
	}
}

// ignoreUnproven lets a read-back that is older than the proof asked for raise nothing.
func ignoreUnproven(before, after *ledger.State, c ledger.Command) {
	if c.Tick == nil {
		return
	}
	for _, a := range c.Tick.Acks {
		if n := after.Nodes[a.Node]; a.Seq < n.Proof {
			n.Excess, n.Stored = before.Nodes[a.Node].Excess, before.Nodes[a.Node].Stored
			after.Nodes[a.Node] = n
		}
	}
}

// chargeEscrows charges no more than the escrow for what nobody measured.
func chargeEscrows(before, after *ledger.State, _ ledger.Command) {
	for id, p := range after.Sprints {
		if !p.Closed || before.Sprints[id].Closed {
			continue
		}
		for _, x := range p.Shares {
			if d := after.Domains[p.Domain]; x.Spent == nil && x.Charged > x.Escrow && d.Sprint != nil && len(d.Sprint.Shares) == 0 {
				gain(after, p.Domain, x.Charged-x.Escrow)
			}
		}
	}
}

// gain adds to the one pot of a domain.
func gain(s *ledger.State, domain string, e units.Energy) {
	d := s.Domains[domain]
	b := *d.Sprint
	b.Balances = map[string]units.Energy{"": b.Balances[""] + e}
	d.Sprint = &b
	s.Domains[domain] = d
}

// startUnpaid pushes a sprint to its nodes before its escrow has committed.
func (l *leadership) startUnpaid(x *ledger.GrantSprint) {
	for _, g := range l.table.Grants(l.s.state, l.s.now()) {
		for _, to := range x.Caps {
			n := l.s.state.Nodes[g.Node]
			if to.Node != g.Node || to.Cap <= n.Target {
				continue
			}
			g.Grant.Stamp.Seq++
			g.Grant.Sprint = lease.Sprint{ID: x.ID, Cap: to.Cap, Duration: x.Duration, Escrow: (to.Cap - n.Target).For(x.Duration)}
			named := l.s.w.nodeNamed(g.Node)
			l.s.w.send(&l.s.process, &named.process, func() { named.granted(l.s, g.Grant) })
		}
	}
}

// refundTwice pays what was not spent of a sprint once more.
func refundTwice(before, after *ledger.State, _ ledger.Command) {
	refund(before, after, func(p ledger.Sprint) units.Energy { return p.Refunded })
}

// refundUnmeasured pays back the whole part of a node that has not said what it spent.
func refundUnmeasured(before, after *ledger.State, _ ledger.Command) {
	refund(before, after, func(p ledger.Sprint) units.Energy {
		sum := units.Energy(0)
		for _, x := range p.Shares {
			if x.Spent == nil {
				sum += x.Escrow
			}
		}
		return sum
	})
}

func refund(before, after *ledger.State, of func(ledger.Sprint) units.Energy) {
	for id, p := range after.Sprints {
		d := after.Domains[p.Domain]
		if !p.Closed || before.Sprints[id].Closed || d.Sprint == nil || len(d.Sprint.Shares) > 0 {
			continue
		}
		gain(after, p.Domain, of(p))
	}
}

// forgetSprints lets powerd forget, with each lease, which sprints it has run.
func forgetSprints(n *node, _ *lease.Grant) {
	if _, under := n.sprint.Status(n.now().Boot); !under {
		n.sprint = capping.Sprint{}
	}
}

// countGaps counts the time in which nobody led.
func countGaps(l *leadership, t *ledger.Tick) {
	if since := l.s.w.now - l.s.w.judge.ticked; t.Elapsed < since {
		t.Elapsed = since
	}
}

// forgetBrake loses the brake's generation with the process.
func forgetBrake(n *node) { n.disk.Brake = 0 }

// liftByLease takes any lease for one that lifts the brake.
func liftByLease(n *node, g *lease.Grant) {
	g.BrakeLifted = max(g.BrakeLifted, n.holder.Memory().Brake)
}

// dropAnyway records dropped tasks that the job's floor does not leave.
func dropAnyway(s *ledger.State, c ledger.Command, err error) bool {
	if c.DropTasks == nil || !errors.Is(err, ledger.ErrFloor) {
		return false
	}
	j := s.Jobs[c.DropTasks.ID]
	j.Dropped = append(slices.Clone(j.Dropped), c.DropTasks.Ranges...)
	s.Jobs[j.ID] = j
	return true
}

// deflateAnyway puts a drop ratio in force that the job's floor does not leave.
func deflateAnyway(s *ledger.State, c ledger.Command, err error) bool {
	if c.DeflateJob == nil || !errors.Is(err, ledger.ErrFloor) {
		return false
	}
	j := s.Jobs[c.DeflateJob.ID]
	j.Deflation = &ledger.Deflation{Theta: c.DeflateJob.Theta, Seed: c.DeflateJob.Seed}
	s.Jobs[j.ID] = j
	return true
}

// forgetDrops lets a new leader take what was dropped for what the one before knew.
func forgetDrops(_, after *ledger.State, c ledger.Command) {
	if c.Lead == nil {
		return
	}
	for id, j := range after.Jobs {
		j.Dropped = nil
		after.Jobs[id] = j
	}
}

// forgetEpoch compares sequence numbers only.
func forgetEpoch(n *node, g *lease.Grant) {
	if highest := n.holder.Memory().Highest; g.Stamp.Epoch.Compare(highest.Epoch) < 0 {
		g.Stamp.Epoch = highest.Epoch
	}
}

// awaitNobody lets a recovered state wait for no lease that it does not know.
func awaitNobody(s *ledger.State) { s.Began -= time.Hour }

// countOldIncarnations takes what a node names of an earlier incarnation for an
// acknowledgement in this one.
func countOldIncarnations(l *leadership, t *ledger.Tick) {
	s := l.s.state
	for _, n := range s.NodesByName() {
		v, ok := l.table.View(n.Name, l.s.now())
		r := v.Report
		if !ok || !r.EffectiveKnown || r.Process != n.Process || r.Highest.Seq == 0 || r.Highest.Epoch.Incarnation >= s.Epoch.Incarnation {
			continue
		}
		t.Acks = append(t.Acks, ledger.Ack{
			Node: n.Name, Process: r.Process, Number: r.Number, Seq: min(r.Highest.Seq, n.Seq), Effective: r.Effective, Stored: r.Stored,
		})
	}
}

// liftAnyway lifts the brake in force, whichever generation the operator has named.
func liftAnyway(s *ledger.State, c ledger.Command, err error) bool {
	if c.LiftBrake == nil || !errors.Is(err, ledger.ErrConflict) {
		return false
	}
	s.Brake.Lifted = s.Brake.Set
	return true
}

// foldLow folds the oldest of too many pending targets into the next one without
// keeping the higher of the two.
func foldLow(before, after *ledger.State, _ ledger.Command) {
	for name, n := range after.Nodes {
		was := before.Nodes[name].Pending
		if len(was) > 1 && len(n.Pending) == len(was) && n.Pending[0].Seq == was[1].Seq && n.Pending[0].Cap > was[1].Cap {
			n.Pending = slices.Clone(n.Pending)
			n.Pending[0].Cap = was[1].Cap
			after.Nodes[name] = n
		}
	}
}

// keepCeiling lets a node that holds caps again be charged what it was before it held none.
func keepCeiling(before, after *ledger.State, c ledger.Command) {
	if c.Tick == nil {
		return
	}
	for _, x := range c.Tick.Seen {
		was, known := before.Nodes[x.Node]
		if n := after.Nodes[x.Node]; known && !was.Controlled && n.Controlled {
			n.Ceiling = max(was.Ceiling, n.Target)
			after.Nodes[x.Node] = n
		}
	}
}

// forgiveDebt lets every sprint budget of a recovered state start at 0 J.
func forgiveDebt(s *ledger.State) {
	for name, d := range s.Domains {
		if d.Sprint == nil {
			continue
		}
		b := *d.Sprint
		b.Balances = map[string]units.Energy{}
		for pot := range d.Sprint.Balances {
			b.Balances[pot] = 0
		}
		d.Sprint = &b
		s.Domains[name] = d
	}
}

// believeTold settles the share of a node that is gone by what it has told.
func believeTold(before, after *ledger.State, _ ledger.Command) {
	for id, p := range after.Sprints {
		was := before.Sprints[id]
		for node, x := range p.Shares {
			old := was.Shares[node]
			if old.Settled || !x.Settled || x.Spent != nil || old.Spent == nil {
				continue
			}
			told := *old.Spent
			unpaid := max(x.Escrow, x.Charged) - told
			x.Spent, x.Charged = &told, 0
			p.Shares[node] = x
			if d := after.Domains[p.Domain]; p.Closed && !was.Closed && d.Sprint != nil && len(d.Sprint.Shares) == 0 {
				gain(after, p.Domain, unpaid)
			}
		}
	}
}

// sprintAnyway grants a sprint while another of the domain is still ending.
func sprintAnyway(s *ledger.State, c ledger.Command, err error) bool {
	if c.Sprint == nil || !errors.Is(err, ledger.ErrSprint) {
		return false
	}
	hidden := map[string]ledger.Sprint{}
	for id, p := range s.Sprints {
		if p.Domain == c.Sprint.Domain && p.Open() && p.Ended != "" {
			hidden[id] = p
			p.Ended = ""
			s.Sprints[id] = p
		}
	}
	_, again := s.Apply(c)
	maps.Copy(s.Sprints, hidden)
	return again == nil
}

// countOldHeartbeats takes a heartbeat that is older than the newest heard for a read-back.
func countOldHeartbeats(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		v, ok := l.table.View(n.Name, l.s.now())
		r := v.Report
		if !ok || !r.EffectiveKnown || r.Process != n.Process || r.Number >= n.Heard || r.Highest.Epoch.Incarnation != l.epoch.Incarnation {
			continue
		}
		t.Acks = append(t.Acks, ledger.Ack{
			Node: n.Name, Process: r.Process, Number: n.Heard, Seq: min(r.Highest.Seq, n.Seq), Effective: r.Effective, Stored: r.Stored,
		})
	}
}

// forgetRequests lets a new leader begin without the keys of what was carried out.
func forgetRequests(_, after *ledger.State, c ledger.Command) {
	if c.Lead != nil {
		after.Requests = nil
	}
}

// lapseByNews counts a node as lost since the last report that brought the log any news,
// whatever it was granted since. (Since a lease counts from the sending of its heartbeat,
// counting from the last report that was heard at all would do no harm.)
func lapseByNews(l *leadership, t *ledger.Tick) {
	if l.news == nil {
		l.news = map[string]time.Duration{}
	}
	for _, a := range t.Acks {
		l.news[a.Node] = l.s.now()
	}
	for _, n := range l.s.state.NodesByName() {
		since, told := l.news[n.Name]
		if !told {
			l.news[n.Name] = l.s.now()
			continue
		}
		x := ledger.Lapse{Node: n.Name, Seq: n.Seq}
		_, refused := l.s.state.Clone().Apply(ledger.Command{Epoch: l.epoch, Tick: &ledger.Tick{Lapsed: []ledger.Lapse{x}}})
		if l.s.now()-since > l.s.w.timing.Fallen() && refused == nil {
			t.Lapsed = append(t.Lapsed, x)
		}
	}
}

// waitOwnLength takes the length of leases in the leader's own configuration for the
// longest that may be out.
func waitOwnLength(l *leadership, t *ledger.Tick) {
	own := l.s.state.Clone()
	own.Leases = ledger.Leases{}
	t.Lapsed = ledger.Decide(own, l.table, l.s.now()).Lapsed
}

// reportFailed reports a write that failed, and cannot be read back, as held.
func reportFailed(n *node, r *ledger.Report) {
	if n.deaf() && n.spec.Controlled {
		r.Effective, r.EffectiveKnown = n.hw.want, true
	}
}
