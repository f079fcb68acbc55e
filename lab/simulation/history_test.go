// Claim: what operators and nodes see is linearizable. Budgets are registers that
// reads never see older than an answered change; a sprint's id is granted at most
// once, and closes at most once; a node takes only caps that a leader has committed
// before, and never an older one after a newer one. A leader that answers reads
// without a query to its followers is caught.
package simulation

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"headroom/lease"
	"headroom/units"
)

// checkTime bounds the search through one history.
const checkTime = 30 * time.Second

// historyClasses are the faults under which histories are recorded: all that
// threaten an order of events, and nothing that changes budgets by itself.
func historyClasses() []string {
	return []string{
		"budget", "sprint", "read", "crash", "pause", "suspend", "reboot", "frozen-disk", "partition", "one-way", "isolate-leader",
		"loss", "delay", "duplicate", "reorder", "slow-disk", "clock-rate", "restless",
	}
}

func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	ops := 0
	for i := range 40 {
		h := recorded(i)
		ops += len(h.ops)
		for name, m := range models() {
			if got := m.check(h); got != porcupine.Ok {
				t.Errorf("%s: %v in schedule %d (seed %d)", name, got, i, h.w.schedule.Seed)
			}
		}
	}
	if ops < 40*40 {
		t.Errorf("only %d operations were recorded: nothing is proved", ops)
	}
}

// overlaid breaks a rule in a build with sabotages: TestHistoriesCatchSabotage makes one.
func overlaid(t *testing.T, name string) {
	t.Helper()
	if !choose(name) {
		t.Skip("only in a build with sabotages")
	}
	t.Cleanup(func() { choose("") })
}

func TestOverlaidStaleReads(t *testing.T) {
	overlaid(t, "stale-read")
	for i := range sabotageSchedules {
		if models()["budgets"].check(recorded(i)) == porcupine.Illegal {
			t.Logf("schedule %d", i+1)
			return
		}
	}
	t.Errorf("not found in %d schedules", sabotageSchedules)
}

// A node that forgets which leadership is the newer one is caught, too.
func TestOverlaidOldLeases(t *testing.T) {
	overlaid(t, "epoch-not-checked")
	for i := range sabotageSchedules {
		if models()["leases"].check(recorded(i)) == porcupine.Illegal {
			t.Logf("schedule %d", i+1)
			return
		}
	}
	t.Errorf("not found in %d schedules", sabotageSchedules)
}

func recorded(i int) *history {
	w := newWorld(Schedule{Seed: seedOf(73, i), SpanMS: 60_000, Only: historyClasses()}, nil)
	w.history = &history{w: w}
	w.run()
	return w.history
}

// model is one object of the system as porcupine sees it.
type model struct {
	// of splits an operation into those on single objects, each with its key.
	of   func(operation) []keyed
	step func(state, input any, op operation) []any
	zero any
}

// keyed is an operation on one object.
type keyed struct {
	key, input any
}

type called struct {
	keyed
	op operation
}

func (m model) check(h *history) porcupine.CheckResult {
	var ops []porcupine.Operation
	for _, op := range h.ops {
		ret := int64(math.MaxInt64)
		if op.answered {
			ret = int64(op.ret)
		}
		for _, k := range m.of(op) {
			ops = append(ops, porcupine.Operation{Input: called{k, op}, Call: int64(op.call), Return: ret})
		}
	}
	n := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{m.zero} },
		Step: func(state, input, _ any) []any {
			x, _ := input.(called)
			return m.step(state, x.input, x.op)
		},
	}
	return porcupine.CheckOperationsTimeout(n.ToModel(), ops, checkTime)
}

func partition(ops []porcupine.Operation) [][]porcupine.Operation {
	at := map[any]int{}
	var out [][]porcupine.Operation
	for _, op := range ops {
		x, _ := op.Input.(called)
		i, ok := at[x.key]
		if !ok {
			i = len(out)
			at[x.key], out = i, append(out, nil)
		}
		out[i] = append(out[i], op)
	}
	return out
}

func models() map[string]model {
	return map[string]model{
		"budgets":  {of: budgetOps, step: stepBudget, zero: units.Power(0)},
		"revision": {of: revisionOps, step: stepRevision, zero: uint64(0)},
		"sprints":  {of: sprintOps, step: stepSprint, zero: absent},
		"leases":   {of: leaseOps, step: stepLease, zero: leaseState{}},
	}
}

// effects are the states after an operation that turns was into now: one that was
// refused has changed nothing, one that was not answered may have.
func effects(op operation, was, now any) []any {
	switch {
	case !op.answered:
		return []any{was, now}
	case op.refused:
		return []any{was}
	}
	return []any{now}
}

// Budgets: a register for each domain; 0 stands for the budget that it began with.

func budgetOps(op operation) []keyed {
	switch x := op.input.(type) {
	case budgetInput:
		return []keyed{{x.domain, x.to}}
	case readInput:
		var all []keyed
		out, _ := op.output.(readOutput)
		for _, domain := range sortedKeys(out.budgets) {
			all = append(all, keyed{domain, seenBudget(out.budgets[domain])})
		}
		return all
	}
	return nil
}

func stepBudget(state, input any, op operation) []any {
	if to, ok := input.(units.Power); ok {
		return effects(op, state, to)
	}
	x, _ := input.(seenBudget)
	if seen := units.Power(x); state == units.Power(0) || state == seen {
		return []any{seen}
	}
	return nil
}

