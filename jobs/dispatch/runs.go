package dispatch

import (
	"fmt"
	"slices"
	"time"

	"headroom/jobs/buffers"
	"headroom/units"
)

// RunRecord is what must survive of a job's latest run, so that a restarted
// scheduler goes on with it: the manifest keeps it.
type RunRecord struct {
	// Number counts the runs from 1; 0 is a job that has never begun.
	Number uint32 `json:"number"`
	// Began is when the run was dispatched: its sprint timer counts from here.
	Began time.Time `json:"began"`
	// Theta is the drop ratio that it is to have, and has once Decided is true.
	Theta   float64 `json:"theta"`
	Seed    uint64  `json:"seed"`
	Decided bool    `json:"decided"`
	// Why says in words where Theta comes from.
	Why         string        `json:"why,omitempty"`
	Sprint      bool          `json:"sprint,omitempty"`
	SprintAfter time.Duration `json:"sprint_after,omitempty"`
	// Stopping reports that it was killed for the job named; Over that it has ended
	// so, and that the job waits again.
	Stopping string `json:"stopping,omitempty"`
	Over     bool   `json:"over,omitempty"`
}

// enter gives a new job of the core to the buffers: it waits, or goes on where an
// earlier scheduler process left it.
func (c *Core) enter(now time.Time, j *job, past Past) error {
	b := buffers.Job{ID: j.ID, Class: j.rank, Submitted: j.Submitted}
	r := past.Run
	switch {
	case r.Over:
		j.run = r
		return c.queue.Return(b, r.Number)
	case r.Number == 0 && past.Started.IsZero() && j.done+j.dropped == 0:
		return c.queue.Add(b)
	case r.Number == 0: // its record is older than runs are, or was lost
		r = RunRecord{Number: 1, Began: past.Started, Decided: true}
	}
	if r.Began.IsZero() || r.Began.After(now) { // the clock was set back meanwhile
		r.Began = now
	}
	err := c.queue.Adopt(buffers.Run{
		Job: b, Number: r.Number, Began: r.Began, Theta: r.Theta, Sprint: r.Sprint, SprintAfter: r.SprintAfter,
		Stopping: r.Stopping != "", Back: r.Stopping != "",
	})
	if err != nil {
		return err
	}
	j.run = r
	c.resume(now, j)
	return nil
}

// resume goes on with a run of an earlier process.
func (c *Core) resume(now time.Time, j *job) {
	c.active = insert(c.active, j)
	c.explore(j)
	j.state = Running
	if j.started.IsZero() || j.started.After(now) {
		j.started = j.run.Began
	}
	switch {
	case !j.run.Decided:
		c.act(Deflate{Job: j.ID, Run: j.run})
	case j.Engine != "":
		j.launched = true
		c.act(AdoptRun{Job: j.ID, Run: j.run})
		if j.run.Stopping != "" {
			c.act(KillRun{Job: j.ID, Number: j.run.Number})
		}
	default:
		c.dropTo(j, j.run.Theta, j.run.Why) // what a crash kept it from recording
	}
}

// begin lets a job run that the buffers have begun.
func (c *Core) begin(now time.Time, j *job, run buffers.Run) {
	j.run = RunRecord{
		Number: run.Number, Began: run.Began, Seed: buffers.Seed(j.ID), Decided: true, Sprint: run.Sprint, SprintAfter: run.SprintAfter,
	}
	j.run.Theta, j.run.Why = j.allowed(run.Theta)
	j.course, j.watched = Course{}, true
	c.explore(j)
	c.active = insert(c.active, j)
	j.state = Running
	if j.run.Theta > 0 {
		j.run.Decided = false
		c.act(StartJob{Job: j.ID, At: j.start(now), Run: j.run}, Deflate{Job: j.ID, Run: j.run})
		return
	}
	c.act(StartJob{Job: j.ID, At: j.start(now), Run: j.run})
	c.launch(j)
}

// start notes when the job started.
func (j *job) start(now time.Time) time.Time {
	if j.started.IsZero() {
		j.started = now
	}
	return j.started
}

// allowed returns as much of a class's drop ratio as the job's quality floor leaves.
func (j *job) allowed(theta float64) (most float64, why string) {
	if theta <= 0 {
		return 0, ""
	}
	why = fmt.Sprintf("drop ratio of class %s", j.Class)
	if left := max(0, 1-j.MinTasks); theta > left {
		why = fmt.Sprintf("class %s drops %s, limited by the job's floor of %s to %s", j.Class, units.Percent(theta), units.Percent(j.MinTasks), units.Percent(left))
		theta = left
	}
	return theta, why
}

