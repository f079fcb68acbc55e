package ledger

import (
	"fmt"
	"slices"
	"time"

	"headroom/lease"
	"headroom/units"
)

// Timing are the leader's intervals.
type Timing struct {
	// Lease is how long a lease runs from the sending of the heartbeat it answers.
	Lease time.Duration
	// Heartbeat is how often nodes report.
	Heartbeat time.Duration
	// Tick is how often the leader commits an entry.
	Tick time.Duration
	// Lost is how long a node may be silent before plans stop counting on it.
	Lost time.Duration
	// Settle is how much longer than a lease and its drift margin a lost node may
	// take to be at its fail-safe cap: watchdog, restart of powerd, settling.
	Settle time.Duration
}

// DefaultTiming is the timing of the design: lease 10 s, heartbeat 1 s, tick 1 s.
func DefaultTiming() Timing {
	return Timing{Lease: 10 * time.Second, Heartbeat: time.Second, Tick: time.Second, Lost: 3500 * time.Millisecond, Settle: 30 * time.Second}
}

// Rho bounds the rate error of a node's clock against the leader's (promise P2).
const Rho = 0.01

// Margin is how much longer than the lease itself a coordinator must assume it
// to run: the node's clock and the leader's own may each be off by rho.
func (t Timing) Margin() time.Duration {
	return drift(t.Lease)
}

// Fallen is how long a node has been silent at least, on the coordinator's clock,
// when its lease is over and it has settled at its fail-safe cap. Both the lease
// and Settle are counted by two clocks that may err against each other.
func (t Timing) Fallen() time.Duration {
	span := t.Lease + t.Settle
	return span + drift(span)
}

// drift is by how much longer d may take, on a clock that is slow by rho, as seen
// by one that is fast by rho.
func drift(d time.Duration) time.Duration { return time.Duration(2 * Rho / (1 - Rho) * float64(d)) }

// Report is one heartbeat as the leader has heard it.
type Report struct {
	// Sighting is what the node declared when it opened its stream; Process names the process.
	Sighting
	// Boot is the id of the machine's boot; "" when it is not told.
	Boot string
	// Number of the heartbeat within that process.
	Number uint64
	// Highest is the newest stamp that the node has stored.
	Highest lease.Stamp
	// Effective is the cap that its hardware holds as read back; EffectiveKnown is false while unknown.
	Effective      units.Power
	EffectiveKnown bool
	// Stored is the fail-safe cap that it has stored.
	Stored units.Power
	// Sprint is the id of the sprint under way on the node; empty for none. Its end is under way, too.
	Sprint string
	// Ended are sprints that are over on the node.
	Ended []SprintSpent
	// Brake is the highest brake generation that the node has stored.
	Brake uint64
	// Power, Demand: measured use and what it could use; nil while unknown.
	Power, Demand *units.Power
	// Energy is what the node has drawn since its process began, EnergyTime over how much time
	// of known power, EnergyFrom by what that is measured; nil, 0 and "" while unknown.
	Energy     *units.Energy
	EnergyTime time.Duration
	EnergyFrom string
	// Limited is the share of the last minute in which a cap held the node back; nil while unknown.
	Limited *float64
	// Rung of the node's actuation ladder and Version of its powerd, in words.
	Rung, Version string
	// Health items now visible on the node.
	Health []Health
}

// Health is one warning of a node.
type Health struct{ Code, Severity, Text, Hint string }

// entry is what the table keeps of one node.
type entry struct {
	report   Report
	at       time.Duration // when it was heard, leader's monotonic time
	marked   uint64        // newest heartbeat heard before the newest mark
	answered uint64        // newest heartbeat answered with a lease
	granted  time.Duration // when that was, leader's monotonic time
	length   time.Duration // of that lease
	double   time.Duration // when another boot of the same identity was last heard beside this one
}

// Table is what a leader has heard since it leads. It is not replicated: a new
// leader starts with an empty one. It belongs to one goroutine.
type Table struct {
	timing Timing
	began  time.Duration
	nodes  map[string]*entry
	names  []string        // of nodes, sorted
	sorted []*entry        // as names
	rolls  []present       // room for a roll, see blank
	behind map[string]bool // nodes with jobs behind schedule
	holds  map[string]Hold // nodes whose jobs leave watts to others
}

// Hold bounds what plans give a node, until a moment of the leader's monotonic time: jobs elsewhere need the watts more.
// It only lowers, and ends by itself, so it is not in the log: the targets that follow from it are.
type Hold struct {
	Most  units.Power
	Until time.Duration
}

// Behind sets which nodes run jobs that are behind schedule.
func (t *Table) Behind(nodes map[string]bool) { t.behind = nodes }

// Holds sets which nodes are held; those that were and are not named are free at once.
func (t *Table) Holds(nodes map[string]Hold) { t.holds = nodes }

