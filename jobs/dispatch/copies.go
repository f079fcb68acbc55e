package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/jobs/speculation"
)

const (
	// roundsMost bounds the efforts to place what one decision wants: what found no node is
	// left out of the next, and the last starts waiting tasks alone.
	roundsMost = 4
	// copyAfter is how long a task runs before it may be copied: about how often workers speak.
	// What shorter tasks take is mostly chance.
	copyAfter = time.Second
	// attemptsMost bounds the attempts of a task that run at once: one that is late on so many
	// nodes is long, not slow.
	attemptsMost = 3
	// exploreSalt sets the draw of a job's policy apart from those of its drops.
	exploreSalt = 0x9e3779b97f4a7c15
)

// Speculation states how copies of tasks are decided on. The zero value starts none.
type Speculation struct {
	// Policy is one of package speculation's; empty is none.
	Policy speculation.Policy
	// Xi is the part of jobs that run one policy all through, to teach the others.
	Xi float64
}

// Speculate takes over how copies are decided on, for jobs that begin from here on.
func (c *Core) Speculate(s Speculation) { c.rule = s }

// explore chooses the policy of a run that begins.
func (c *Core) explore(j *job) {
	g := &j.est
	g.policy, g.sample = c.rule.Policy, false
	if j.Engine != "" || !j.bounded() || !(g.policy == speculation.GRASS || g.policy == speculation.Ours) {
		return
	}
	const bits = 53 // of a float64's mantissa
	draw := float64(c.draws(j.run.Seed^exploreSalt)()>>(64-bits)) / (1 << bits)
	if p, sample := speculation.Explore(c.rule.Xi, draw); sample {
		g.policy, g.sample = p, true
	}
}

// speculates reports whether a policy chooses the job's tasks: it has a promise to keep, or
// its share gives it copies.
func (c *Core) speculates(j *job) bool {
	most, _ := c.copiesGiven(j)
	return j.est.active() && (j.ErrorBound || !j.Deadline.IsZero() || most > 0)
}

// copiesGiven returns how many copies of a job's tasks may run by its share.
func (c *Core) copiesGiven(j *job) (most int, given bool) {
	for _, s := range c.shares {
		if s.Job == j.ID && s.Copies != nil {
			return *s.Copies, true
		}
	}
	return 0, false
}

// copies returns how many copies of the job's tasks run, the originals left out.
func (j *job) copies() int { return j.held - j.running }

// choose hands slots to map tasks and copies of them as the job's policy says. It reports
// whether that is settled; otherwise tasks start in their order.
func (c *Core) choose(now time.Time, j *job, free map[string]int, most int) bool {
	if j.done+j.dropped >= j.Tasks || j.est.base == 0 || !c.speculates(j) {
		return false
	}
	if len(free) == 0 || min(most, j.Slots) <= j.held {
		return true
	}
	policy, bound, barred := j.est.policy, j.bound(now), j.nobody()
	if c.copiesLeft(j) <= 0 {
		policy = speculation.None
	}
	for round := range roundsMost {
		if round == roundsMost-1 {
			policy = speculation.None
		}
		speeds := c.fastest(j, free, min(most, j.Slots)-j.held)
		if len(speeds) == 0 {
			return true
		}
		d, err := speculation.Decide(policy, c.look(now, j, bound, speeds, barred), c.past)
		if err != nil {
			return false
		}
		if policy == j.est.policy {
			j.est.greedy = d.Greedy
		}
		switch refused := c.carryChoice(now, j, d.Actions, speeds, free, barred); {
		case refused:
		case bound.ByDeadline && j.done+j.running < j.floor():
			bound = j.least() // what cannot end in time serves the floor
		default:
			return true
		}
	}
	return true
}

// nobody returns room to bar tasks of the job; no task is barred.
func (j *job) nobody() []bool {
	j.est.barred = append(j.est.barred[:0], make([]bool, len(j.maps))...)
	return j.est.barred
}

