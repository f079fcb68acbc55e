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
// Sprints follow the same rule (promise P8): energy is reserved under an id before
// a sprint can start, and the id is closed once. Unused energy is refunded only
// once every node has reported its use and is back at its base cap.
//
// So does the quality of jobs (promise P9): map tasks are dropped only through the
// log, under an early stop, and never below the job's quality floor. A drop ratio
// only rises, and its seed stays the same for the whole life of the job.
//
// Three parts, all pure: State with Apply (one committed Command at a time, the
// same result on every server: no clock, no randomness, no map order, no I/O),
// Table (what the leader has heard from the nodes since it leads) and the
// leader's decisions over both (Decide, PlanBudget, Due). Time enters as numbers
// in commands.
//
// Apply refuses whatever would break a promise, whoever wrote it: a command of
// another leadership (P3), a raise that does not fit (P1), a cut below the
// floor without force (P5), a raise by a clock that no quorum shares (P5), a
// raise while the brake is set. A refused command leaves the state as it was.
package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/lease"
	"headroom/units"
)

// Bounds of what the state keeps.
const (
	// keptEvents is how many audit lines are kept: a few days of a busy site, some hundred kB.
	keptEvents = 1000
	// keptJobs is how many finished jobs are kept for lists.
	keptJobs = 500
	// keptChanges is how many budget changes are kept for history and rollback.
	keptChanges = 1000
	// keptSprints is how many closed sprints are kept: an id closes once, however late it is asked again.
	keptSprints = 500
	// MaxNodes bounds a cluster; beyond it a new node is refused.
	MaxNodes = 20_000
	// maxPending bounds the committed targets kept per node that may still reach
	// it; older ones are folded into the oldest kept (which only rounds up).
	maxPending = 16
	// MaxPower bounds what one node may claim to draw; MaxNodes of them sum without overflow.
	MaxPower = 1000 * units.Kilowatt
	// maxRanges bounds the dropped tasks of one job: a stop drops the last ones, which are few ranges.
	maxRanges = 2000
	// MaxJobSpec bounds a job file in the log, bytes.
	MaxJobSpec = 64 << 10
	// maxJobs bounds the jobs that have not ended.
	maxJobs = 10_000
	// maxDomains bounds the power tree: a domain for every few nodes.
	maxDomains = 5000
	// maxDomainPower bounds what may be said to be drawn in a domain, a gigawatt;
	// maxDomains of them sum without overflow.
	maxDomainPower = 1_000_000 * units.Kilowatt
	// maxNamed bounds everything else that operators name: schedules, tokens,
	// acknowledged alarms, servers.
	maxNamed = 1000
	// maxName bounds a name, bytes, and maxText what is said in words.
	maxName = 256
	maxText = 1024
)

