package live

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"headroom/lab/arbitration"
	"headroom/units"
)

// The cluster of a run.
const (
	servers, nodes = 3, 2
	// slots is how many tasks the workers of both nodes run at once: four each.
	slots = 8
	// hostPart is the part of the host's CPUs that the nodes own; capped is about how fast they are at the first
	// budget, to size tasks by. How fast they were is measured.
	hostPart, capped = 0.75, 0.75
	// taskWall is about how long a task takes when all slots of capped nodes are busy.
	taskWall = 6 * time.Second
)

// stream is one kind of jobs.
type stream struct {
	name     string
	class    arbitration.Class
	tasks    int
	gap      time.Duration // between two jobs, half of it more or less
	deadline time.Duration
	floor    float64
}

// streams are two urgent ones, whose jobs compute all of their tasks, and a tolerant one. With all nodes to itself a job
// takes about tasks * taskWall / slots: 9, 18 and 54 s. Together they load the capped nodes to nearly all that
// they can do, and beyond it while the budget is low.
func streams() []stream {
	return []stream{
		{"small", arbitration.Urgent, 12, 45 * time.Second, 30 * time.Second, 1},
		{"large", arbitration.Urgent, 24, 90 * time.Second, 45 * time.Second, 1},
		{"bulk", arbitration.Tolerant, 72, 100 * time.Second, 0, 0.6},
	}
}

// arrival is a job that comes.
type arrival struct {
	arbitration.Job

	stream string
}

// arrivals are the jobs of a seed that come within a time, by their arrival. The first of each stream comes within half
// a gap, so that each has one.
func arrivals(seed uint64, within time.Duration) (out []arrival) {
	for i, s := range streams() {
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

// The joules for sprints, alike for all ways to decide: at first what all nodes draw in potFor at what they are rated;
// they come back at refill of that.
const (
	potFor = 20 * time.Second
	refill = 0.1
)

// pot is the capacity of the sprint budget of nodes that are rated so, and by how much it refills.
func pot(rated units.Power) (units.Energy, units.Power) {
	return rated.For(potFor), units.FromWatts(rated.Watts() * refill)
}

// variant is one way to decide: the coordinators' container policy and the scheduler's configuration.
type variant struct{ name, says, policy, configuration string }

// ours is the way to decide that the others are held against.
const ours = "arbiter"

// The scheduler's configurations. Without shares of the coordinators, discipline shared lets a job wait until others leave
// it slots, of whatever class. Discipline np with room for all jobs begins each at once, and free slots go by class, then by
// arrival: urgent first. It drops nothing and sprints nobody; nps lets a class sprint by its timer.
const (
	sharedSlots = "discipline: shared\nclasses: [urgent, tolerant]\n"
	byClass     = "discipline: np\nwidth: 100\nclasses: [urgent, tolerant]\n"
	byTimer     = "discipline: nps\nwidth: 100\nclasses:\n  - {name: urgent, sprint_after: 2s}\n  - {name: tolerant}\n"
)

// variants are the ways to decide, ours first.
func variants() []variant {
	return []variant{
		{ours, "the arbiter, as coordinators run it (container policy joint, discipline shared)", "joint", sharedSlots},
		{
			"urgent-first-fair", "container policy fair, discipline np for all jobs at once: slots by class, then by arrival; nobody sprints or gives up tasks",
			"fair", byClass,
		},
		{"urgent-first-fair-sprint", "the same with discipline nps: urgent jobs sprint 2 s after they begin, as far as the joules go", "fair", byTimer},
	}
}

// turn is the order of the variants in a run: forth in one, back in the next, so that what changes slowly meets all alike.
func turn(run int) []variant {
	all := variants()
	if run%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// says describes the load of a run.
func says(within time.Duration) string {
	var b strings.Builder
	for _, s := range streams() {
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