// fastest returns the speeds of the free slots, n at most, the fastest first.
func (c *Core) fastest(j *job, free map[string]int, n int) []float64 {
	speeds := j.est.speeds[:0]
	for node, slots := range free {
		for range slots {
			speeds = append(speeds, c.speed(node))
		}
	}
	slices.SortFunc(speeds, func(a, b float64) int { return cmp.Compare(b, a) })
	j.est.speeds = speeds
	return speeds[:max(0, min(n, len(speeds)))]
}

// look returns the job as its policy sees it. Tasks are numbered by the place at which they start.
// It adds to the barred tasks those of which no copy may start.
func (c *Core) look(now time.Time, j *job, bound speculation.Bound, speeds []float64, barred []bool) speculation.View {
	accuracy, _ := c.accuracy.Value()
	v := speculation.View{
		Bound: bound, Slots: len(speeds), Speeds: speeds, Width: max(1, min(j.Slots, c.Capacity())), Typical: j.est.base,
		Durations: j.est.ratios, Utilisation: c.utilisation(), Accuracy: accuracy, Greedy: j.est.greedy,
		Tasks: slices.Grow(j.est.view[:0], j.Tasks-j.dropped),
	}
	for place := range j.Tasks {
		i := j.id(place)
		t := &j.maps[i]
		switch t.state {
		case taskDone:
			v.Tasks = append(v.Tasks, speculation.Task{ID: place, State: speculation.Done})
		case taskPending:
			v.Tasks = append(v.Tasks, speculation.Task{ID: place, New: j.expects(i, 1)})
		case taskRunning:
			x := c.lookAt(now, j, i)
			x.ID = place
			if barred[i] = barred[i] || !j.copyable(now, t); barred[i] {
				x.Remaining = 0 // as if it were about to end
			}
			v.Tasks = append(v.Tasks, x)
		case taskDropped:
		}
	}
	j.est.view, j.est.utilisation = v.Tasks, v.Utilisation
	return v
}

// copyable reports whether a copy of a running task may start: it has run for a while, may fail
// once more and has not been late several times over.
func (j *job) copyable(now time.Time, t *task) bool {
	return t.failures < j.MaxAttempts && len(t.runs) < attemptsMost && t.runs[0].ran(now) >= copyAfter
}

// lookAt returns a running task by the attempt that will end first as its node's cap is now.
func (c *Core) lookAt(now time.Time, j *job, index int) speculation.Task {
	t := &j.maps[index]
	x := speculation.Task{State: speculation.Running, New: j.expects(index, 1), Copies: min(len(t.runs), speculation.CopiesMost), Remaining: -1}
	soonest := 0.0
	for n, a := range t.runs {
		left, speed := j.left(now, index, a), c.speed(a.node)
		if ends := float64(left) * a.speed / speed; n == 0 || ends < soonest {
			soonest = ends
			x.Remaining, x.Speed, x.Measured = left, speed, a.speed
		}
	}
	return x
}

// copiesLeft returns how many more copies the job's share permits.
func (c *Core) copiesLeft(j *job) int {
	if !c.speculates(j) {
		return 0
	}
	if most, given := c.copiesGiven(j); given {
		return most - j.copies()
	}
	return j.Tasks
}

// id returns the map task that starts at a place.
func (j *job) id(place int) int {
	if j.places == nil {
		return place
	}
	if j.est.ids == nil {
		j.est.ids = make([]int, j.Tasks)
		for i, p := range j.places {
			j.est.ids[p] = i
		}
	}
	return j.est.ids[place]
}

// carryChoice starts what was decided. It reports whether a copy found no node: then that
// task is barred, and its slot is still to be given.
func (c *Core) carryChoice(now time.Time, j *job, actions []speculation.Action, speeds []float64, free map[string]int, barred []bool) (refused bool) {
	for _, a := range actions {
		if a.Kind == speculation.Wait {
			break
		}
		i := j.id(a.Task)
		node := ""
		if a.Kind == speculation.Launch || c.copiesLeft(j) > 0 && !barred[i] {
			node = c.spot(j, i, speeds[a.Slot], free)
		}
		if node == "" {
			barred[i], refused = true, true
			continue
		}
		if a.Kind == speculation.Copy {
			j.est.said = c.why(now, j, i, node)
		}
		c.start(now, j, PhaseMap, i, node, free)
	}
	return refused
}

