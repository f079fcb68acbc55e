package lease

import (
	"time"

	"headroom/capping"
	"headroom/units"
)

// missesMost is after how many unanswered heartbeats a node asks every coordinator.
const missesMost = 2

// Node is a node's whole exchange with its coordinators, as a state machine without
// clock or I/O: it numbers heartbeats, judges grants, has what must survive a restart
// made durable before it counts, and decides the cap in force from the lease, a sprint
// above it and a local limit below it.
//
// Inputs are methods that take the node's clocks; each returns Outputs, which the caller
// carries out in their order. It is driven by powerd and by the simulation alike. It
// belongs to one goroutine.
//
// Invariant: at most one Store is under way; a grant is taken only after its memory is on
// disk; of the grants that come meanwhile only the newest waits, and what each of them
// takes away is in force at once (docs/adr/0014).
type Node struct {
	holder *Holder

	beats    uint64 // heartbeats sent
	answered uint64 // number of the newest answered
	leaving  bool   // a release is being asked for
	held     bool   // a lease was taken by this process

	onDisk  Memory
	storing Memory // what the Store under way makes durable
	busy    bool
	grant   *Grant // whose memory that is; nil for a brake's alone
	next    *Grant // the newest grant that waits for its turn

	sprint  capping.Sprint
	seen    Stamp // newest that the sprint machine has seen
	local   local
	inForce units.Power // cap decided last; 0: none yet
	applied Stamp       // newest that hardware holds as read back
	strayed units.Power // most that the node could draw above the cap in force since the last heartbeat
	unread  bool        // that was not known at some time since the last heartbeat
	bind    capping.Bind
	lifted  uint64 // brake generation that the newest leadership has said is lifted
}

// local is a cap that an operator set on this node, below its lease.
type local struct {
	cap   units.Power
	until time.Duration // on CLOCK_BOOTTIME
}

// Output is something for the caller to carry out: Act, Store, Beat, Took, Refused or Lost.
type Output interface{ output() }

// Act asks for one turn of the node's loop now: decide the cap in force (Turn), write it,
// read it back (Wrote).
type Act struct{}

// Store asks for Memory to be made durable; Stored answers it.
type Store struct{ Memory Memory }

// Beat asks for a heartbeat now, ahead of its second.
type Beat struct{}

// Took says that a grant is the node's lease now.
type Took struct {
	Grant Grant
	// Before is the newest stamp taken before it.
	Before Stamp
	// Began says that the node had no lease before.
	Began bool
	// End of the lease on CLOCK_BOOTTIME.
	End time.Duration
}

// Refused says why a grant is not taken.
type Refused struct {
	Grant Grant
	Err   error
}

// Lost says that the lease is over; the cap is the fail-safe cap.
type Lost struct{ Why Ended }

func (Act) output()     {}
func (Store) output()   {}
func (Beat) output()    {}
func (Took) output()    {}
func (Refused) output() {}
func (Lost) output()    {}

// NewNode is the exchange of a process with the given random id, with what the node
// remembered durably from earlier processes. It starts at the fail-safe cap.
func NewNode(process uint64, m Memory, now Instant) *Node {
	return &Node{holder: New(process, m, now), onDisk: m, seen: m.Highest}
}

// Advance tells the time. A lease that has run out, or that a suspend has overtaken, ends.
func (n *Node) Advance(now Instant) []Output {
	_, before := n.holder.Cap()
	n.holder.Advance(now)
	if _, state := n.holder.Cap(); state != before {
		return []Output{Lost{n.holder.Why()}}
	}
	return nil
}

// Grant takes in a lease. One that changes what has to survive a restart is taken only
// once that is durable; what it takes away holds at once. While a release is asked for
// none is taken: a lease would prove to the leader that the node is back.
func (n *Node) Grant(g Grant, now Instant) []Output {
	n.Told(g)
	if n.leaving {
		return nil
	}
	return append(n.Advance(now), n.consider(g, now)...)
}

func (n *Node) consider(g Grant, now Instant) []Output {
	m, err := n.holder.Consider(g, now)
	switch {
	case err != nil:
		return []Output{Refused{g, err}}
	case n.busy && n.overtaken(g):
		return nil
	case n.busy:
		n.next = &g
		return n.lower(g, now)
	case m == n.holder.Memory():
		return n.take(g, now)
	}
	out := n.lower(g, now)
	return append(out, n.store(&g, m))
}