// State is the replicated state. The zero State is empty: no power tree, no leadership.
type State struct {
	// Rules is the version of Apply's rules in force; commands of newer ones are refused.
	Rules int   `json:"rules"`
	known Known // 0 stands for Rules
	// Epoch of the leadership in force; commands of another are refused.
	Epoch lease.Epoch `json:"epoch"`
	// Restored: this incarnation began from a snapshot or a lost quorum, at Began in the
	// ledger's own time, and not every node has proved since what it holds, or may have
	// been heard. Nothing is raised meanwhile.
	Restored bool          `json:"restored,omitempty"`
	Began    time.Duration `json:"began_ns,omitempty"`
	// Revision counts the applied commands that changed something, ticks aside.
	Revision uint64 `json:"revision"`
	// PowerRevision is the revision of the last change to budgets or to which nodes there are.
	PowerRevision uint64 `json:"power_revision"`
	// SeqFloor is the highest sequence number of a node that was removed. A node that
	// appears anew begins above it: it may have stored that number already.
	SeqFloor uint64 `json:"seq_floor,omitempty"`
	// Elapsed is the ledger's own time: leaders' monotonic time summed over tick
	// entries; gaps between leaders are not counted.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Passed is the time that may have passed at most: Elapsed and the gaps between
	// leaders. What nobody measured counts by it.
	Passed time.Duration `json:"passed_ns,omitempty"`
	// Ticked is the leader's wall clock at the newest tick or beginning of a leadership,
	// microseconds since the Unix epoch.
	Ticked int64 `json:"ticked_us,omitempty"`
	// Leases is how long leases run and may still run.
	Leases Leases `json:"leases,omitzero"`
	// Unknown is the longest lease of nodes that a recovered state does not know; 0 in one
	// that never was recovered.
	Unknown time.Duration `json:"unknown_leases_ns,omitempty"`
	// Brake generations that the log knows and has lifted.
	Brake Brake `json:"brake,omitzero"`
	// Policy divides the watts among the nodes; empty is the default.
	Policy string `json:"policy,omitempty"`
	// ContainerPolicy divides the containers among the jobs; empty is the default.
	ContainerPolicy string `json:"container_policy,omitempty"`
	// Domains of the power tree, by name.
	Domains map[string]Domain `json:"domains"`
	// Nodes by name.
	Nodes map[string]Node `json:"nodes"`
	// Jobs by id.
	Jobs map[string]Job `json:"jobs"`
	// Sprints by id: open ones, and the newest closed ones.
	Sprints map[string]Sprint `json:"sprints,omitempty"`
	// Schedules of budgets by name.
	Schedules map[string]Schedule `json:"schedules,omitempty"`
	// Servers of the group by id, with the addresses that others reach them at.
	Servers map[string]Server `json:"servers,omitempty"`
	// Tokens that let somebody in, by id; only hashes of them.
	Tokens map[string]Token `json:"tokens,omitempty"`
	// Denied are certificates that are taken back before their end, by what is denied. They only grow.
	Denied map[string]Denial `json:"denied,omitempty"`
	// Scheduler is the lease of the active scheduler; nil before the first one. It is replaced, never written into.
	Scheduler *Scheduler `json:"scheduler,omitempty"`
	// Acked alarms, by key.
	Acked map[string]AlarmAck `json:"acked,omitempty"`
	// Changes are the newest changes of budgets, oldest first; none is missing from
	// the revision ChangesFrom on.
	Changes     []BudgetChange `json:"changes,omitempty"`
	ChangesFrom uint64         `json:"changes_from,omitempty"`
	// Events is the audit log, oldest first.
	Events []Event `json:"events"`
	// Requests are the idempotency keys that are remembered, oldest first.
	Requests []Request `json:"requests"`
}

// New is an empty state of a server of this version.
func New() *State { return Known(Rules).New() }

// New is an empty state of a server that knows these rules.
func (k Known) New() *State {
	s := &State{Rules: int(k), known: k}
	s.makeMaps()
	return s
}

// newest is the newest version of the rules that this server knows.
func (s *State) newest() int { return cmp.Or(int(s.known), Rules) }

// makeMaps makes the maps that are nil: an older snapshot lacks the newer ones.
func (s *State) makeMaps() {
	s.Domains, s.Nodes, s.Jobs = made(s.Domains), made(s.Nodes), made(s.Jobs)
	s.Sprints, s.Schedules, s.Servers = made(s.Sprints), made(s.Schedules), made(s.Servers)
	s.Tokens, s.Acked = made(s.Tokens), made(s.Acked)
	s.Denied = made(s.Denied)
}

func made[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}

