package simulation

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// compareGap is how many entries lie between two comparisons of whole replicas.
const compareGap = 16

// judge watches a schedule from outside. It knows what no process knows: true
// time, what hardware holds, and the log as it is committed.
type judge struct {
	w *world

	log   []entry       // committed, log[0] a sentinel
	state *ledger.State // after log[len(log)-1]
	snaps map[int][]byte

	charge []units.Power // by node, as committed
	known  []bool        // by node: the log has it
	room   []units.Power // by domain: budget less unmanaged watts
	taken  []units.Power // by domain: sum of the charges

	caps    map[capKey]units.Power // every committed target
	arrived map[arrival]uint64     // when a leadership heard a heartbeat
	stamps  []lease.Stamp          // by node: the newest taken, whatever it remembers

	found []Violation
	once  map[string]bool
}

type capKey struct {
	node string
	seq  uint64
}

type arrival struct {
	by     *leadership
	node   string
	pid    uint64
	number uint64
}

func newJudge(w *world) *judge {
	j := &judge{
		w: w, log: make([]entry, 1), state: ledger.New(), snaps: map[int][]byte{},
		caps: map[capKey]units.Power{}, arrived: map[arrival]uint64{}, once: map[string]bool{},
	}
	j.charge, j.known = make([]units.Power, len(w.nodes)), make([]bool, len(w.nodes))
	j.room, j.taken = make([]units.Power, len(w.domains)), make([]units.Power, len(w.domains))
	j.stamps = make([]lease.Stamp, len(w.nodes))
	return j
}

// broken records a violation; of each promise the first of a schedule.
func (j *judge) broken(promise, format string, args ...any) {
	if j.once[promise] {
		return
	}
	j.once[promise] = true
	what := fmt.Sprintf(format, args...)
	j.found = append(j.found, Violation{Promise: promise, Seed: j.w.seed, At: seconds(j.w.now), What: what})
	j.w.tracef("VIOLATION of %s: %s", promise, what)
}

// committed takes in an entry that some server is about to apply. The first to
// get there decides what the log has; all others must have the same.
func (j *judge) committed(at int, e entry) {
	switch {
	case at < len(j.log):
		if j.log[at].term != e.term || !bytes.Equal(j.log[at].data, e.data) {
			j.broken("consensus", "entry %d differs between servers", at)
		}
		return
	case at > len(j.log):
		j.broken("consensus", "entry %d applied before %d", at, len(j.log))
		return
	}
	j.log = append(j.log, e)
	c, err := ledger.Decode(e.data)
	if err != nil {
		j.broken("ledger", "entry %d does not decode: %v", at, err)
		return
	}
	before := j.state.Clone()
	if _, err = j.state.Apply(c); err != nil {
		j.w.hit("entry_refused")
		j.w.tracef("entry %d refused: %v", at, err)
	} else {
		j.weigh(c, before)
	}
	j.recount()
	if at%compareGap == 0 {
		j.snaps[at] = j.snapshot(j.state)
	}
}

func (j *judge) snapshot(s *ledger.State) []byte {
	data, err := s.Snapshot()
	if err != nil {
		j.broken("ledger", "no snapshot: %v", err)
	}
	return data
}

// applied compares a replica with the others at the same place.
func (j *judge) applied(s *server, at int) {
	if want, ok := j.snaps[at]; ok && !bytes.Equal(want, j.snapshot(s.state)) {
		j.broken("ledger", "the replica of %s differs after entry %d", s.name, at)
	}
}

// truncates learns that a server overwrites its log from a place on.
func (j *judge) truncates(s *server, at int) {
	if at <= s.commit {
		j.broken("consensus", "%s overwrites committed entry %d", s.name, at)
	}
}

// recount takes over what the log has in force now.
func (j *judge) recount() {
	totals := j.state.Totals()
	for i, n := range j.w.nodes {
		var committed ledger.Node
		if committed, j.known[i] = j.state.Nodes[n.spec.Node]; !j.known[i] {
			continue
		}
		j.charge[i] = charged(committed)
		if committed.Charge() != j.charge[i] {
			j.broken("P4", "%s is charged %v, by the rule it is %v", n.name, committed.Charge(), j.charge[i])
		}
		j.caps[capKey{n.spec.Node, committed.Seq}] = committed.Target
	}
	clear(j.taken)
	for i, d := range j.w.domains {
		t := totals[d.Name]
		j.room[i] = t.Budget - t.Unmanaged
		for k, n := range j.w.nodes {
			if j.known[k] && n.below[i] {
				j.taken[i] += j.charge[k]
			}
		}
		if j.taken[i] != t.Reserved {
			j.broken("P4", "%s reserves %v, its nodes are charged %v", d.Name, t.Reserved, j.taken[i])
		}
	}
}

