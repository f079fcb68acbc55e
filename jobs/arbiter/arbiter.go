// Package arbiter is the decision of the coordinators' job loop: which job gets containers, sprints, drops tasks or
// runs under a cap, from the progress of the jobs and the effect of caps on their nodes.
//
// The one idea: all decisions about a job are compared in one unit. The objective is the sum of weighted seconds over
// all jobs. A second by which a job ends later costs 1 in the highest class and a twentieth of that in each next one;
// a second past a deadline costs three times as much; dropping a percent of a job's tasks costs as much as 3 s of it,
// and more the more was dropped already. Movers use four levers:
//   - containers: who is served first, and so how many each may hold, never more than a known scaling curve permits;
//   - sprints: whose nodes run above their caps, paid with energy of the sprint budget;
//   - drop ratios: how many tasks a job drops, paid in quality;
//   - holds: which nodes give power to others for some seconds.
//
// An Arbiter monitors the jobs of one engine: with package progress it learns when each will end, with and without a
// cap, and what is left of it. Without Settings.Joint it also divides that engine's containers by a policy of package
// containers and stops jobs early, as CAB does. The caller gathers an Input and a Look every few seconds, and commits
// and sends the contents of the Decision and the Moves.
//
// Guarantees:
//   - shares fit the available containers;
//   - a ratio only rises, never beyond a job's floor or the tasks that have not started;
//   - a sprint uses at most the balance of its pot, and for a lower class at most the part above the reserve;
//   - at most one sprint is open in a domain;
//   - a hold ends by itself, and no node is held whose jobs would miss a deadline by it;
//   - an early stop comes only after the committed uncapped finish time, with the floor's tasks done or running, and
//     only if a cap has slowed the job.
//
// Each running job has one move with its reason. The order of jobs does not matter, and the same inputs give the same
// decisions.
//
// The package reads no clock, starts nothing, commits nothing and sends nothing. It never changes a budget, lowers a
// ratio, kills a task or takes a container that is in use.
package arbiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"headroom/jobs/containers"
	"headroom/progress"
	"headroom/units"
)

// Settings are the settings of the loop.
type Settings struct {
	// Estimator is the policy of the finish times, Containers that of the shares.
	Estimator  progress.Policy
	Containers containers.Policy
	// Damping prevents shares from following noise.
	Damping containers.Damping
	// Joint leaves containers and tasks to Movers, which weigh them against the other levers: then Step divides nothing
	// and stops no job.
	Joint bool
}

// DefaultSettings returns the policies learned and stretch.
func DefaultSettings() Settings {
	return Settings{Estimator: progress.Learned, Containers: containers.Stretch, Damping: containers.DefaultDamping()}
}

// Job is one running job, as reported and as committed.
type Job struct {
	// ID identifies the job; Name is the name that its user gave: jobs of one name are similar.
	ID, Name string
	// Queue is the engine's queue, for messages only.
	Queue string
	// Tasks are its map tasks, Done those that have ended, Running and Pending those that run and that have not
	// started; Dropped will never run.
	Tasks, Done, Running, Pending, Dropped int
	// Work is the map work done, in tasks; below 0 when unknown.
	Work  float64
	Phase progress.Phase
	// Reduced is the reduce work done, 0 to 1; below 0 for a job without any, or when unknown.
	Reduced float64
	// Elapsed is the time since its first task started; 0 before that.
	Elapsed time.Duration
	// Floor is the minimum fraction of its tasks for a result; see containers.MinTasks.
	Floor float64
	// Uncapped is its committed uncapped finish time, since its start; 0 while there is none.
	Uncapped time.Duration
	// Stopped is true once an early stop is committed.
	Stopped bool
	// Held is how many containers it holds, including the job's own.
	Held int
	// Power is the cap now, Full the power at full speed, weighted over its nodes; 0
	// when unknown.
	Power, Full units.Power
	// Base is the cap of its nodes without a sprint, Fast their cap in one, with the same weights; 0 if unknown, Fast
	// also if no sprint is possible.
	Base, Fast units.Power
	// ByRatio is true if its engine drops tasks by a ratio, and not by an early stop: all tasks that are not dropped
	// must run.
	ByRatio bool
	// Error is the fraction of its tasks that it may miss by its error bound: it ends as soon as the others are done. 0
	// for none.
	Error float64
	// Curve is its speed-up over its containers for tasks, by its earlier runs; nil while unknown.
	Curve *containers.Curve
}

