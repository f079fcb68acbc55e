// Package ledger is the replicated state of a cluster: who may draw what, and
// everything that spends watts or must survive a crash.
//
// The one idea: a node's CEILING is the highest cap it may still be holding,
// and it is committed in the log before the node can hold it. Lowering a node
// commits a new target and leaves the ceiling; only the node's own read-back
// brings the ceiling down. Raising commits target and ceiling together, and
// only when every domain above has room. So the sum of what nodes are charged
// never exceeds a budget because of anything the coordinators did (promise
// P1), whoever leads and whatever was lost on the way.
//
// Three parts, all pure: State with Apply (one committed Command at a time, the
// same result on every server: no clock, no randomness, no map order, no I/O),
// Table (what the leader has heard from the nodes since it leads) and the
// leader's decisions over both (Decide, PlanBudget). Time enters as numbers in
// commands.
//
// Apply refuses whatever would break a promise, whoever wrote it: a command of
// another leadership (P3), a raise that does not fit (P1), a cut below the
// floor without force (P5). A refused command leaves the state as it was.
package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/units"
)

// Bounds of what the state keeps.
const (
	// keptEvents is how many audit lines are kept: a few days of a busy site, some hundred kB.
	keptEvents = 1000
	// keptRequests is how many idempotency keys are remembered; retries come within seconds.
	keptRequests = 1000
	// keptJobs is how many finished jobs are kept for lists.
	keptJobs = 500
	// MaxNodes bounds a cluster; beyond it a new node is refused.
	MaxNodes = 20_000
	// maxPending bounds the committed targets kept per node that may still reach
	// it; older ones are folded into the oldest kept (which only rounds up).
	maxPending = 16
	// MaxPower bounds what one node may claim to draw; MaxNodes of them sum without overflow.
	MaxPower = 1000 * units.Kilowatt
	// MaxJobSpec bounds a job file in the log, bytes.
	MaxJobSpec = 64 << 10
)

// State is the replicated state. The zero State is empty: no power tree, no leadership.
type State struct {
	// Epoch of the leadership in force; commands of another are refused.
	Epoch lease.Epoch `json:"epoch"`
	// Revision counts the applied commands that changed something, ticks aside.
	Revision uint64 `json:"revision"`
	// PowerRevision is the revision of the last change to budgets or to which nodes there are.
	PowerRevision uint64 `json:"power_revision"`
	// Elapsed is the ledger's own time: leaders' monotonic time summed over tick
	// entries; gaps between leaders are not counted.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Domains of the power tree, by name.
	Domains map[string]budget.Domain `json:"domains"`
	// Nodes by name.
	Nodes map[string]Node `json:"nodes"`
	// Jobs by id.
	Jobs map[string]Job `json:"jobs"`
	// Events is the audit log, oldest first.
	Events []Event `json:"events"`
	// Requests are the newest idempotency keys, oldest first.
	Requests []Request `json:"requests"`
}

// New is an empty state.
func New() *State {
	return &State{Domains: map[string]budget.Domain{}, Nodes: map[string]Node{}, Jobs: map[string]Job{}}
}

// Node is one node as the log has it.
type Node struct {
	// Name in the cluster.
	Name string `json:"name"`
	// MachineID is the node's identity.
	MachineID string `json:"machine_id"`
	// Process is the id of the powerd process last seen.
	Process uint64 `json:"process"`
	// Heard is the number of that process's newest heartbeat whose read-back counted; older ones count no more.
	Heard uint64 `json:"heard,omitempty"`
	// Proof is the sequence number that this process was the first to be given: a
	// read-back that names an older one may come from before the process, from one
	// that was replaced, and lowers nothing.
	Proof uint64 `json:"proof,omitempty"`
	// Domain it draws from.
	Domain string `json:"domain"`
	// Rated, Floor, Max and Weight as the node declared them (see Sighting).
	Rated  units.Power `json:"rated_uw"`
	Floor  units.Power `json:"floor_uw"`
	Max    units.Power `json:"max_uw"`
	Weight float64     `json:"weight"`
	// FailSafe is the fail-safe cap that the node is to store.
	FailSafe units.Power `json:"fail_safe_uw"`
	// Stored is the fail-safe cap that the node has said it stores.
	Stored units.Power `json:"stored_uw"`
	// Controlled: powerd holds caps there. Otherwise it is charged its rated watts.
	Controlled bool `json:"controlled"`
	// Admitted: it may be given leases while it is controlled and not released.
	Admitted bool `json:"admitted"`
	// Released: it may have put its original controls back; charged its rated watts.
	Released bool `json:"released"`
	// Target is the cap that the plan wants.
	Target units.Power `json:"target_uw"`
	// Seq numbers the targets of this node; it only grows.
	Seq uint64 `json:"seq"`
	// Ceiling is the highest cap that the node may still be holding.
	// Invariant: Ceiling >= Target and >= every pending target.
	Ceiling units.Power `json:"ceiling_uw"`
	// Pending are the committed targets that may still reach the node, oldest first; the last is Target.
	Pending []Pending `json:"pending,omitempty"`
	// Excess is an effective cap above the ceiling that the node reported; 0 without one.
	Excess units.Power `json:"excess_uw,omitempty"`
}

// Pending is a committed target that may still reach its node.
type Pending struct {
	Seq uint64      `json:"seq"`
	Cap units.Power `json:"cap_uw"`
}