// charged is the rule of promise P4, written a second time.
func charged(n ledger.Node) units.Power {
	if !n.Controlled || n.Released {
		return max(n.Rated, n.Excess)
	}
	top := n.Ceiling
	for _, p := range n.Pending {
		top = max(top, p.Cap)
	}
	return max(top, n.Target, n.FailSafe, n.Stored, n.Floor, n.Excess)
}

// weigh judges what a committed entry did to the charges (P1, P4): they grow
// by evidence, or by grants that fit; they fall by read-backs and declarations.
func (j *judge) weigh(c ledger.Command, before *ledger.State) {
	told := evidence(c.Tick, before)
	totals := j.state.Totals()
	for _, n := range j.state.NodesByName() {
		old, known := before.Nodes[n.Name]
		was, now := old.Charge(), n.Charge()
		if !known {
			was = 0
		}
		tells, heard := told[n.Name]
		if now < was && !heard {
			j.broken("P4", "the charge of %s falls from %v to %v without evidence", n.Name, was, now)
		}
		grown := now > max(was, tells)
		raised := known && old.Admitted && n.Target > old.Target || known && !old.Admitted && n.Admitted
		if over := j.overAbove(totals, n.Domain); over != "" && (grown || raised) {
			j.broken("P1", "%s is raised (charge %v to %v, target %v to %v) while %s is %v over",
				n.Name, was, now, old.Target, n.Target, over, -totals[over].Headroom())
		}
	}
	for name := range before.Nodes {
		if _, ok := j.state.Nodes[name]; !ok {
			j.broken("P4", "%s is charged no more", name)
		}
	}
	if c.Budget != nil {
		j.markBudget(c.Budget, before)
	}
}

func (j *judge) markBudget(b *ledger.SetBudget, before *ledger.State) {
	switch was := before.Domains[b.Domain].Budget; {
	case b.Budget > was:
		j.w.hit("budget_raised")
	case b.Budget < before.Totals()[b.Domain].Floor:
		j.w.hit("budget_forced")
	default:
		j.w.hit("budget_cut")
	}
	j.w.tracef("budget of %s is %v", b.Domain, b.Budget)
}

// overAbove names a domain at or above the given one that is over its budget.
func (j *judge) overAbove(totals map[string]ledger.Totals, domain string) string {
	for _, d := range j.state.Tree().Above(domain) {
		if totals[d].Headroom() < 0 {
			return d
		}
	}
	return ""
}

// evidence is, for each node that the entry brings news of, the most that it
// can be charged because of the news alone.
func evidence(t *ledger.Tick, before *ledger.State) map[string]units.Power {
	told := map[string]units.Power{}
	if t == nil {
		return told
	}
	for _, x := range t.Seen {
		old, known := before.Nodes[x.Node]
		most := max(old.Charge(), x.FailSafe, x.Floor)
		if !known || !x.Controlled || !old.Controlled || old.Released {
			most = max(most, x.Rated)
		}
		told[x.Node] = most
	}
	for _, a := range t.Acks {
		told[a.Node] = max(told[a.Node], a.Effective, a.Stored)
	}
	return told
}

// look judges what the nodes hold now (P1, P4) and for how long (P2). It runs
// after every event.
func (j *judge) look() {
	for i, n := range j.w.nodes {
		if !j.known[i] {
			continue
		}
		if n.held > j.charge[i] && !n.booting {
			j.broken("P4", "%s holds %v and is charged %v", n.name, n.held, j.charge[i])
		}
		j.overstays(n, stepEvery)
	}
	for i, d := range j.w.domains {
		held := units.Power(0)
		for k, n := range j.w.nodes {
			if j.known[k] && n.below[i] {
				held += j.counts(n, k)
			}
		}
		if held > max(j.room[i], j.taken[i]) {
			j.broken("P1", "the nodes of %s hold %v of %v, charged %v", d.Name, held, j.room[i], j.taken[i])
		}
	}
}

// counts is what a node counts for: what it holds, but its charge from a reboot
// until its first limit has been verified.
func (j *judge) counts(n *node, k int) units.Power {
	if n.booting {
		return min(n.held, j.charge[k])
	}
	return n.held
}

// overstays judges whether a running node still holds a lease that must have
// ended, on the slowest clock the design allows (P2). slack is its own loop.
func (j *judge) overstays(n *node, slack time.Duration) {
	if !n.up || n.paused || n.holder == nil {
		return
	}
	if _, state := n.holder.Cap(); state != lease.Held {
		return
	}
	most := time.Duration(float64(j.w.timing.Lease+slack)/(1-ledger.Rho)) + time.Microsecond
	if age := j.w.now - n.leased; age > most && (slack == 0 || j.w.now-n.resumed > slack) {
		p, _ := n.holder.Cap()
		j.broken("P2", "%s holds %v %.3f s after the heartbeat that its lease answers was sent, at most %.3f s are allowed",
			n.name, p, age.Seconds(), most.Seconds())
	}
}