// Ended is a job that is done, with its true runtime.
type Ended struct {
	ID string
	// Runtime is from the start of its first task to its end.
	Runtime time.Duration
}

// Input is the input of one step.
type Input struct {
	Settings Settings
	// Containers is the total number; 0 if unknown, or if shares cannot be set: then none are.
	Containers int
	// Overhead is how many each job takes in addition to its tasks.
	Overhead int
	Jobs     []Job
	// Ended are jobs that are done; unknown ones are ignored.
	Ended []Ended
}

// Share is what one job may hold, including its own containers.
type Share struct {
	ID         string
	Containers int
	// Copies is how many copies of tasks it may run among them, if Bounded; otherwise its engine decides.
	Copies  int
	Bounded bool
}

// Uncapped is an uncapped finish time to commit.
type Uncapped struct {
	ID string
	At time.Duration
}

// Stop is an early stop to commit.
type Stop struct {
	ID string
	// Tasks are the job's map tasks, MinTasks the minimum that must be completed.
	Tasks, MinTasks int
	// Reason is why, with the numbers.
	Reason string
}

// Outlook is what is expected of one job and decided about it.
type Outlook struct {
	ID string
	// Finish is its expected end, since its start, with bounds that hold in 9 of 10 cases.
	Finish progress.Finish
	// Uncapped is its end without a cap; 0 while unknown. Low and High bound it in 9 of 10 cases; 0 if another arbiter
	// has estimated it.
	Uncapped, UncappedLow, UncappedHigh time.Duration
	// CapShare is the fraction of full power that the caps of its nodes permit; 0 if unknown.
	CapShare float64
	// MinTasks is the minimum with which it will end, AimTasks the present target.
	MinTasks, AimTasks int
	// Containers is its share; 0 if the engine divides the containers.
	Containers int
	Policy     containers.Policy
	// Moved is true if Containers differs from the share of the previous step, Had.
	Moved bool
	Had   int
	// Slow is its end without any sprint, Fast with a sprint from now on to its end; unknown if Finish is, and Fast
	// also if no sprint is possible.
	Slow, Fast progress.Finish
	// Rest is what is left of it at its base cap, with all of its tasks that are not dropped.
	Rest progress.Rest
	// Speed is how many times as fast it is in a sprint; 0 if none is possible or its power is unknown.
	Speed float64
	// PerTask is how much earlier it ends for each dropped task; 0 while unknown.
	PerTask time.Duration
	// Capped is true if a cap slows it, or has slowed it.
	Capped bool
	// Why states it in words, with the numbers.
	Why string
}

// Verdict is the accuracy of both estimators for an ended job.
type Verdict struct {
	ID string
	// Errors are those of the policies Learned and Paper, or of the deciding one; empty if there were never finish
	// times by both.
	Errors []progress.Verdict
}

// Decision is the result of one step.
type Decision struct {
	// Changed is true if Shares replace the previous ones; the engine decides about jobs that are not named there.
	Changed bool
	Shares  []Share
	// Uncapped and Stops are to be committed.
	Uncapped []Uncapped
	Stops    []Stop
	// Outlooks are those of all jobs, Verdicts of those that ended since the previous step. All lists are ordered by
	// ID.
	Outlooks []Outlook
	Verdicts []Verdict
	// Trouble states which jobs get no containers, and why; empty if none.
	Trouble string
}

// memory is the state of one job.
type memory struct {
	job     Job
	tracker *progress.Tracker
	// other is the estimator that decides nothing: when the job is done, score reports the errors of both.
	other *progress.Tracker
	score progress.Score
	seen  bool
	// capped is whether a cap has slowed it; frozen whether its uncapped finish time stays unchanged.
	capped, frozen bool
	// uncapped is its uncapped finish time as last committed or decided, low and high its
	// bounds where it was estimated here.
	uncapped, low, high time.Duration
	share               int           // as last decided; 0: none
	had                 int           // the share at the step before
	aim                 int           // tasks beyond its floor that are aimed at
	lost                time.Duration // to caps, as far as it was seen here
}

// Arbiter decides for one engine. The zero value is ready. It is not safe for
// concurrent use.
type Arbiter struct {
	jobs map[string]*memory
	pool progress.Pool

	estimator progress.Policy
	// The previous division: when, how, and how much. divided is false while the engine divides.
	divided  bool
	began    bool
	at       time.Duration
	policy   containers.Policy
	total    int
	overhead int
}

