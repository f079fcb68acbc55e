package speculation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy says what runs next.
type Policy string

// Policies by name.
const (
	// GS picks greedily what improves the result soonest, a copy or a new task.
	GS Policy = "gs"
	// RAS copies a task only if that saves time and slots together.
	RAS Policy = "ras"
	// GRASS is RAS until samples of past jobs say that GS is better from now on.
	GRASS Policy = "grass"
	// Strawman is RAS until two waves are left, then GS.
	Strawman Policy = "strawman"
	// LATE copies the slowest quarter once no task waits (Zaharia et al., OSDI 2008).
	LATE Policy = "late"
	// Mantri copies what probably saves slots (Ananthanarayanan et al., OSDI 2010).
	Mantri Policy = "mantri"
	// None never copies.
	None Policy = "none"
	// Oracle takes the estimates as the truth and searches all schedules: small cases only.
	Oracle Policy = "oracle"
	// Ours is GRASS with what is known of caps.
	Ours Policy = "ours"
)

// Policies are all policies.
func Policies() []Policy {
	return []Policy{GS, RAS, GRASS, Strawman, LATE, Mantri, None, Oracle, Ours}
}

// ParsePolicy reads a policy's name.
func ParsePolicy(name string) (Policy, error) {
	if p := Policy(name); slices.Contains(Policies(), p) {
		return p, nil
	}
	var all []string
	for _, p := range Policies() {
		all = append(all, string(p))
	}
	return "", bad("policy %q is none of %s", name, strings.Join(all, ", "))
}

// Sentence describes the policy in one line.
func (p Policy) Sentence() string {
	return map[Policy]string{
		GS:       "what improves the result soonest: shortest first to a deadline, longest first to an error bound",
		RAS:      "the copy that saves most slot time, if one saves any; otherwise a waiting task",
		GRASS:    "ras, then gs from the point that samples of past jobs recommend; strawman without samples",
		Strawman: "ras, then gs once two waves are left",
		LATE:     "waiting tasks first, then copies of the slowest quarter, on at most a tenth of the slots",
		Mantri:   "copies that probably save slot time, then waiting tasks, largest first",
		None:     "waiting tasks only, in the order of gs",
		Oracle:   "the best of all schedules if every estimate holds; small cases only",
		Ours:     "grass with times under the nodes' caps; no copy on a node capped harder than the original's",
	}[p]
}

// Kind is what is done with a slot.
type Kind string

// Kinds of actions.
const (
	// Launch starts a waiting task.
	Launch Kind = "launch"
	// Copy starts another copy of a running task.
	Copy Kind = "copy"
	// Wait leaves the remaining slots free.
	Wait Kind = "wait"
)

// Action is what to do with one free slot; Wait is about all that are left.
type Action struct {
	Kind Kind
	// Task is its ID.
	Task int
	// Slot counts the view's Speeds from 0; the free slots are alike without them.
	Slot int
}

// Decision is the answer.
type Decision struct {
	Actions []Action
	// Greedy: the job is to be passed as Greedy from now on.
	Greedy bool
}

// Decide gives the free slots of the view to tasks, by the policy. Samples are those of
// past jobs, for GRASS and Ours; with nil, and where they are too few, the job switches as by
// Strawman.
func Decide(p Policy, v View, past *Samples) (Decision, error) {
	if err := v.Check(); err != nil {
		return Decision{}, err
	}
	v = v.filled()
	d := Decision{Greedy: v.Greedy}
	if v.Slots == 0 {
		return d, nil
	}
	switch p {
	case GS:
		d.Actions = v.give(v.greedy())
	case RAS:
		d.Actions = v.give(v.aware())
	case Strawman:
		d.Greedy = v.Greedy || v.twoWavesLeft()
		d.Actions = v.give(v.grass(d.Greedy))
	case GRASS:
		d.Greedy = v.Greedy || past.switches(&v)
		d.Actions = v.give(v.grass(d.Greedy))
	case Ours:
		d.Greedy, d.Actions = v.ours(past)
	case LATE:
		d.Actions = v.late()
	case Mantri:
		d.Actions = v.give(v.mantri())
	case None:
		d.Actions = v.give(v.plain())
	case Oracle:
		best, err := v.Search()
		if err != nil {
			return Decision{}, err
		}
		d.Actions = best.First
	default:
		return Decision{}, fmt.Errorf("%w: unknown policy %q", ErrInput, p)
	}
	return d, nil
}

// rank orders tasks: the lowest class first, and in it the highest value.
type rank struct {
	class int
	value float64
}

func (r rank) before(o rank) bool {
	return r.class < o.class || r.class == o.class && r.value > o.value
}

// ranker ranks a task, or reports that it gets no slot.
type ranker func(i int, t *Task) (rank, bool)

// give gives the free slots to the tasks of the best ranks. One decision needs no second
// look at the tasks: what has just got a slot would never get another one at once, since
// its t_rem is its t_new.
func (v *View) give(of ranker) []Action {
	if v.Slots == 1 {
		return v.giveOne(of)
	}
	type candidate struct {
		rank
		at int
	}
	var all []candidate
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State != Done {
			if r, ok := of(i, t); ok {
				all = append(all, candidate{r, i})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.value, a.value), cmp.Compare(a.at, b.at))
	})
	actions := make([]Action, 0, min(len(all)+1, v.Slots))
	for slot, c := range all[:min(len(all), v.Slots)] {
		actions = append(actions, action(&v.Tasks[c.at], slot))
	}
	if len(all) < v.Slots {
		actions = append(actions, Action{Kind: Wait, Slot: len(all)})
	}
	return actions
}