// Held returns what a hold leaves a node; false without one.
func (t *Table) Held(node string, now time.Duration) (units.Power, bool) {
	h, held := t.holds[node]
	return h.Most, held && now < h.Until
}

// Brake is the highest brake generation that a heard node has stored.
func (t *Table) Brake() uint64 {
	top := uint64(0)
	for _, e := range t.sorted {
		top = max(top, e.report.Brake)
	}
	return top
}

// Incarnation is the newest incarnation that a heard node has been granted in.
func (t *Table) Incarnation() uint64 {
	top := uint64(0)
	for _, e := range t.sorted {
		top = max(top, e.report.Highest.Epoch.Incarnation)
	}
	return top
}

// Epoch is the newest leadership that a heard node has been granted in.
func (t *Table) Epoch() lease.Epoch {
	var top lease.Epoch
	for _, e := range t.sorted {
		if e.report.Highest.Epoch.Compare(top) > 0 {
			top = e.report.Highest.Epoch
		}
	}
	return top
}

// NewTable is an empty table for a leadership that began at the leader's monotonic time now.
func NewTable(t Timing, now time.Duration) *Table {
	return &Table{timing: t, began: now, nodes: map[string]*entry{}}
}

// Heard takes in a heartbeat. An older one of the same process than already heard is ignored.
func (t *Table) Heard(r Report, now time.Duration) {
	e, ok := t.nodes[r.Node]
	if !ok && len(t.nodes) >= 2*MaxNodes {
		return // nobody names so many nodes: more of them would only take memory
	}
	if !ok {
		e = &entry{}
		t.nodes[r.Node] = e
		at, _ := slices.BinarySearch(t.names, r.Node)
		t.names, t.sorted = slices.Insert(t.names, at, r.Node), slices.Insert(t.sorted, at, e)
	}
	if ok && e.report.Process == r.Process && r.Number <= e.report.Number {
		return
	}
	if ok && t.doubled(e, r, now) {
		e.double = now
		return
	}
	if e.report.Process != r.Process {
		e.marked, e.answered = 0, 0
	}
	e.report, e.at = r, now
}

// doubled reports whether a heartbeat comes from a second machine with the identity
// of one that is alive: no machine boots within the time that a node may be silent.
// The first one keeps its lease, the second gets none, and an alarm says so.
func (t *Table) doubled(e *entry, r Report, now time.Duration) bool {
	return e.report.Boot != "" && r.Boot != "" && e.report.Boot != r.Boot && now-e.at <= t.timing.Lost
}

// conflictLife is how long a second machine of one identity is remembered.
const conflictLife = time.Minute

// Conflicts are the nodes of which two machines were heard at once, each with what
// is known, in words.
func (t *Table) Conflicts(now time.Duration) map[string]string {
	out := map[string]string{}
	for name, e := range t.nodes {
		if e.double > 0 && now-e.double <= conflictLife {
			out[name] = fmt.Sprintf("two machines report as %s (machine id %s): the first one keeps the lease", name, e.report.MachineID)
		}
	}
	return out
}

// Mark is called right before an entry is handed to the log: the heartbeats
// heard so far may be answered once that entry has committed (promise P3).
func (t *Table) Mark() {
	for _, e := range t.sorted {
		e.marked = e.report.Number
	}
}

// Grants are the leases that answer the marked heartbeats, from the state as
// committed now. Call it only after the entry that followed Mark has committed
// and been applied. Nodes are in order of name.
func (t *Table) Grants(s *State, now time.Duration) []NodeGrant {
	if t.Brake() > s.Brake.Set {
		return nil // the log has to know of a brake before anybody is granted anything
	}
	grants, length := make([]NodeGrant, 0, len(t.sorted)), s.granting(t.timing).Lease
	for _, e := range t.sorted {
		n, ok := s.Nodes[e.report.Node]
		if !ok || !n.Grantable() || n.Process != e.report.Process || e.marked == 0 || n.walked() {
			continue
		}
		if e.answered != e.marked { // the same heartbeat again makes no lease longer
			e.answered, e.granted, e.length = e.marked, now, length
		}
		grants = append(grants, NodeGrant{Node: n.Name, Grant: lease.Grant{
			Stamp: s.Stamp(n), Cap: n.Target, FailSafe: n.FailSafeCap(), Duration: e.length,
			Heartbeat: e.marked, Process: n.Process, BrakeLifted: s.Brake.Lifted, Sprint: n.Sprint.Lease(),
		}})
	}
	return grants
}

// walked reports whether a drained node has come to its least cap and has nothing
// more to acknowledge: it is granted nothing more.
func (n Node) walked() bool {
	return n.Drained && n.Charge() <= n.Least() && n.Stored <= n.Least() && n.From == "" && n.Owes == "" && !n.Unproven
}

