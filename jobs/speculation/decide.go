package speculation

import (
	"slices"
	"strings"
)

// Policy states what runs next.
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

// Policies returns all policies.
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
	return "", bad("policy %q; want one of %s", name, strings.Join(all, ", "))
}

// Sentence describes the policy in one line.
func (p Policy) Sentence() string {
	return map[Policy]string{
		GS:       "fastest improvement: shortest task first for a deadline, longest first for an error bound",
		RAS:      "the copy that saves most slot time; a waiting task if no copy saves any",
		GRASS:    "ras, then gs from the point that samples of past jobs recommend; strawman without samples",
		Strawman: "ras, then gs once two waves are left",
		LATE:     "waiting tasks first, then copies of the slowest quarter, on at most a tenth of the slots",
		Mantri:   "copies that probably save slot time, then waiting tasks, largest first",
		None:     "waiting tasks only, in the order of gs",
		Oracle:   "the best schedule if every estimate is exact; small cases only",
		Ours:     "grass with task times under the nodes' caps; no copy on a node with a lower speed than the original's",
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
	// Restart are the IDs of running tasks that are to be killed and begun anew in their own
	// slots: by [Mantri] alone, and only where the view permits it.
	Restart []int
	// Greedy: the job is to be passed as Greedy from now on.
	Greedy bool
}

// Decide gives the free slots of the view to tasks, by the policy. Samples are those of
// past jobs, for GRASS and Ours; with nil, and where they are too few, the job switches as by
// Strawman.
func Decide(p Policy, v View, past *Samples) (Decision, error) {
	counted, err := v.count()
	if err != nil {
		return Decision{}, err
	}
	j := job{View: &v, counts: counted}
	if counted.unknown {
		j.usual = median(v.news())
	}
	d := Decision{Greedy: v.Greedy}
	if v.Slots == 0 {
		return d, nil
	}
	switch p {
	case GS:
		d.Actions = j.give(greedy)
	case RAS:
		d.Actions = j.give(aware)
	case Strawman:
		d.Greedy = v.Greedy || j.twoWavesLeft()
		d.Actions = j.give(grass(d.Greedy))
	case GRASS:
		d.Greedy = v.Greedy || past.switches(&j)
		d.Actions = j.give(grass(d.Greedy))
	case Ours:
		d.Greedy = v.Greedy || past.switches(&j)
		d.Actions = j.ours(d.Greedy)
	case LATE:
		d.Actions = j.late()
	case Mantri:
		d.Restart, d.Actions = j.mantri()
	case None:
		d.Actions = j.give(plain)
	case Oracle:
		best, err := v.Search()
		if err != nil {
			return Decision{}, err
		}
		d.Actions = best.First
	default:
		return Decision{}, bad("unknown policy %q", p)
	}
	return d, nil
}

func action(t *Task, slot int) Action {
	if t.State == Running {
		return Action{Kind: Copy, Task: t.ID, Slot: slot}
	}
	return Action{Kind: Launch, Task: t.ID, Slot: slot}
}