// overtaken reports whether a newer grant than g is being stored or waits.
func (n *Node) overtaken(g Grant) bool {
	for _, w := range []*Grant{n.grant, n.next} {
		if w != nil && g.Stamp.Compare(w.Stamp) < 0 {
			return true
		}
	}
	return false
}

// lower puts in force what a grant takes away, before its memory is durable. It is
// acknowledged only once it has been taken whole.
func (n *Node) lower(g Grant, now Instant) []Output {
	if n.holder.Lower(g, now) != nil {
		return nil
	}
	return []Output{Act{}}
}

// take makes a grant the lease; its memory is on disk.
func (n *Node) take(g Grant, now Instant) []Output {
	capBefore, stateBefore := n.holder.Cap()
	before := n.holder.Memory().Highest
	if err := n.holder.Take(g, now); err != nil {
		return []Output{Refused{g, err}}
	}
	n.held = true
	left, _ := n.holder.Remaining(now)
	out := []Output{Took{Grant: g, Before: before, Began: stateBefore != Held, End: now.Boot + left}}
	if granted, _ := n.holder.Cap(); granted == capBefore && n.applied == n.holder.Memory().Highest {
		return out
	}
	return append(out, Act{})
}

func (n *Node) store(g *Grant, m Memory) Output {
	n.busy, n.grant, n.storing = true, g, m
	return Store{m}
}

// Stored takes what came of the Store under way. After a failure nothing is taken, and a
// brake is stored again with the next heartbeat.
func (n *Node) Stored(err error, now Instant) []Output {
	g, next := n.grant, n.next
	n.busy, n.grant, n.next = false, nil, nil
	out := n.Advance(now)
	if err == nil {
		n.onDisk = n.storing
		if g != nil {
			out = append(out, n.take(*g, now)...)
		}
		out = append(out, n.storeBrake()...)
	}
	if next != nil && !n.leaving {
		out = append(out, n.consider(*next, now)...)
	}
	return out
}

// Settled is Stored where no grant is to be taken any more: the node is being released, or stops.
func (n *Node) Settled(err error) {
	if n.busy && err == nil {
		n.onDisk = n.storing
	}
	n.busy, n.grant, n.next = false, nil, nil
}

// storeBrake has a brake's generation stored that is not on disk yet. What is stored
// beside it is what is on disk: a grant's memory comes with its grant.
func (n *Node) storeBrake() []Output {
	if m := n.holder.Memory(); m.Brake > n.onDisk.Brake && !n.busy {
		return []Output{n.store(nil, m)}
	}
	return nil
}

// Brake takes in a brake: the lease ends and the fail-safe cap is in force before
// anything else happens, the disk included.
func (n *Node) Brake(generation uint64, now Instant) []Output {
	out := n.Advance(now)
	_, before := n.holder.Cap()
	n.holder.Brake(generation)
	if _, after := n.holder.Cap(); after != before {
		out = append(out, Lost{n.holder.Why()}, Act{})
	}
	return append(append(out, n.storeBrake()...), Beat{})
}

// TurnInput is what the cap in force depends on beside the lease.
type TurnInput struct {
	// Wall is the mean power over Elapsed, Effective the cap that hardware holds as read back.
	Wall, Effective capping.Reading
	Elapsed         time.Duration
	// Fresh is the time that Wall is a new mean over, 0 for a reading of an earlier turn, and
	// Late how old it may be (see capping.BindLook).
	Fresh, Late time.Duration
	// Hot, Stop: as in capping.SprintInput.
	Hot, Stop bool
	// Rated is the most that the node draws.
	Rated units.Power
}

// Turn decides the cap in force: the lease's or the fail-safe cap, a sprint above it, a
// local limit and what waiting grants take away below it.
func (n *Node) Turn(now Instant, in TurnInput) units.Power {
	base, state := n.holder.Cap()
	highest := n.holder.Memory().Highest
	offer, _ := n.holder.Sprint()
	own := n.Local(now.Boot)
	want := n.sprint.Step(now.Boot, capping.SprintInput{
		Base: base, Held: state == Held, Newer: highest != n.seen,
		Offer: capping.SprintOffer{ID: offer.ID, Cap: offer.Cap, Duration: offer.Duration, Escrow: offer.Escrow},
		Wall:  in.Wall, Elapsed: in.Elapsed, Effective: in.Effective,
		Hot: in.Hot, Stop: in.Stop || own > 0 && own < offer.Cap,
	}, capping.SprintConfig{Rated: in.Rated})
	n.seen = highest
	if own > 0 {
		want = min(want, own)
	}
	if most, ok := n.holder.Most(n.Sprinting(now.Boot)); ok {
		want = min(want, most)
	}
	n.inForce = want
	may := max(want, in.Effective.Power) // a limit that reads back higher is reported as it is
	if !in.Effective.Known {
		may = max(want, in.Rated)
	}
	n.bind.Observe(now.Boot, capping.BindLook{Cap: may, Drawn: in.Wall, Elapsed: in.Fresh, Late: in.Late})
	return want
}

// Unbound returns what the node draws although its limits read back well, as far as that is
// above the cap in force; 0 while they bind.
func (n *Node) Unbound() units.Power {
	if p := n.bind.Draws(); p > n.inForce {
		return p
	}
	return 0
}

// WriteResult is what came of writing the cap in force.
type WriteResult struct {
	// Excess is how much more than the cap in force the node may draw, by what reads back;
	// Known is false where that cannot be told.
	Excess units.Power
	Known  bool
	// Whole says that all of the cap is in hardware and read back.
	Whole bool
	// Failed says that hardware did not take it.
	Failed bool
}

// Strayed takes in that the node could draw more than the cap in force for a while, known
// or not by how much.
func (n *Node) Strayed(excess units.Power, known bool) {
	n.strayed, n.unread = max(n.strayed, excess), n.unread || !known
}

// Wrote takes what reads back after a write. What hardware holds whole is acknowledged.
func (n *Node) Wrote(r WriteResult) []Output {
	n.unread = n.unread || !r.Known
	if r.Failed {
		n.strayed = max(n.strayed, r.Excess)
		return nil
	}
	if _, state := n.holder.Cap(); !r.Whole || state != Held || n.applied == n.holder.Memory().Highest {
		return nil
	}
	n.applied = n.holder.Memory().Highest
	return []Output{Beat{}}
}

// Heartbeat is what a node reports each second: the newest stamp that it has stored, and
// what its hardware holds.
type Heartbeat struct {
	// Number within the process.
	Number uint64
	// Process that sends it.
	Process uint64
	// Highest is the newest stamp taken, Applied the newest that hardware holds.
	Highest, Applied Stamp
	// State and Cap are the lease's, without a sprint or a local limit.
	State State
	Cap   units.Power
	// Stored is the fail-safe cap that the node has stored.
	Stored units.Power
	// Brake is the highest generation that the node has seen.
	Brake uint64
	// Effective is the most that the node may draw by what reads back, or what it draws where
	// its limits do not bind; unknown where EffectiveKnown is false.
	Effective      units.Power
	EffectiveKnown bool
	// Sprint is the id of the one under way or ending; Ended are those that are over.
	Sprint string
	Ended  []capping.SprintEnd
	// All says that it goes to every coordinator: the last ones were not answered.
	All bool
}

// NextBeat numbers one heartbeat. Call it before the bytes leave: a lease counts from now.
// excess is as in WriteResult, of this moment. A brake that could not be stored is
// stored again.
func (n *Node) NextBeat(now Instant, excess units.Power, known bool) (Heartbeat, []Output) {
	out := n.Advance(now)
	all := n.beats-n.answered >= missesMost
	n.beats++
	n.holder.Sent(n.beats, now)
	hb := n.Report(now, excess, known)
	hb.All = all
	n.strayed, n.unread = 0, false
	return hb, append(out, n.storeBrake()...)
}

// Report is what the newest heartbeat would say now.
func (n *Node) Report(now Instant, excess units.Power, known bool) Heartbeat {
	m := n.holder.Memory()
	cap, state := n.holder.Cap()
	hb := Heartbeat{
		Number: n.beats, Process: n.holder.process, Highest: m.Highest, Applied: n.applied, State: state, Cap: cap, Stored: m.FailSafe,
		Brake: m.Brake,
	}
	// A local limit is no reason to be charged less: it ends by itself.
	hb.Effective, hb.EffectiveKnown = max(cap, n.inForce)+max(excess, n.strayed), known && !n.unread
	hb.Effective = max(hb.Effective, n.bind.Draws()) // what is measured counts, whatever reads back
	if s, under := n.sprint.Status(now.Boot); under {
		hb.Sprint = s.ID
	}
	hb.Ended = append(hb.Ended, n.sprint.Ended()...)
	return hb
}