// lease judges the holder right after it was told the time.
func (j *judge) lease(n *node) { j.overstays(n, 0) }

// took judges a grant that a node has taken, where before was the newest it knew.
func (j *judge) took(n *node, g lease.Grant, before lease.Stamp) {
	i := n.address - len(j.w.servers)
	if g.Stamp.Compare(j.stamps[i]) < 0 || g.Stamp.Compare(before) < 0 {
		j.broken("P3", "%s took %v after %v", n.name, g.Stamp, j.stamps[i])
	}
	sent, ok := n.sent[g.Heartbeat]
	if !ok || g.Process != n.pid {
		j.broken("P2", "%s took a lease that answers no heartbeat of its process", n.name)
	}
	if g.Stamp == j.stamps[i] {
		sent = max(sent, n.leased)
	}
	n.leased, j.stamps[i] = sent, g.Stamp
}

// heard notes the first arrival of a heartbeat at a leadership.
func (j *judge) heard(l *leadership, r ledger.Report) {
	key := arrival{l, r.Node, r.Process, r.Number}
	if _, again := j.arrived[key]; !again {
		j.arrived[key] = j.w.happening()
	}
}

// granted judges a lease as it is issued (P3).
func (j *judge) granted(l *leadership, g ledger.NodeGrant) {
	at, heard := j.arrived[arrival{l, g.Node, g.Grant.Process, g.Grant.Heartbeat}]
	switch {
	case !heard:
		j.broken("P3", "%s answers heartbeat %d of %s, which it never heard", l.s.name, g.Grant.Heartbeat, g.Node)
	case at > l.appended:
		j.broken("P3", "%s answers heartbeat %d of %s before an entry appended after its arrival has committed",
			l.s.name, g.Grant.Heartbeat, g.Node)
	case g.Grant.Stamp.Epoch != l.epoch:
		j.broken("P3", "%s grants in %v, it leads %v", l.s.name, g.Grant.Stamp, l.epoch)
	}
	if committed, ok := j.caps[capKey{g.Node, g.Grant.Stamp.Seq}]; !ok || committed != g.Grant.Cap {
		j.broken("P3", "%s grants %s %v as %v, committed is %v", l.s.name, g.Node, g.Grant.Cap, g.Grant.Stamp, committed)
	}
}

// answered judges what Apply said to a leader's entry: a tick or a plan made on
// the very state it was applied to is never refused.
func (j *judge) answered(l *leadership, p *proposal, err error) {
	if err == nil {
		return
	}
	if _, floor := errors.AsType[*ledger.FloorError](err); floor && p.order != nil && !p.order.force {
		j.w.hit("budget_refused")
		return
	}
	if p.command.Release != nil && (errors.Is(err, ledger.ErrOverBudget) || errors.Is(err, ledger.ErrUnknownNode)) {
		j.w.hit("release_refused")
		return
	}
	if p.order != nil && p.order.check && errors.Is(err, ledger.ErrConflict) {
		return
	}
	j.broken("ledger", "entry %d of %s is refused: %v", p.at, l.s.name, err)
}

// settled judges the cluster at the end of a calm: everybody who runs is under
// a lease again, and no domain is over that could be brought under (P5).
func (j *judge) settled() {
	totals := j.state.Totals()
	for _, n := range j.w.nodes {
		c, known := j.state.Nodes[n.spec.Node]
		if !known {
			j.broken("recovery", "%s was never seen", n.name)
			continue
		}
		over := j.overAbove(totals, c.Domain)
		if _, state := n.holder.Cap(); state != lease.Held && c.Controlled && !c.Released && (c.Admitted || over == "") {
			j.broken("recovery", "%s has no lease at the end of the calm: %v", n.name, n.holder.Why())
		}
		if over != "" && c.Charge() > max(c.Least(), c.Stored) && c.Grantable() {
			j.broken("P5", "%s is %v over at the end of the calm, and %s is charged %v, its least is %v",
				over, -totals[over].Headroom(), n.name, c.Charge(), c.Least())
		}
	}
	for _, s := range j.w.servers {
		if s.applied == len(j.log)-1 && !bytes.Equal(j.snapshot(s.state), j.snapshot(j.state)) {
			j.broken("ledger", "the replica of %s differs at the end", s.name)
		}
	}
}

func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }
