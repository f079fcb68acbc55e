package arbiter

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"headroom/progress"
	"headroom/units"
)

// MoveKind is what is done about a job.
type MoveKind int

// The kinds of moves.
const (
	// MoveNone: nothing need be done.
	MoveNone MoveKind = iota
	// MoveSprint: its nodes run faster for a while, paid from the sprint budget.
	MoveSprint
	// MoveCap: it bears the cap of its nodes.
	MoveCap
	// MoveReallocate: it gets more or fewer containers.
	MoveReallocate
	// MoveDeflate: it runs on fewer of its tasks.
	MoveDeflate
)

// MoveKinds are all of them.
func MoveKinds() []MoveKind {
	return []MoveKind{MoveNone, MoveSprint, MoveCap, MoveReallocate, MoveDeflate}
}

// String is the kind as it is shown.
func (k MoveKind) String() string {
	return [...]string{"none", "sprint", "cap", "reallocate", "deflate"}[max(0, min(k, MoveDeflate))]
}

// Offer is what a sprint of a job would take, and what there is for it.
type Offer struct {
	// Domain pays, from Pot, the pot of the job's class, which holds Balance.
	Domain, Pot string
	Balance     units.Energy
	// Rise is by how much all of its nodes together may go above their base caps, as far as
	// the watts of every domain allow; Nodes counts them.
	Rise  units.Power
	Nodes int
	// Busy is the sprint that the domain has open, of another job or none; empty for none.
	// BusyRank is the rank of that job, and Yields tells that the sprint may be ended for one
	// of a higher rank. Ending tells that it is over and not every node is back.
	Busy           string
	BusyRank       int
	Yields, Ending bool
	// Why says why there is nothing to offer, in words; empty where there is.
	Why string
}

// Contender is one running job as Movers look at it.
type Contender struct {
	// ID tells jobs apart. Rank is the place of its class, 0 the highest; Class names it.
	ID, Class string
	Rank      int
	Tasks     int
	Dropped   int
	// Pending are its tasks that have not begun, which alone a ratio can take away; below 0
	// where the engine drops in stages to come.
	Pending int
	Floor   float64
	Elapsed time.Duration
	// Run counts its executions: another is a new beginning.
	Run uint32
	// Outlook is what Step said of it.
	Outlook Outlook
	// Deadline is when it ought to have ended, since its start, at least 1; 0 for none.
	Deadline time.Duration
	// Due tells that its sprint timer has fired. MaySprint tells that its class may sprint,
	// and MayDeflate that its discipline and engine let it run on fewer tasks later.
	Due, MaySprint, MayDeflate bool
	// SprintWords and DeflateWords say why not.
	SprintWords, DeflateWords string
	// ClassTheta is the drop ratio of its class, Theta the one in force, Seed its seed.
	ClassTheta, Theta float64
	Seed              uint64
	Deflated          bool
	// Sprint is its open sprint that was not told to end, empty without one. Own tells that the
	// job loop has granted it, and not an operator.
	Sprint string
	Own    bool
	Offer  Offer
}

// Grant is a sprint to commit: all of the job's nodes by the watts that it was offered.
type Grant struct {
	ID, Class, Domain string
	Duration          time.Duration
	// Escrow is about what is put aside.
	Escrow units.Energy
}

// EndSprint is a sprint to end.
type EndSprint struct{ Job, Sprint, Why string }

// Deflate is a drop ratio to commit.
type Deflate struct {
	ID     string
	Theta  float64
	Seed   uint64
	Reason string
}

// Move is what is done about one job.
type Move struct {
	ID   string
	Kind MoveKind
	// Reason says why, in words, with the numbers.
	Reason string
	// Energy is what it takes of the sprint budget; 0 for nothing.
	Energy units.Energy
	// Quality is the part of its tasks that it gives up by this; 0 for none.
	Quality float64
	// Time is by how much its end moves: below 0 it ends earlier. Known with TimeKnown.
	Time      time.Duration
	TimeKnown bool
	// Mark tells moves of one kind apart: another share, ratio or sprint is another move.
	Mark string
}

// Moves is the decision of one look.
type Moves struct {
	// Moves are those of all jobs, by ID.
	Moves    []Move
	Grants   []Grant
	Ends     []EndSprint
	Deflates []Deflate
}

// The hysteresis of moves. Each is a multiple of the looks, which come every 5 s or so:
// what a look has changed shows at the next, when caps have settled (0.25 s) and watts
// have been divided (1 s).
const (
	// band is by how much of its goal a job must be foreseen to miss it to be threatened,
	// and, with a deadline, to beat it to be safe.
	band = 0.05
	// aimed is the part of the time until its goal that a drop ratio is chosen by.
	aimed = 0.98
	// patience is how long a job must be threatened before anything is spent on it.
	patience = 5 * time.Second
	// sprintLeast is the shortest sprint that is granted, sprintAgain the shortest of a job
	// that has sprinted before, unless it needs less: joules are not spent as they drip in.
	// sprintRest is the time from the end of a job's sprint to its next.
	sprintLeast, sprintAgain, sprintRest = 10 * time.Second, 30 * time.Second, 10 * time.Second
	// sprintMost is the longest: what is not used comes back, but waits until then.
	sprintMost = 10 * time.Minute
	// spare is what a sprint is given beyond what it is expected to take.
	spare = 1.2
	// speedLeast is how much faster a sprint must be foreseen to make a job.
	speedLeast = 1.02
	// deflateEvery is the least time from one rise of a job's ratio to the next, thetaStep
	// the least rise, and what ratios are multiples of.
	deflateEvery, thetaStep = 20 * time.Second, 0.05
	// stepSlack keeps 0.15/0.05 from being more than 3 steps.
	stepSlack = 1e-9
)

// doings is what is remembered of one job.
type doings struct {
	run uint32
	// threat is since when it is threatened, without an end in sight; none without threatened.
	threatened bool
	threat     time.Duration
	// sprint is its sprint as last seen, and rested when the last one was seen to be over.
	sprint   string
	count    int // of the sprints that were granted
	rested   time.Duration
	slept    bool
	deflated time.Duration // when its ratio was last raised here
	raised   bool
	move     Move
	begun    bool
}

// Movers decide what is done about each job, by these rules, the first that applies:
//
//  1. A job sprints whose timer is due, or whose goal is threatened and whose class may
//     sprint, when joules and watts are there. The goal is its deadline, else, under a cap,
//     its uncapped finish time. One sprint is open in a domain at a time: it goes to the
//     highest class, then to the least slack; a job of a higher class ends the sprint of a
//     lower one. A sprint ends with the job's run, or when it is out of danger without it.
//  2. A job that may end on fewer tasks (floor below 1), that is threatened still, and that
//     neither a sprint nor containers help, is deflated by the least that meets its goal: its
//     ratio rises in steps of 0.05 at most every 20 s, and never falls.
//  3. A job whose share of the containers has changed is reallocated: that is CAB's decision.
//  4. A job that a cap slows bears the cap, and the move says what that costs in seconds.
//  5. Else nothing is done.
//
// An uncapped finish counts as threatened when it is missed by 5 % for 5 s, and as safe again
// when it is met; a deadline when it is missed for 5 s, and when it is beaten by 5 %. In
// between what stands stays. Whether a job is safe is asked of its finish time without the
// sprint, so that a sprint does not end because it works.
//
// The same inputs give the same moves; the order of jobs does not matter; nothing is kept of
// a job that is no longer named. The zero value is ready; it is not safe for concurrent use.
type Movers struct {
	jobs map[string]*doings
}

// Step looks at the running jobs of all engines. now is the time since any fixed moment.
func (m *Movers) Step(now time.Duration, jobs []Contender) Moves {
	jobs = slices.Clone(jobs)
	slices.SortFunc(jobs, func(a, b Contender) int { return cmp.Compare(a.ID, b.ID) })
	jobs = slices.CompactFunc(jobs, func(a, b Contender) bool { return a.ID == b.ID })
	m.remember(now, jobs)
	var out Moves
	decided := map[string]Move{}
	m.sprints(now, jobs, decided, &out)
	for i := range jobs {
		c := &jobs[i]
		d := m.jobs[c.ID]
		move, done := decided[c.ID]
		if !done {
			move = d.settle(now, c, &out)
		}
		move.ID = c.ID
		d.move, d.begun = move, true
		out.Moves = append(out.Moves, move)
	}
	return out
}

// remember brings the memory up to the jobs that are named.
func (m *Movers) remember(now time.Duration, jobs []Contender) {
	if m.jobs == nil {
		m.jobs = map[string]*doings{}
	}
	named := map[string]bool{}
	for i := range jobs {
		c := &jobs[i]
		named[c.ID] = true
		d := m.jobs[c.ID]
		if d == nil || d.run != c.Run {
			d = &doings{run: c.Run}
			m.jobs[c.ID] = d
		}
		if d.sprint != "" && c.Sprint == "" {
			d.rested, d.slept = now, true
		}
		d.sprint = c.Sprint
		d.watch(now, c)
	}
	maps.DeleteFunc(m.jobs, func(id string, _ *doings) bool { return !named[id] })
}

// goal is when the job ought to end, since its start, and what sets that; 0 for none.
func (c *Contender) goal() (at time.Duration, deadline bool) {
	switch o := &c.Outlook; {
	case c.Deadline > 0:
		return c.Deadline, true
	case o.Capped && o.Uncapped > 0:
		return o.Uncapped, false
	}
	return 0, false
}

// watch follows whether the goal is threatened.
func (d *doings) watch(now time.Duration, c *Contender) {
	goal, deadline := c.goal()
	slow := c.Outlook.Slow
	if goal == 0 || !slow.Known {
		d.threatened = false
		return
	}
	beyond, within := 1+band, 1.0
	if deadline {
		beyond, within = 1, 1-band
	}
	switch {
	case float64(slow.At) <= within*float64(goal):
		d.threatened = false
	case !d.threatened && float64(slow.At) > beyond*float64(goal):
		d.threatened, d.threat = true, now
	}
}

// pressed tells whether the job has been threatened for long enough to act, and is.
func (d *doings) pressed(now time.Duration, c *Contender) bool {
	goal, _ := c.goal()
	return d.threatened && now-d.threat >= patience && c.Outlook.Slow.At > goal
}

// sprints decides who sprints, and who does no longer.
func (m *Movers) sprints(now time.Duration, jobs []Contender, decided map[string]Move, out *Moves) {
	var want []*Contender
	taken, ended := map[string]bool{}, map[string]bool{}
	for i := range jobs {
		c := &jobs[i]
		d := m.jobs[c.ID]
		switch {
		case c.Sprint != "" && d.over(c):
			out.Ends = append(out.Ends, EndSprint{c.ID, c.Sprint, "its goal is safe without it"})
		case c.Sprint != "":
			decided[c.ID] = d.sprinting(c)
			taken[c.Offer.Domain] = true
		case c.Due || c.MaySprint && d.pressed(now, c):
			want = append(want, c)
		}
	}
	slices.SortStableFunc(want, func(a, b *Contender) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.slack(), b.slack()))
	})
	for _, c := range want {
		d, o := m.jobs[c.ID], &c.Offer
		if o.Busy != "" && o.Yields && !o.Ending && o.BusyRank > c.Rank && !ended[o.Busy] && o.Why == "" {
			ended[o.Busy] = true
			out.Ends = append(out.Ends, EndSprint{Sprint: o.Busy, Why: "job " + c.ID + " is of a higher class"})
			decided[c.ID] = Move{Kind: MoveNone, Reason: c.aim() + "; it sprints once sprint " + o.Busy + " of a lower class, which ends for it, is over"}
			continue
		}
		if d.hindered(now, c, taken[o.Domain]) != "" {
			continue
		}
		g := Grant{ID: c.ID, Class: c.Class, Domain: o.Domain, Duration: c.stretch()}
		g.Escrow = energyOf(o.Rise, g.Duration)
		taken[o.Domain] = true
		out.Grants = append(out.Grants, g)
		decided[c.ID] = d.granted(c, &g)
	}
}

// over tells whether a sprint that the loop has granted is no longer needed: one that the
// timer has begun lasts as long as the job.
func (d *doings) over(c *Contender) bool {
	goal, _ := c.goal()
	return c.Own && !c.Due && goal > 0 && c.Outlook.Slow.Known && !d.threatened
}

// slack is how long before its goal the job will end without a sprint; one without a goal
// has all the time there is.
func (c *Contender) slack() time.Duration {
	goal, _ := c.goal()
	if goal == 0 || !c.Outlook.Slow.Known {
		return math.MaxInt64
	}
	return goal - c.Outlook.Slow.At
}

// hindered is why the job cannot sprint now, in words; empty when it can.
func (d *doings) hindered(now time.Duration, c *Contender, taken bool) string {
	o := &c.Offer
	speed, known := c.speed()
	switch {
	case o.Why != "":
		return o.Why
	case o.Busy != "":
		return "sprint " + o.Busy + " is open in " + o.Domain
	case taken:
		return "another job sprints in " + o.Domain
	case o.Rise <= 0:
		return "no watts are left above the caps of its nodes"
	case d.slept && now-d.rested < sprintRest:
		return "its last sprint has just ended"
	case known && speed < speedLeast:
		return "it would hardly be faster: " + times(speed)
	}
	if least := d.leastSprint(c); energyOf(o.Rise, least) > o.Balance {
		return fmt.Sprintf("the sprint budget of %s has %v, %.0f s take %v", o.pot(), o.Balance, least.Seconds(), energyOf(o.Rise, least))
	}
	return ""
}

// leastSprint is the shortest sprint that is worth its beginning.
func (d *doings) leastSprint(c *Contender) time.Duration {
	if !d.slept {
		return sprintLeast
	}
	return max(sprintLeast, min(sprintAgain, c.needs()))
}

// speed is how many times as fast the job is in a sprint.
func (c *Contender) speed() (times float64, known bool) {
	slow, fast := c.Outlook.Slow, c.Outlook.Fast
	if !slow.Known || !fast.Known || fast.At <= c.Elapsed || slow.At <= c.Elapsed {
		return 0, false
	}
	return float64(slow.At-c.Elapsed) / float64(fast.At-c.Elapsed), true
}

// stretch is how long a sprint is to last: to the job's end when its timer is due, and else
// as long as its goal needs; as far as the joules go.
func (c *Contender) stretch() time.Duration {
	longest := time.Duration(float64(c.Offer.Balance) / float64(c.Offer.Rise) * float64(time.Second))
	return min(max(c.needs(), sprintLeast), longest, sprintMost).Truncate(time.Millisecond)
}

// needs is how long a sprint is to last, whatever it takes.
func (c *Contender) needs() time.Duration {
	goal, _ := c.goal()
	needs := sprintMost
	if s, known := c.speed(); known {
		needs = c.Outlook.Fast.At - c.Elapsed
		if left, has := c.Outlook.Slow.At-c.Elapsed, goal-c.Elapsed; !c.Due && has > 0 && s > 1 {
			needs = min(needs, time.Duration(float64(left-has)/(s-1)))
		}
		needs = time.Duration(spare * float64(needs))
	}
	return needs
}

// settle is the move of a job that does not sprint.
func (d *doings) settle(now time.Duration, c *Contender, out *Moves) Move {
	if x, ok := d.deflation(now, c); ok {
		out.Deflates = append(out.Deflates, x)
		d.deflated, d.raised = now, true
		return d.deflate(c, x)
	}
	switch {
	case c.Outlook.Moved && c.Outlook.Had > 0:
		return c.reallocated()
	case c.Deflated && units.Ratio(c.Theta).Above(units.Ratio(c.ClassTheta)) && d.begun && d.move.Kind == MoveDeflate && d.move.Mark == mark(c.Theta):
		return d.move
	case c.Outlook.CapShare > 0 && c.Outlook.CapShare < bite:
		return d.borne(now, c)
	}
	return d.none(now, c)
}

// deflation is the rise of the job's drop ratio that its goal needs, if it may rise now.
func (d *doings) deflation(now time.Duration, c *Contender) (Deflate, bool) {
	if !c.MayDeflate || !d.pressed(now, c) || d.raised && now-d.deflated < deflateEvery || c.Outlook.Moved || !sure(c.Outlook.Slow, c.Elapsed) {
		return Deflate{}, false
	}
	theta := c.least()
	if most := 1 - c.Floor; c.Floor <= 0 || theta > most {
		theta = most
	}
	if c.Pending >= 0 {
		theta = min(theta, float64(c.Dropped+c.Pending)/float64(max(1, c.Tasks)))
	}
	if c.Floor <= 0 || c.Floor >= 1 || theta < c.Theta+thetaStep/5 {
		return Deflate{}, false
	}
	x := Deflate{ID: c.ID, Theta: theta, Seed: c.Seed}
	x.Reason = d.deflateWords(now, c, theta)
	return x, true
}

// least is the least ratio that meets the job's goal, in steps, above the one in force.
func (c *Contender) least() float64 {
	goal, _ := c.goal()
	if c.Outlook.PerTask <= 0 || c.Tasks <= 0 {
		return 0
	}
	aim := c.Elapsed + time.Duration(aimed*float64(max(0, goal-c.Elapsed)))
	more := math.Ceil(float64(c.Outlook.Slow.At-aim) / float64(c.Outlook.PerTask))
	theta := max(c.Theta, (float64(c.Dropped)+max(0, more))/float64(c.Tasks))
	steps := math.Ceil(theta/thetaStep - stepSlack)
	return math.Round(1e9*max(steps*thetaStep, c.Theta+thetaStep)) / 1e9
}

// energyOf is what power takes in a time.
func energyOf(p units.Power, d time.Duration) units.Energy {
	return units.Energy(float64(p) * d.Seconds())
}

// shift is by how much the end moves from one finish time to another.
func shift(from, to progress.Finish) (time.Duration, bool) {
	if !from.Known || !to.Known {
		return 0, false
	}
	return to.At - from.At, true
}
