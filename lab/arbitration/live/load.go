package live

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"headroom/lab/arbitration"
)

// The cluster of a run.
const servers, nodes = 3, 2

// usual is for how long jobs come in a run, brief the same of --quick.
const usual, brief = 5 * time.Minute, 150 * time.Second

// within is for how long jobs come.
func within(quick bool) time.Duration {
	if quick {
		return brief
	}
	return usual
}

// each is what the jobs of a stream are.
type each struct {
	tasks    int
	gap      time.Duration // between two jobs, half of it more or less
	deadline time.Duration
}

// stream is one kind of jobs.
type stream struct {
	each

	name  string
	class arbitration.Class
	floor float64
}

// streams are two streams of urgent jobs, which compute all of their tasks, and one of tolerant jobs.
func streams(small, large, bulk each) []stream {
	return []stream{
		{small, "small", arbitration.Urgent, 1},
		{large, "large", arbitration.Urgent, 1},
		{bulk, "bulk", arbitration.Tolerant, 0.6},
	}
}

// plan is what runs on an engine: which jobs come, and who decides.
type plan struct {
	streams []stream
	// drain is how long the jobs may take after the last has come.
	drain    time.Duration
	variants []variant
}

// arrival is a job that comes.
type arrival struct {
	arbitration.Job

	stream string
}

// arrivals are the jobs of a seed that come within a time, by their arrival. The first of each stream comes within half
// a gap, so that each has one.
func (p *plan) arrivals(seed uint64, within time.Duration) (out []arrival) {
	for i, s := range p.streams {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		part := func(of float64) time.Duration { return time.Duration(of * float64(s.gap)) }
		for at := part(r.Float64() / 2); at < within; at += part(0.5 + r.Float64()) {
			out = append(out, arrival{arbitration.Job{Class: s.class, Arrival: at, Tasks: s.tasks, Deadline: s.deadline, Floor: s.floor}, s.name})
		}
	}
	slices.SortStableFunc(out, func(a, b arrival) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return out
}

// step is a budget from a moment on.
type step struct {
	at time.Duration
	// each is the most that a node may hold without a sprint, as a part of what it is rated.
	each float64
}

// margin is what the budget leaves above the caps of all nodes, for sprints, as a part of what they are rated.
const margin = 0.45

// steps are the budgets of a run: lower in its middle third.
func steps(within time.Duration) []step {
	return []step{{0, 0.55}, {within / 3, 0.42}, {within * 2 / 3, 0.55}}
}

// variant is one way to decide: the coordinators' container policy and the scheduler's configuration.
type variant struct {
	name, says, policy, configuration string
	// exact: no task is given up, where the engine is to know that beforehand.
	exact bool
}

// ours is the way to decide that the others are held against.
const ours = "arbiter"

// The scheduler's classes, without sprints and with a timer.
const (
	classes   = "classes: [urgent, tolerant]\n"
	timed     = "classes:\n  - {name: urgent, sprint_after: 2s}\n  - {name: tolerant}\n"
	sayTimed  = "the same with discipline nps: urgent jobs sprint 2 s after they begin, as far as the joules go"
	sayOurs   = "the arbiter, as coordinators run it (container policy joint, discipline shared)"
	sayNobody = "; nobody sprints or gives up tasks"
)

// against are the arbiter and two variants of a rule that serves urgent jobs first: without sprints, and with. limit is the
// scheduler's bound of jobs at once; empty for none.
func against(policy, limit, says string) []variant {
	return []variant{
		{ours, sayOurs, "joint", "discipline: shared\n" + classes, false},
		{"urgent-first-fair", says + sayNobody, policy, "discipline: np\n" + limit + classes, true},
		{"urgent-first-fair-sprint", sayTimed, policy, "discipline: nps\n" + limit + timed, true},
	}
}

// says is a description of the load of a run.
func (p *plan) says(within time.Duration) string {
	var b strings.Builder
	for _, s := range p.streams {
		fmt.Fprintf(&b, "%s jobs of %d tasks about every %v", s.class, s.tasks, s.gap)
		if s.deadline > 0 {
			fmt.Fprintf(&b, ", due after %v", s.deadline)
		}
		if s.floor < 1 {
			fmt.Fprintf(&b, ", which may end on %.0f %% of them", 100*s.floor)
		}
		b.WriteString("; ")
	}
	b.WriteString("nodes held at ")
	for i, x := range steps(within) {
		if i > 0 {
			fmt.Fprintf(&b, ", from %v on at ", x.at)
		}
		fmt.Fprintf(&b, "%.0f %%", 100*x.each)
	}
	return b.String() + " of what they are rated"
}