// Charge is what the coordinator must assume that the node draws (promise P4).
func (n Node) Charge() units.Power {
	if !n.Controlled || n.Released {
		return max(n.Rated, n.Excess)
	}
	return max(n.Ceiling, n.FailSafe, n.Stored, n.Floor, n.Excess)
}

// Least is the lowest cap that a plan may give the node.
func (n Node) Least() units.Power { return max(n.FailSafe, n.Floor) }

// leastCharge is what the node is charged when driven as low as it goes.
func (n Node) leastCharge() units.Power {
	if !n.Controlled || n.Released {
		return n.Charge()
	}
	return max(n.Least(), n.Stored)
}

// Grantable tells whether the node may be given leases.
func (n Node) Grantable() bool { return n.Admitted && n.Controlled && !n.Released }

// Event is one line of the audit log.
type Event struct {
	Revision  uint64 `json:"revision"`
	At        int64  `json:"at_us"`
	Actor     string `json:"actor"`
	What      string `json:"what"`
	Reason    string `json:"reason,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// Request is an idempotency key that was carried out, and the revision it made.
type Request struct {
	ID       string `json:"id"`
	Revision uint64 `json:"revision"`
}

// Totals are the sums over one domain and everything below it.
type Totals struct {
	// Budget and Unmanaged of the domain, Unmanaged with everything below it.
	Budget, Unmanaged units.Power
	// Reserved is the sum of the charges.
	Reserved units.Power
	// Floor is what the domain is charged with every node at its least, unmanaged included.
	Floor units.Power
	// Nodes below.
	Nodes int
}

// Headroom is budget - unmanaged - reserved; negative is shortfall.
func (t Totals) Headroom() units.Power { return t.Budget - t.Unmanaged - t.Reserved }

// Tree is the power tree; nil while the state is empty.
func (s *State) Tree() *budget.Tree {
	if len(s.Domains) == 0 {
		return nil
	}
	t, err := budget.NewTree(slices.Collect(maps.Values(s.Domains)))
	if err != nil { // Apply lets no such tree in.
		panic(fmt.Sprintf("ledger: power tree: %v", err))
	}
	return t
}

// Totals sums over every domain, keyed by name.
func (s *State) Totals() map[string]Totals {
	t := s.Tree()
	if t == nil {
		return nil
	}
	charge, least, count := map[string]units.Power{}, map[string]units.Power{}, map[string]units.Power{}
	for _, n := range s.Nodes {
		charge[n.Domain] += n.Charge()
		least[n.Domain] += n.leastCharge()
		count[n.Domain]++
	}
	charge, least, count = t.Totals(charge), t.Totals(least), t.Totals(count)
	unmanaged := t.Unmanaged()
	out := make(map[string]Totals, len(s.Domains))
	for name, d := range s.Domains {
		out[name] = Totals{
			Budget: d.Budget, Unmanaged: unmanaged[name], Reserved: charge[name],
			Floor: least[name] + unmanaged[name], Nodes: int(count[name]),
		}
	}
	return out
}

// NodesByName are the nodes sorted by name.
func (s *State) NodesByName() []Node {
	return slices.SortedFunc(maps.Values(s.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
}

// JobsByTime are the jobs, oldest first.
func (s *State) JobsByTime() []Job {
	return slices.SortedFunc(maps.Values(s.Jobs), func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
}

// Clone is a copy that shares nothing that Apply changes.
func (s *State) Clone() *State {
	c := *s
	c.Domains, c.Nodes, c.Jobs = maps.Clone(s.Domains), maps.Clone(s.Nodes), maps.Clone(s.Jobs)
	c.Events, c.Requests = slices.Clone(s.Events), slices.Clone(s.Requests)
	return &c
}

// Snapshot is the whole state as JSON, the same bytes for the same state.
func (s *State) Snapshot() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("ledger: snapshot: %w", err)
	}
	return data, nil
}

// Restore reads a snapshot.
func Restore(data []byte) (*State, error) {
	s := New()
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("ledger: snapshot of %d bytes: %w", len(data), err)
	}
	if err := s.sound(); err != nil {
		return nil, fmt.Errorf("ledger: snapshot: %w", err)
	}
	return s, nil
}

// sound checks what Apply takes for granted about a state that it did not make itself.
func (s *State) sound() error {
	if s.Domains == nil || s.Nodes == nil || s.Jobs == nil {
		return fmt.Errorf("%w: domains, nodes or jobs are missing", ErrSnapshot)
	}
	for name, d := range s.Domains {
		if name != d.Name {
			return fmt.Errorf("%w: domain %q is kept as %q", ErrSnapshot, d.Name, name)
		}
	}
	if len(s.Domains) > 0 {
		if _, err := budget.NewTree(slices.Collect(maps.Values(s.Domains))); err != nil {
			return err
		}
	}
	for name, n := range s.Nodes {
		if err := n.declared().Validate(); err != nil {
			return err
		}
		if name != n.Name || !s.knows(n.Domain) {
			return fmt.Errorf("%w: node %q of domain %q is kept as %q", ErrSnapshot, n.Name, n.Domain, name)
		}
	}
	for id, j := range s.Jobs {
		if id != j.ID {
			return fmt.Errorf("%w: job %q is kept as %q", ErrSnapshot, j.ID, id)
		}
	}
	return nil
}