// Taught returns an arbiter that starts with what earlier jobs have shown.
func Taught(pool *progress.Pool) *Arbiter { return &Arbiter{pool: pool.Clone()} }

// Step decides about the jobs. now is the time since any fixed moment.
func (a *Arbiter) Step(now time.Duration, in Input) Decision {
	in.Jobs = slices.Clone(in.Jobs)
	slices.SortFunc(in.Jobs, func(x, y Job) int { return strings.Compare(x.ID, y.ID) })
	in.Jobs = slices.CompactFunc(in.Jobs, func(x, y Job) bool { return x.ID == y.ID })
	var d Decision
	joined := a.remember(in, &d)
	for i := range in.Jobs {
		m := a.jobs[in.Jobs[i].ID]
		m.observe(in.Overhead)
		if at, ok := m.commit(&in); ok {
			d.Uncapped = append(d.Uncapped, Uncapped{ID: m.job.ID, At: at})
		}
	}
	if in.Settings.Joint {
		a.forget()
	} else {
		a.divide(now, in, joined, &d)
	}
	for i := range in.Jobs {
		m := a.jobs[in.Jobs[i].ID]
		if stop, ok := m.stop(); ok && !in.Settings.Joint {
			d.Stops = append(d.Stops, stop)
		}
		d.Outlooks = append(d.Outlooks, m.outlook(&in))
		m.note(&in)
	}
	return d
}

// remember updates the memory to the given jobs, and reports whether the set of jobs has changed. What ended jobs have
// shown is kept for later jobs of their names.
func (a *Arbiter) remember(in Input, d *Decision) (changed bool) {
	if a.jobs == nil || a.estimator != in.Settings.Estimator {
		a.jobs, a.estimator, changed = map[string]*memory{}, in.Settings.Estimator, true
	}
	named := map[string]bool{}
	for i := range in.Jobs {
		j := &in.Jobs[i]
		named[j.ID] = true
		m := a.jobs[j.ID]
		if m == nil {
			prior := a.pool.Prior(j.Name)
			m = &memory{
				tracker: progress.NewTrackerWith(in.Settings.Estimator, prior), other: progress.NewTrackerWith(beside(in.Settings.Estimator), prior),
			}
			a.jobs[j.ID], changed = m, true
		}
		m.passed(j.Elapsed - m.job.Elapsed)
		m.job = *j
	}
	for id, m := range a.sorted() {
		if !named[id] {
			if i := slices.IndexFunc(in.Ended, func(e Ended) bool { return e.ID == id }); i >= 0 {
				d.Verdicts = append(d.Verdicts, Verdict{ID: id, Errors: m.score.Judge(in.Ended[i].Runtime)})
				m.tracker.End(in.Ended[i].Runtime, m.job.needed())
			}
			a.pool.Learn(m.job.Name, m.tracker)
			delete(a.jobs, id)
			changed = true
		}
	}
	return changed
}