// spot returns the free node for a task that waits, or for a copy of one that runs: one of the
// speed that was decided on where the policy knows speeds, the roomiest of them. A copy runs
// beside no other attempt, and on no node that is capped harder than the fastest of these.
func (c *Core) spot(j *job, index int, speed float64, free map[string]int) string {
	t := &j.maps[index]
	least := 0.0
	for _, a := range t.runs {
		least = max(least, c.speed(a.node))
	}
	fits := maps.Clone(free)
	maps.DeleteFunc(fits, func(node string, _ int) bool { return t.on(node) || c.speed(node) < least })
	if j.est.policy == speculation.Ours {
		alike := maps.Clone(fits)
		maps.DeleteFunc(alike, func(node string, _ int) bool { return c.speed(node) != speed || node == t.avoid })
		if len(alike) > 0 {
			fits = alike
		}
	}
	return roomiest(fits, t.avoid)
}

// why returns a copy in words.
func (c *Core) why(now time.Time, j *job, index int, node string) string {
	x := c.lookAt(now, j, index)
	stage := ""
	if j.est.greedy {
		stage = ", greedy because few tasks are left"
	}
	if j.est.sample {
		stage = ", for the whole job as a sample"
	}
	return fmt.Sprintf("%s%s: map task %d runs on %s and needs %s more, a copy on %s %s",
		j.est.policy, stage, index, j.maps[index].runs[0].node, seconds(float64(x.Remaining)*x.Measured/x.Speed), node,
		seconds(float64(j.expects(index, c.speed(node)))))
}

// seconds returns a duration in words, of nanoseconds.
func seconds(ns float64) string { return fmt.Sprintf("%.3g s", ns/float64(time.Second)) }

// wanted counts the copies that the job would start if it had the slots, and by how much sooner
// its needed tasks would then be done, as far as estimates say.
func (c *Core) wanted(now time.Time, j *job) (copies int, save time.Duration, known bool) {
	if j.state != Running || !j.ready() || !j.est.active() || j.est.base == 0 || j.done+j.dropped >= j.Tasks {
		return 0, 0, false
	}
	if !c.late(now, j) {
		return 0, 0, true
	}
	barred := j.nobody()
	v := c.look(now, j, j.bound(now), nil, barred)
	v.Slots = min(speculation.SlotsMost, 2*len(v.Tasks))
	d, err := speculation.Decide(j.est.policy, v, c.past)
	if err != nil {
		return 0, 0, false
	}
	copied := make(map[int]bool)
	for _, a := range d.Actions {
		if a.Kind == speculation.Copy && !barred[j.id(a.Task)] {
			copied[a.Task] = true
		}
	}
	return len(copied), soonest(v, nil) - soonest(v, copied), true
}

// late reports whether a running task needs longer than a new copy of it at full speed would,
// which saves most decisions.
func (c *Core) late(now time.Time, j *job) bool {
	for i := range j.maps {
		if t := &j.maps[i]; t.state == taskRunning && j.copyable(now, t) {
			if x := c.lookAt(now, j, i); float64(x.Remaining)*x.Measured > float64(x.New)*x.Speed {
				return true
			}
		}
	}
	return false
}

// soonest returns when the last task that is needed ends, if those that wait began now and the
// copies ran.
func soonest(v speculation.View, copied map[int]bool) time.Duration {
	var all []time.Duration
	need := len(v.Tasks)
	if !v.Bound.ByDeadline {
		need = v.Bound.Need(len(v.Tasks))
	}
	for i := range v.Tasks {
		switch t := &v.Tasks[i]; {
		case t.State == speculation.Done:
			need--
		case t.State == speculation.Waiting:
			all = append(all, t.New)
		case copied[t.ID]:
			all = append(all, min(t.New, max(0, t.Remaining)))
		default:
			all = append(all, max(0, t.Remaining))
		}
	}
	slices.Sort(all)
	if need = min(need, len(all)); need <= 0 {
		return 0
	}
	return all[need-1]
}