// Told takes in what a lease reports whether it is taken or not: which heartbeat it answers,
// and which brake is lifted, unless its leadership is older than that of the lease last taken.
func (n *Node) Told(g Grant) {
	n.heard(g.Heartbeat)
	if g.Stamp.Epoch.Compare(n.holder.Memory().Highest.Epoch) >= 0 {
		n.lifted = g.BrakeLifted
	}
}

// heard takes in that a heartbeat was answered, with a lease or with why there is none.
func (n *Node) heard(heartbeat uint64) { n.answered = max(n.answered, min(heartbeat, n.beats)) }

// Leave begins to ask for a release: until Stay or Release no grant is taken.
func (n *Node) Leave() { n.leaving = true }

// Stay ends asking for a release that was refused.
func (n *Node) Stay() { n.leaving = false }

// Release carries out a committed release: the node holds no cap from here on.
func (n *Node) Release() {
	n.holder.Drop()
	n.sprint, n.local, n.inForce, n.leaving, n.bind = capping.Sprint{}, local{}, 0, false, capping.Bind{}
	n.grant, n.next = nil, nil
}

// Drop gives the lease up, e.g. at a stop.
func (n *Node) Drop() { n.holder.Drop() }

// SetFailSafe changes the fail-safe cap from the node's own side, where it is the
// caller's to make Memory durable.
func (n *Node) SetFailSafe(p units.Power) Memory {
	n.onDisk = n.holder.SetFailSafe(p)
	return n.onDisk
}

// SetLocal caps the node below its lease until a moment on CLOCK_BOOTTIME; 0 W ends that.
func (n *Node) SetLocal(p units.Power, until time.Duration) { n.local = local{p, until} }

// Local is the cap that an operator has set on the node, 0 for none.
func (n *Node) Local(boot time.Duration) units.Power {
	if boot >= n.local.until {
		return 0
	}
	return n.local.cap
}

// LocalUntil is when the local cap ends on CLOCK_BOOTTIME; 0 where none was set.
func (n *Node) LocalUntil() time.Duration { return n.local.until }

// Sprinting is the id of the sprint under way, "" for none or for one that is ending.
func (n *Node) Sprinting(boot time.Duration) string {
	if s, under := n.sprint.Status(boot); under && !s.Ending {
		return s.ID
	}
	return ""
}

// SprintStatus is the sprint under way or ending, and false without one.
func (n *Node) SprintStatus(boot time.Duration) (capping.SprintStatus, bool) {
	return n.sprint.Status(boot)
}

// Offer is the sprint beside the cap in force, and false without one.
func (n *Node) Offer() (Sprint, bool) { return n.holder.Sprint() }

// Cap is what the node may draw by its lease or without one, and by which right.
func (n *Node) Cap() (units.Power, State) { return n.holder.Cap() }

// Remaining is how long the lease still runs, and false without a lease.
func (n *Node) Remaining(now Instant) (time.Duration, bool) { return n.holder.Remaining(now) }

// Memory is what the node goes by; OnDisk is what of it would survive a restart.
func (n *Node) Memory() Memory { return n.holder.Memory() }

// OnDisk is what would survive a restart now.
func (n *Node) OnDisk() Memory { return n.onDisk }

// Storing reports whether a Store is under way.
func (n *Node) Storing() bool { return n.busy }

// Why is the reason for being at the fail-safe cap; meaningless while a lease is held.
func (n *Node) Why() Ended { return n.holder.Why() }

// EverHeld reports whether this process has taken a lease.
func (n *Node) EverHeld() bool { return n.held }

// Applied is the newest stamp that hardware holds as read back.
func (n *Node) Applied() Stamp { return n.applied }

// Waits takes in that the newest heartbeat was answered without a lease, and which brake generation the log has lifted.
func (n *Node) Waits(lifted uint64) {
	n.heard(n.beats)
	n.lifted = max(n.lifted, lifted)
}

// Beats is the number of the newest heartbeat, AnsweredBeat that of the newest answered.
func (n *Node) Beats() uint64 { return n.beats }

// AnsweredBeat is the number of the newest heartbeat that was answered.
func (n *Node) AnsweredBeat() uint64 { return n.answered }

// Braked reports whether a brake is in force here: no lease has said that the generation
// remembered is lifted.
func (n *Node) Braked() bool { return n.holder.Memory().Brake > n.lifted }

// Leaving reports whether a release is being asked for.
func (n *Node) Leaving() bool { return n.leaving }

// Consider judges a grant without taking it.
func (n *Node) Consider(g Grant, now Instant) error {
	_, err := n.holder.Consider(g, now)
	return err
}