// sorted yields the memory by ID, so that what is learned does not depend on map order.
func (a *Arbiter) sorted() func(yield func(string, *memory) bool) {
	return func(yield func(string, *memory) bool) {
		var ids []string
		for id := range a.jobs {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range ids {
			if !yield(id, a.jobs[id]) {
				return
			}
		}
	}
}

// beside returns the policy that is evaluated in addition to the deciding one.
func beside(p progress.Policy) progress.Policy {
	if p == progress.Paper {
		return progress.Learned
	}
	return progress.Paper
}

// passed adds what a cap has cost the job since it was last seen.
func (m *memory) passed(d time.Duration) {
	if m.job.Elapsed > 0 && d > 0 {
		m.lost += time.Duration(float64(d) * m.costs())
	}
}

// costs returns the fraction of its time that the present cap costs the job.
func (m *memory) costs() float64 {
	if !m.job.bitten() {
		return 0
	}
	return 1 - 1/m.tracker.Faster(m.job.Power, m.job.Full)
}

// observe feeds the trackers. Observations that they refuse are ignored: the next report comes soon, and a restarted
// application master is a known new beginning.
func (m *memory) observe(overhead int) {
	j := &m.job
	o := progress.Observation{
		Elapsed: j.Elapsed, Tasks: j.Tasks, Done: j.Done, Work: j.Work, Phase: j.Phase, Reduced: j.Reduced,
		Power: j.Power, Full: j.Full, Containers: float64(max(0, j.Held-overhead)),
	}
	_ = m.tracker.Observe(o)
	_ = m.other.Observe(o)
	if j.bitten() {
		m.capped = true
	}
}

// bite is the fraction of its full power below which a job counts as slowed: caps at the power that a node uses anyway
// have no effect.
const bite = 0.99

// bitten reports whether caps slow the job now.
func (j *Job) bitten() bool {
	return j.Power > 0 && j.Full > 0 && float64(j.Power) < bite*float64(j.Full)
}

// moved is by how much an uncapped finish time must change to be committed again.
const moved = 0.05

// commit returns the uncapped finish time to commit, if there is one: the first that is known, and a changed one while
// no cap has slowed the job. A committed one of a job that was already running stays: it is unknown here what has
// slowed it.
func (m *memory) commit(in *Input) (time.Duration, bool) {
	j := &m.job
	first := !m.seen
	m.seen = true
	if j.Uncapped > 0 {
		if m.uncapped = j.Uncapped; m.uncapped < m.low || m.uncapped > m.high {
			m.low, m.high = 0, 0 // another arbiter has estimated it
		}
		m.frozen = m.frozen || first && j.Elapsed > 0
	}
	m.frozen = m.frozen || m.capped && m.uncapped > 0 || j.Stopped
	if m.frozen || j.Tasks == 0 || j.Elapsed == 0 {
		return 0, false
	}
	on := j.Tasks
	if j.ByRatio || j.Error > 0 {
		on = j.needed()
	}
	f := m.tracker.Uncapped(float64(m.tasksOn(in, in.equal())), float64(on))
	if !f.Known || f.At <= 0 || m.capped && !sure(f, j.Elapsed) {
		return 0, false
	}
	if near := float64(f.At-m.uncapped) / float64(max(1, m.uncapped)); m.uncapped > 0 && near > -moved && near < moved {
		return 0, false
	}
	m.uncapped, m.low, m.high = f.At, f.Low, f.High
	return f.At, true
}

// sure reports whether an estimate is good enough for the rest of a job's life, as that of a job that starts under a
// cap: its bounds are close, or much of the job is over.
func sure(f progress.Finish, elapsed time.Duration) bool {
	return float64(f.High-f.Low) < 0.5*float64(f.At) || 3*elapsed > f.At
}

// equal returns a job's equal share of all containers; what it holds if those are unknown.
func (in *Input) equal() int {
	if in.Containers == 0 {
		return 0
	}
	return max(in.Overhead+1, in.Containers/len(in.Jobs))
}

// tasksOn returns how many containers run tasks of a job with this share; those it holds without a share.
func (m *memory) tasksOn(in *Input, share int) int {
	if share == 0 {
		share = m.job.Held
	}
	return max(1, share-in.Overhead)
}

// minTasks returns the minimum number of tasks with which the job may end: its floor's, or all that its drop ratio has
// left.
func (j *Job) minTasks() int {
	if j.ByRatio {
		return max(containers.MinTasks(j.Tasks, j.Floor), j.needed())
	}
	return containers.MinTasks(j.Tasks, j.Floor)
}

// needed returns how many of its tasks must be done for it to end: those that are not dropped, or those that its error
// bound requires.
func (j *Job) needed() int {
	return min(j.Tasks-j.Dropped, required(j.Tasks, j.Floor, fraction(j.Error)))
}

// required returns how many of n tasks a job with an error bound must do, which its floor may raise; all of them
// without one.
func required(n int, floor, bound float64) int {
	if bound == 0 {
		return n
	}
	return max(units.Ratio(floor).Least(n), units.Ratio(1-bound).Kept(n))
}

// stop decides the early stop, by the committed uncapped finish time, not by one of this step.
func (m *memory) stop() (Stop, bool) {
	j, least := &m.job, m.job.minTasks()
	if j.Stopped || j.ByRatio || !m.capped || j.Phase >= progress.Shuffle || !containers.MayStop(j.Elapsed, j.Uncapped, j.Tasks, j.Done, j.Running, least, least+m.aim) {
		return Stop{}, false
	}
	return Stop{ID: j.ID, Tasks: j.Tasks, MinTasks: least, Reason: fmt.Sprintf(
		"running for %.0f s, would have finished at %.0f s without a cap; %d of %d tasks done, %d running, %d required",
		j.Elapsed.Seconds(), j.Uncapped.Seconds(), j.Done, j.Tasks, j.Running, least)}, true
}