// launch lets the engine of a job begin with its run. Tasks of our own workers are
// handed out by dispatch.
func (c *Core) launch(j *job) {
	if j.Engine != "" && !j.launched {
		j.launched = true
		c.act(StartRun{Job: j.ID, Run: j.run})
	}
}

// ready reports whether tasks of a running job may start.
func (j *job) ready() bool {
	return j.Engine == "" && j.run.Decided && j.run.Stopping == "" && !j.released
}

// Active reports whether a job runs.
func (c *Core) Active(id string) bool { j := c.jobs[id]; return j != nil && j.state == Running }

// Release stops the running tasks of a job, and starts none until Resume: they wait for something outside, and others
// can use the slots. Being stopped is no failure of a task. Where jobs run one after the other, or on masters, a job
// that waits would hold up the others: it ends.
func (c *Core) Release(now time.Time, id, why string) {
	j := c.jobs[id]
	if j == nil || j.state != Running || j.released {
		return
	}
	if c.queue.Discipline != buffers.Shared || j.Engine != "" {
		c.end(now, j, Failed, why)
		return
	}
	j.released = true
	for i := range j.maps {
		c.tell(j, PhaseMap, i)
	}
	c.tell(j, PhaseReduce, 0)
}

// Resume lets tasks of a released job start again.
func (c *Core) Resume(id string) {
	if j := c.jobs[id]; j != nil {
		j.released = false
	}
}

// Deflated takes over what the coordinators said to the drop ratio of a run: the
// ratio in force, and why it is not the one asked for. From here on tasks start.
func (c *Core) Deflated(now time.Time, id string, number uint32, theta float64, why string) {
	j := c.jobs[id]
	if j == nil || j.state != Running || j.run.Number != number || j.run.Decided {
		return
	}
	j.run.Theta, j.run.Decided = theta, true
	if why != "" {
		j.run.Why = why
	}
	c.act(KeepRun{Job: j.ID, Run: j.run})
	if j.Engine == "" {
		c.dropTo(j, theta, j.run.Why)
		return
	}
	c.launch(j)
}

// dropTo gives up map tasks that have not begun, in the order that the seed says,
// until no more than the drop ratio leaves are kept.
func (c *Core) dropTo(j *job, theta float64, why string) {
	most := j.Droppable(theta)
	var indexes []int
	for _, i := range DropOrder(j.Tasks, c.draws(j.run.Seed)) {
		if j.dropped >= most {
			break
		}
		if j.maps[i].state == taskPending {
			j.maps[i].state = taskDropped
			j.dropped++
			indexes = append(indexes, i)
		}
	}
	if len(indexes) == 0 {
		return
	}
	j.pending = slices.DeleteFunc(j.pending, func(i int) bool { return j.maps[i].state == taskDropped })
	slices.Sort(indexes)
	c.act(DropTasks{Job: j.ID, Indexes: indexes, Why: why})
}

// Deflate raises the drop ratio of a running job to theta, which is committed. It
// takes tasks that have not begun, and returns an error that wraps errFloor, or
// errNotRunning, where it changes nothing.
func (c *Core) Deflate(id string, theta float64, seed uint64, why string) error {
	j := c.jobs[id]
	if j == nil || j.state != Running || !j.run.Decided || j.run.Stopping != "" {
		return fmt.Errorf("job %s: %w", id, errNotRunning)
	}
	if kept, floor := units.Ratio(1-theta).Kept(j.Tasks), j.needed(); kept < floor || units.Ratio(theta).Above(units.Ratio(1-j.MinTasks)) {
		return fmt.Errorf("job %s: a drop ratio of %s keeps %d of %d tasks; the floor is %d: %w", id, units.Percent(theta), kept, j.Tasks, floor, errFloor)
	}
	if theta <= j.run.Theta {
		return nil
	}
	if j.run.Theta == 0 {
		j.run.Seed = seed
	}
	j.run.Theta, j.run.Why = theta, why
	c.act(KeepRun{Job: j.ID, Run: j.run})
	if j.Engine != "" {
		c.act(DeflateRun{Job: j.ID, Theta: theta, Seed: j.run.Seed})
		return nil
	}
	c.dropTo(j, theta, why)
	return nil
}

// kill stops a run for a job of a higher class. The record of it comes before
// anything is stopped.
func (c *Core) kill(j *job, higher string) {
	j.run.Stopping = higher
	c.act(KeepRun{Job: j.ID, Run: j.run})
	if j.Engine != "" {
		c.act(KillRun{Job: j.ID, Number: j.run.Number})
		return
	}
	for i := range j.maps {
		c.tell(j, PhaseMap, i)
	}
	c.tell(j, PhaseReduce, 0)
}

