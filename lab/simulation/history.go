package simulation

import (
	"maps"
	"slices"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// history is what operators and nodes saw, for a checker of linearizability: each operation with the true times at which it was requested and
// answered. A nil history records nothing.
type history struct {
	w   *world
	ops []operation
}

// operation is one of them. What was not answered may have taken effect at any time since it was requested, or never.
type operation struct {
	input    any
	output   any
	refused  bool
	answered bool
	call     time.Duration
	ret      time.Duration
}

type (
	// budgetInput requests a budget.
	budgetInput struct {
		domain string
		to     units.Power
	}
	// readInput reads what is in force.
	readInput struct{}
	// readOutput is what a read has seen.
	readOutput struct {
		revision uint64
		budgets  map[string]units.Power
		sprints  map[string]bool // by id: whether it is open
	}
	// sprintInput requests a sprint or the end of one.
	sprintInput struct {
		grant bool
		id    string
	}
	// aimInput is a target that a leader commits for a node.
	aimInput struct {
		node string
		seq  uint64
	}
	// holdInput is a lease that a node takes.
	holdInput struct {
		node  string
		stamp lease.Stamp
	}
)

// calls records that an order is requested.
func (h *history) calls(o *order) {
	if h == nil || o.input == nil {
		return
	}
	if x, ok := o.input.(sprintInput); ok && x.grant {
		o.input = sprintInput{grant: true, id: o.id} // a sprint is named after its order
	}
	h.ops = append(h.ops, operation{input: o.input, call: h.w.now})
	o.op = len(h.ops)
}

// returns records its answer.
func (h *history) returns(o *order, output any, err error) {
	if h != nil && o.op > 0 {
		op := &h.ops[o.op-1]
		op.answered, op.ret, op.refused, op.output = true, h.w.now, err != nil, output
	}
}

// seen records what was answered at once, and done at the given time.
func (h *history) seen(input any, at time.Duration) {
	if h != nil {
		h.ops = append(h.ops, operation{input: input, answered: true, call: at, ret: h.w.now})
	}
}

// observed is what a read sees of the leader's state.
func (o *order) observed(s *ledger.State) any {
	if _, read := o.input.(readInput); !read || o.op == 0 {
		return nil
	}
	out := readOutput{revision: s.Revision, budgets: map[string]units.Power{}, sprints: map[string]bool{}}
	for name, d := range s.Domains {
		out.budgets[name] = d.Budget
	}
	for id, p := range s.Sprints {
		out.sprints[id] = p.Open()
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