// Waiting are the heard nodes that get no lease, each with the reason in words.
func (t *Table) Waiting(s *State) map[string]string {
	out := map[string]string{}
	var room map[string]units.Power
	for _, e := range t.sorted {
		name := e.report.Node
		n, ok := s.Nodes[name]
		switch {
		case e.marked == 0:
		case ok && n.MachineID != e.report.MachineID:
			out[name] = "the name is used by another machine"
		case ok && n.Grantable() && n.walked():
			out[name] = "it is drained"
		case ok && n.Grantable():
		case !ok && !s.knows(e.report.Domain):
			out[name] = fmt.Sprintf("domain %q is not in the power tree", e.report.Domain)
		case !ok:
			out[name] = "it is not yet recorded in the log"
		case n.Released:
			out[name] = "it is released"
		case !n.Controlled:
			out[name] = fmt.Sprintf("it is in observe mode and is charged its rated power, %v", n.Full())
		case s.held() != nil:
			out[name] = s.held().Error()
		default:
			if room == nil {
				room = s.rooms(s.Totals())
			}
			out[name] = fmt.Sprintf("%s is %v over its budget; the node is charged %v and waits", n.Domain, -min(0, room[n.Domain]), n.Charge())
		}
	}
	return out
}

// NodeGrant is a lease for one node.
type NodeGrant struct {
	Node  string
	Grant lease.Grant
}

// View is what the table knows of one node, for lists and plans.
type View struct {
	// Report is the newest heartbeat.
	Report Report
	// Age of the newest heartbeat.
	Age time.Duration
	// Lease is what remains of the newest lease as the leader counts it; 0 without one.
	Lease time.Duration
	// Length of that lease.
	Length time.Duration
}

// View tells about one node, and false when it has not been heard.
func (t *Table) View(node string, now time.Duration) (View, bool) {
	e, ok := t.nodes[node]
	if !ok {
		return View{}, false
	}
	v := View{Report: e.report, Age: now - e.at}
	if e.answered > 0 {
		v.Lease, v.Length = max(0, e.length-(now-e.granted)), e.length
	}
	return v, true
}

// Silent is for how long nothing was heard of a node: since its last heartbeat, or
// since this leader began, when it has heard none. Nobody may be taken for gone who
// is not silent for longer than Lost.
func (t *Table) Silent(node string, now time.Duration) time.Duration {
	if e, ok := t.nodes[node]; ok {
		return now - e.at
	}
	return now - t.began
}

// Led is for how long this leadership has been heard of.
func (t *Table) Led(now time.Duration) time.Duration { return now - t.began }

// recent reports whether a node was heard lately enough for plans to count on it; nil was never heard.
func (t *Table) recent(e *entry, now time.Duration) bool {
	return e != nil && now-e.at <= t.timing.Lost
}

// settled reports whether the leader has heard all admitted nodes, or has led for a lease: before that it only cuts.
func (t *Table) settled(s *State, roll []present, now time.Duration) bool {
	if timing := s.waiting(t.timing); now-t.began >= timing.Lease+timing.Margin() {
		return true
	}
	for i := range roll {
		if roll[i].heard == nil && roll[i].Grantable() {
			return false
		}
	}
	return true
}

// present is a node of the log beside what was heard of it.
type present struct {
	Node

	heard *entry // nil where the leader has heard nothing
}

// roll is every node of the log, sorted by name: one look at each map for a whole plan.
func (t *Table) roll(s *State) []present {
	roll := t.blank(len(t.sorted))
	for _, e := range t.sorted {
		if n, ok := s.Nodes[e.report.Node]; ok {
			roll = append(roll, present{n, e})
		}
	}
	if len(roll) == len(s.Nodes) {
		return roll
	}
	return t.withUnheard(s, roll)
}

// blank is an empty roll with room for n nodes. A roll is used within one decision, and the
// next one is made where it was: at 10,000 nodes it has some megabytes.
func (t *Table) blank(n int) []present {
	if cap(t.rolls) < n {
		t.rolls = make([]present, 0, n+n/8)
	}
	return t.rolls[:0]
}

// withUnheard is a roll of heard nodes, with the others of the log.
func (t *Table) withUnheard(s *State, heard []present) []present {
	names := t.unheard(s)
	roll := make([]present, 0, len(heard)+len(names))
	for _, p := range heard {
		for ; len(names) > 0 && names[0] < p.Name; names = names[1:] {
			roll = append(roll, present{Node: s.Nodes[names[0]]})
		}
		roll = append(roll, p)
	}
	for _, name := range names {
		roll = append(roll, present{Node: s.Nodes[name]})
	}
	return roll
}

// unheard are the nodes of the log that the leader has not heard, sorted.
func (t *Table) unheard(s *State) []string {
	var names []string
	for name := range s.Nodes {
		if t.nodes[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