// tell lets the workers of a running task stop it, and leaves the task as it is
// until they have answered.
func (c *Core) tell(j *job, phase Phase, index int) {
	for _, a := range j.task(phase, index).runs {
		c.act(Kill{Node: a.node, Ref: Ref{j.ID, phase, index, a.number}})
	}
}

// settleKilled puts the jobs back whose killed runs are over: no worker holds a
// task of theirs.
func (c *Core) settleKilled(now time.Time) {
	for _, j := range slices.Clone(c.active) {
		if j.run.Stopping != "" && j.Engine == "" && !c.held(j.ID) {
			c.goBack(now, j)
		}
	}
}

// held reports whether a worker has an attempt of the job.
func (c *Core) held(id string) bool {
	for _, w := range c.workers {
		for ref := range w.running {
			if ref.Job == id {
				return true
			}
		}
	}
	return false
}

// goBack returns a killed job to the head of its buffer. It starts again from the
// beginning: nothing of the run that was killed counts.
func (c *Core) goBack(now time.Time, j *job) {
	c.queue.Ended(now, j.ID)
	c.active = slices.DeleteFunc(c.active, func(o *job) bool { return o == j })
	higher := j.run.Stopping
	j.run = RunRecord{Number: j.run.Number, Over: true}
	j.wasted.Killed += j.work // its outputs are thrown away
	*j = job{Plan: j.Plan, rank: j.rank, run: j.run, maps: j.ownTasks(), places: j.places, wasted: j.wasted, est: j.est.again()}
	j.restore(Past{})
	c.act(RequeueJob{Job: j.ID, For: higher, Run: j.run})
}

// EngineProgress is what an engine says of a run.
type EngineProgress struct {
	// Known is false while the engine does not know the rest: then it is old.
	Known                         bool
	Tasks, Done, Running, Dropped int
	// Copies are the tasks of which a second attempt runs.
	Copies int
	Stages []Stage
	// RunningOn counts the running tasks per node.
	RunningOn map[string]int
	// Executors that it has, Cores theirs together; 0 while unknown. Surplus of them are to
	// go once nothing needs what they have computed.
	Executors, Cores, Surplus int
	// Source is who tells this where it is not the engine's hook, in words.
	Source string
	// Trouble is what goes wrong in the engine's hook, in words.
	Trouble string
}

// Stage is a stage of an engine's job, with how many of its tasks run.
type Stage struct {
	ID, Attempt int
	Name        string
	Kept, Total int
	Done        int
}

// Progress takes over what an engine says of a run.
func (c *Core) Progress(now time.Time, id string, number uint32, p EngineProgress) {
	j := c.jobs[id]
	if j == nil || j.state != Running || j.run.Number != number {
		return
	}
	for range min(p.Done-j.progress.Done, finishesMax) {
		j.finishes = append(recent(j.finishes, now), now)
	}
	if !p.Known && p.Tasks == 0 {
		return // nothing was ever heard
	}
	j.progress = p
	j.Tasks, j.done, j.running, j.dropped = p.Tasks, p.Done, p.Running, p.Dropped
}

// finishesMax bounds the completions of one report that count for the rate.
const finishesMax = 1000

// RunEnded takes over how an engine's run ended, in words.
func (c *Core) RunEnded(now time.Time, id string, number uint32, ok bool, outcome string) {
	j := c.jobs[id]
	if r, runs := c.queue.Run(id); runs && r.Number == number && (j == nil || j.state.Ended()) {
		c.queue.Completed(now, id) // it was cancelled, and is over only now
		return
	}
	switch {
	case j == nil || j.state != Running || j.run.Number != number:
	case ok:
		c.queue.Completed(now, id)
		j.Tasks = j.done + j.dropped // what its application planned and did not need is no task of it
		c.end(now, j, Done, outcome)
	case j.run.Stopping != "":
		c.goBack(now, j)
	default:
		c.queue.Completed(now, id)
		c.end(now, j, Failed, outcome)
	}
}

// carry lets the core do what the buffers have decided; it reports whether anything changed.
func (c *Core) carry(now time.Time, actions []buffers.Action) (changed bool) {
	for _, a := range actions {
		switch a := a.(type) {
		case buffers.Start:
			c.begin(now, c.jobs[a.Run.ID], a.Run)
			changed = true
		case buffers.Kill:
			if j := c.jobs[a.Run.ID]; a.For != "" {
				c.kill(j, a.For)
			} else { // it was cancelled, and its engine is to end it
				c.act(KillRun{Job: a.Run.ID, Number: a.Run.Number})
			}
			changed = true
		case buffers.SprintDue:
			c.act(SprintDue{Job: a.Run.ID, Run: a.Run.Number, After: a.Run.SprintAfter})
		}
	}
	return changed
}