// Event is one line of the audit log.
type Event struct {
	Revision  uint64 `json:"revision"`
	At        int64  `json:"at_us"`
	Actor     string `json:"actor"`
	What      string `json:"what"`
	Reason    string `json:"reason,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}

// NodesByName are the nodes sorted by name.
func (s *State) NodesByName() []Node {
	nodes := make([]Node, 0, len(s.Nodes))
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) { // names are cheaper to move about than nodes
		nodes = append(nodes, s.Nodes[name])
	}
	return nodes
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
	c.Sprints, c.Schedules, c.Servers = maps.Clone(s.Sprints), maps.Clone(s.Schedules), maps.Clone(s.Servers)
	c.Tokens, c.Acked, c.Denied = maps.Clone(s.Tokens), maps.Clone(s.Acked), maps.Clone(s.Denied)
	c.Events, c.Requests, c.Changes = slices.Clone(s.Events), slices.Clone(s.Requests), slices.Clone(s.Changes)
	return &c
}

// draft is a copy for decisions: domains and sprints are its own, the rest
// is shared and only read.
func (s *State) draft() *State {
	c := *s
	c.Domains, c.Sprints = maps.Clone(s.Domains), maps.Clone(s.Sprints)
	c.Events, c.Changes = slices.Clip(s.Events), slices.Clip(s.Changes) // what is appended goes elsewhere
	return &c
}

// Snapshot is the whole state as JSON, the same bytes for the same state.
//
//headroom:apply
func (s *State) Snapshot() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("ledger: snapshot: %w", err)
	}
	return data, nil
}

// Restore reads a snapshot as a server of this version does.
//
//headroom:apply
func Restore(data []byte) (*State, error) { return Known(Rules).Restore(data) }

// Restore reads a snapshot, of these rules or of the ones before.
//
//headroom:apply
func (k Known) Restore(data []byte) (*State, error) {
	s := &State{known: k}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("ledger: snapshot of %d bytes: %w", len(data), err)
	}
	if s.Domains == nil || s.Nodes == nil || s.Jobs == nil {
		return nil, fmt.Errorf("ledger: snapshot: %w: domains, nodes or jobs are missing", ErrSnapshot)
	}
	s.makeMaps()
	if err := s.sound(); err != nil {
		return nil, fmt.Errorf("ledger: snapshot: %w", err)
	}
	s.mark()
	return s, nil
}

// sound checks what Apply takes for granted about a state that it did not make itself.
func (s *State) sound() error {
	if s.Rules < OldestRules || s.Rules > s.newest() {
		return fmt.Errorf("%w: of rules %d, this server knows %d to %d", ErrSnapshot, s.Rules, OldestRules, s.newest())
	}
	for name, d := range s.Domains {
		if name != d.Name {
			return fmt.Errorf("%w: domain %q is kept as %q", ErrSnapshot, d.Name, name)
		}
		if err := d.Validate(); err != nil {
			return err
		}
	}
	if len(s.Domains) > 0 {
		if _, err := newTree(s.Domains); err != nil {
			return err
		}
	}
	for name, n := range s.Nodes {
		inForce := n.declared()
		inForce.Rated, inForce.Floor, inForce.Max, inForce.FailSafe = n.Rated, n.Floor, n.Max, n.FailSafe
		if err := cmp.Or(n.declared().Validate(), inForce.Validate()); err != nil {
			return err
		}
		if name != n.Name || !s.knows(n.Domain) || n.From != "" && !s.knows(n.From) {
			return fmt.Errorf("%w: node %q of domain %q is kept as %q", ErrSnapshot, n.Name, n.Domain, name)
		}
		if n.FirstRated <= 0 {
			return fmt.Errorf("%w: node %q: its first rating is missing", ErrSnapshot, n.Name)
		}
		if err := n.Settings.validate(n.Name); err != nil {
			return err
		}
	}
	for id, j := range s.Jobs {
		if id != j.ID {
			return fmt.Errorf("%w: job %q is kept as %q", ErrSnapshot, j.ID, id)
		}
		if err := j.sound(); err != nil {
			return err
		}
	}
	return cmp.Or(s.Scheduler.sound(), s.soundSprints())
}

func (s *State) soundSprints() error {
	for id, p := range s.Sprints {
		if id != p.ID || !s.knows(p.Domain) || len(p.Shares) > maxSprintNodes {
			return fmt.Errorf("%w: sprint %q of domain %q is kept as %q", ErrSnapshot, p.ID, p.Domain, id)
		}
		for node, x := range p.Shares {
			if x.Escrow < 0 || x.Escrow > maxSprintEnergy || x.Spent != nil && (*x.Spent < 0 || *x.Spent > maxSprintEnergy) {
				return fmt.Errorf("%w: the share of %q in sprint %q is of %v", ErrSnapshot, node, id, x.Escrow)
			}
		}
	}
	return nil
}

func (s *State) knows(domain string) bool {
	_, ok := s.Domains[domain]
	return ok
}