// seenBudget is what a read has seen of one domain.
type seenBudget units.Power

// The revision: reads never see it fall.

func revisionOps(op operation) []keyed {
	if out, ok := op.output.(readOutput); ok {
		return []keyed{{"revision", out.revision}}
	}
	return nil
}

func stepRevision(state, input any, _ operation) []any {
	was, _ := state.(uint64)
	if seen, _ := input.(uint64); seen >= was {
		return []any{seen}
	}
	return nil
}

// Sprints: an id is absent, open, or closed, in this order.

type sprintState int

const (
	absent sprintState = iota
	open
	closed
)

func sprintOps(op operation) []keyed {
	switch x := op.input.(type) {
	case sprintInput:
		return []keyed{{x.id, x}}
	case readInput:
		var all []keyed
		out, _ := op.output.(readOutput)
		for _, id := range sortedKeys(out.sprints) {
			seen := closed
			if out.sprints[id] {
				seen = open
			}
			all = append(all, keyed{id, seen})
		}
		return all
	}
	return nil
}

func stepSprint(state, input any, op operation) []any {
	was, _ := state.(sprintState)
	switch x := input.(type) {
	case sprintInput:
		switch {
		case x.grant && was == absent:
			return effects(op, was, open)
		case x.grant && op.answered && !op.refused, !x.grant && op.answered && !op.refused && was == absent:
			return nil // granted twice, or ended before it was there
		}
		return []any{was}
	case sprintState:
		if was == x || was == open && x == closed {
			return []any{x}
		}
	}
	return nil
}

// Leases: a node takes what was committed, and never an older stamp.

type leaseState struct {
	committed uint64
	held      lease.Stamp
}

func leaseOps(op operation) []keyed {
	switch x := op.input.(type) {
	case aimInput:
		return []keyed{{x.node, x}}
	case holdInput:
		return []keyed{{x.node, x}}
	}
	return nil
}

func stepLease(state, input any, _ operation) []any {
	s, _ := state.(leaseState)
	switch x := input.(type) {
	case aimInput:
		s.committed = max(s.committed, x.seq)
		return []any{s}
	case holdInput:
		if x.stamp.Seq > s.committed || x.stamp.Compare(s.held) < 0 {
			return nil
		}
		s.held = x.stamp
		return []any{s}
	}
	return nil
}

// A history that is not linearizable is seen as one.
func TestModelsSeeWhatIsWrong(t *testing.T) {
	t.Parallel()
	const a, b = 100 * units.Watt, 200 * units.Watt
	read := func(at time.Duration, budget units.Power, sprint bool) operation {
		return operation{
			input: readInput{}, answered: true, call: at, ret: at + 1,
			output: readOutput{revision: uint64(at), budgets: map[string]units.Power{"site": budget}, sprints: map[string]bool{"s1": sprint}},
		}
	}
	set := func(at time.Duration, to units.Power) operation {
		return operation{input: budgetInput{"site", to}, answered: true, call: at, ret: at + 1}
	}
	grant := operation{input: sprintInput{true, "s1"}, answered: true, call: 1, ret: 2}
	again := operation{input: sprintInput{true, "s1"}, answered: true, call: 3, ret: 4}
	hold := func(at time.Duration, term, seq uint64) operation {
		return operation{input: holdInput{"n01", lease.Stamp{Epoch: lease.Epoch{Incarnation: 1, Term: term}, Seq: seq}}, answered: true, call: at, ret: at}
	}
	aim := operation{input: aimInput{"n01", 1}, answered: true, call: 1, ret: 2}
	lost := operation{input: budgetInput{"site", b}, call: 1}
	for name, c := range map[string]struct {
		model string
		ops   []operation
		want  porcupine.CheckResult
	}{
		"an old budget is read":        {"budgets", []operation{set(1, a), set(3, b), read(5, a, false)}, porcupine.Illegal},
		"a lost change takes effect":   {"budgets", []operation{lost, set(1, a), read(3, a, false), read(5, b, false)}, porcupine.Ok},
		"a lost change comes and goes": {"budgets", []operation{lost, set(1, a), read(3, b, false), read(5, a, false)}, porcupine.Illegal},
		"a sprint is granted twice":    {"sprints", []operation{grant, again}, porcupine.Illegal},
		"a sprint opens again":         {"sprints", []operation{grant, read(3, a, false), read(5, a, true)}, porcupine.Illegal},
		"a sprint closes":              {"sprints", []operation{grant, read(3, a, true), read(5, a, false)}, porcupine.Ok},
		"the revision falls":           {"revision", []operation{read(3, a, true), {input: readInput{}, answered: true, call: 9, ret: 9, output: readOutput{revision: 1}}}, porcupine.Illegal},
		"a cap out of nowhere":         {"leases", []operation{aim, hold(3, 1, 2)}, porcupine.Illegal},
		"an old leadership":            {"leases", []operation{aim, hold(3, 2, 1), hold(4, 1, 1)}, porcupine.Illegal},
		"a renewal":                    {"leases", []operation{aim, hold(3, 1, 1), hold(4, 2, 1)}, porcupine.Ok},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := models()[c.model].check(&history{ops: slices.Clone(c.ops)}); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