func (v *View) giveOne(of ranker) []Action {
	best, at := rank{}, -1
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State != Done {
			if r, ok := of(i, t); ok && (at < 0 || r.before(best)) {
				best, at = r, i
			}
		}
	}
	if at < 0 {
		return []Action{{Kind: Wait}}
	}
	return []Action{action(&v.Tasks[at], 0)}
}

func action(t *Task, slot int) Action {
	if t.State == Running {
		return Action{Kind: Copy, Task: t.ID, Slot: slot}
	}
	return Action{Kind: Launch, Task: t.ID, Slot: slot}
}

// grass is GS once the job has switched, RAS before.
func (v *View) grass(greedy bool) ranker {
	if greedy {
		return v.greedy()
	}
	return v.aware()
}

// greedy is GS (pseudocodes 1 and 2 with OC = 0): waiting tasks, and running ones that a
// copy overtakes. To a deadline the shortest that ends in time, to an error bound the longest of
// the earliest tasks.
func (v *View) greedy() ranker {
	inside, outside := v.scope()
	sign := v.order()
	return func(i int, t *Task) (rank, bool) {
		switch {
		case !inside(i, t):
			return outside(t)
		case t.State == Running && t.New >= t.Remaining:
			return rank{}, false
		}
		length := t.New
		if t.State == Running && !v.Bound.ByDeadline {
			length = t.Remaining
		}
		return rank{value: sign * float64(length)}, true
	}
}

// aware is RAS (OC = 1): the copy that saves most, then waiting tasks in the order of GS.
func (v *View) aware() ranker {
	inside, outside := v.scope()
	sign := v.order()
	return func(i int, t *Task) (rank, bool) {
		switch {
		case !inside(i, t):
			return outside(t)
		case t.State == Waiting:
			return rank{class: 1, value: sign * float64(t.New)}, true
		}
		saved := t.saving()
		return rank{value: saved}, saved > 0
	}
}

// plain is GS without copies.
func (v *View) plain() ranker {
	greedy := v.greedy()
	return func(i int, t *Task) (rank, bool) {
		if t.State == Running {
			return rank{}, false
		}
		return greedy(i, t)
	}
}

// saving is the slot time that one more copy saves: c t_rem - (c+1) t_new, in ns. It is
// exact below 2^53 ns, which are 104 days.
func (t *Task) saving() float64 {
	c := float64(t.Copies)
	return c*float64(t.Remaining) - (c+1)*float64(t.New)
}

// order is -1 where the shortest task comes first, 1 where the longest does.
func (v *View) order() float64 {
	if v.Bound.ByDeadline {
		return -1
	}
	return 1
}

// scope splits the tasks by the bound: to a deadline inside are those whose new copy ends
// in time and nothing else gets a slot; to an error bound inside are the earliest that are
// still needed. Where none of these wants a slot, the next waiting task gets it, the
// shortest first, in case one of them straggles (the pseudocodes' default).
func (v *View) scope() (inside func(i int, t *Task) bool, outside func(*Task) (rank, bool)) {
	const last = 2
	if v.Bound.ByDeadline {
		return func(_ int, t *Task) bool { return t.New <= v.Bound.Left },
			func(*Task) (rank, bool) { return rank{}, false }
	}
	need := v.Bound.Need(len(v.Tasks)) - v.done()
	return v.earliest(need), func(t *Task) (rank, bool) {
		return rank{class: last, value: -float64(t.New)}, t.State == Waiting && need > 0
	}
}

// earliest reports which tasks are among the first that can be done, as many as are still
// needed. Of those at the limit the lowest IDs count.
func (v *View) earliest(need int) func(i int, t *Task) bool {
	if need <= 0 {
		return func(int, *Task) bool { return false }
	}
	all := make([]time.Duration, 0, len(v.Tasks))
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State != Done {
			all = append(all, t.effective())
		}
	}
	if need >= len(all) {
		return func(int, *Task) bool { return true }
	}
	limit := nth(all, need-1)
	for _, d := range all {
		if d < limit {
			need--
		}
	}
	in := make([]bool, len(v.Tasks))
	for i := range v.Tasks {
		if v.Tasks[i].State == Done {
			continue
		}
		d := v.Tasks[i].effective()
		in[i] = d < limit
		if d == limit && need > 0 {
			in[i] = true
			need--
		}
	}
	return func(i int, _ *Task) bool { return in[i] }
}

// effective is how soon the task can be done: min(t_rem, t_new), or t_new while it waits.
func (t *Task) effective() time.Duration {
	if t.State == Running {
		return min(t.Remaining, t.New)
	}
	return t.New
}

// twoWavesLeft is the strawman's moment: the time left suffices for two waves of tasks at
// most, or the tasks that are still needed make up two waves at most.
func (v *View) twoWavesLeft() bool {
	if v.Bound.ByDeadline {
		return v.Bound.Left <= 2*v.typical()
	}
	return v.Bound.Need(len(v.Tasks))-v.done() <= 2*v.width()
}

// typical is the median task's duration.
func (v *View) typical() time.Duration {
	if v.Typical > 0 {
		return v.Typical
	}
	return median(v.news())
}
