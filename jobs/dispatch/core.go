package dispatch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/jobs/buffers"
	"headroom/jobs/speculation"
)

const (
	// workerSilence is the timeout of a worker, after which its tasks are reassigned. Workers send a message every
	// second.
	workerSilence = 5 * time.Second
	// rateWindow is the time over which the rate of a job is taken.
	rateWindow = 5 * time.Second
	// EndedMax bounds the ended jobs that are kept for listings.
	EndedMax = 1000
)

// Phase is the kind of a task.
type Phase uint8

// The phases of a job, in their order.
const (
	PhaseMap Phase = iota
	PhaseReduce
)

// String returns the phase as the protocol and the file names have it.
func (p Phase) String() string {
	if p == PhaseReduce {
		return "reduce"
	}
	return "map"
}

// Ref names one attempt of one task.
type Ref struct {
	Job   string
	Phase Phase
	// Index counts the tasks of a phase from 0; a job has one reduce task.
	Index int
	// Attempt differs between all attempts of a task, over restarts of the scheduler too.
	Attempt uint32
}

// String returns the attempt as logs show it.
func (r Ref) String() string {
	return fmt.Sprintf("%s/%s-%05d.%d", r.Job, r.Phase, r.Index, r.Attempt)
}

// State is the state of a job.
type State uint8

// The states of a job. Done, failed and cancelled are ends.
const (
	Queued State = iota
	Running
	Done
	Failed
	Cancelled
)

// String returns the state in words.
func (s State) String() string {
	return [...]string{"queued", "running", "done", "failed", "cancelled"}[s]
}

// Ended reports whether a job in this state will never run again.
func (s State) Ended() bool { return s >= Done }

// Plan is a job in the core: the number of its tasks, and its rules.
type Plan struct {
	ID, Name string
	// Class is one of the core's classes.
	Class string
	// Slots is the maximum of concurrent tasks. Invariant: at least 1.
	Slots int
	// MinTasks is the minimum fraction of map tasks for a result, above 0 and at most 1.
	MinTasks float64
	// MaxAttempts is how often a task is tried. Invariant: at least 1.
	MaxAttempts int
	// Tasks is the number of map tasks. Invariant: at least 1. An engine reports it later.
	Tasks int
	// Engine runs the job as a whole, "spark"; empty if our workers run its tasks.
	Engine string
	// Reduce is whether a reduce task follows the map tasks.
	Reduce bool
	// Submitted orders the jobs inside a class; jobs of one moment are ordered by ID.
	Submitted time.Time
	// ErrorBound is whether the job ends as soon as the tasks of MinTasks are done.
	ErrorBound bool
	// Deadline is its deadline; zero for none. With MinTasks below 1 it then ends with what is done, if that is enough.
	Deadline time.Time
	// Sizes are the sizes of the map tasks' inputs in any unit; nil where they count as equal.
	Sizes []int64
}

// Past is the state of a job that ran under an earlier scheduler process. Its zero value is a new job.
type Past struct {
	// Started is when the first task started; zero for none.
	Started time.Time
	// Done are the map tasks whose output exists.
	Done []int
	// Dropped are the map tasks that were dropped permanently.
	Dropped []int
	// ReduceDone is whether the output of the reduce task exists.
	ReduceDone bool
	// Run is its latest run. The others tell of this run only.
	Run RunRecord
}

type taskState uint8

const (
	taskPending taskState = iota
	taskRunning
	taskDone
	taskDropped
)

// task is one map or reduce task.
type task struct {
	state taskState
	// runs are its running attempts, the oldest first: more than one are copies.
	// Invariant: some exactly in state taskRunning.
	runs []attempt
	// tries counts the attempts started by this core; failures those that failed by themselves.
	tries, failures int
	// avoid is the node of the last failure: another one is tried first. failure is its cause.
	avoid, failure string
}

// job is a job with its tasks.
type job struct {
	Plan
	rank  int // of its class: 0 is the highest
	state State
	// run is the present run, or the last one of a job that waits again.
	run RunRecord
	// released is whether it has given its slots back.
	released bool
	// launched is whether the engine was told to start it; progress is its latest report.
	launched bool
	progress EngineProgress
	// course is the course of the run; watched is whether this core started it.
	course  Course
	watched bool
	maps    []task
	// places are those of its map tasks in the order in which they start; nil where that is the order of their indexes.
	places []int
	// pending are the map tasks to start, in that order.
	// Invariant: exactly the indexes of maps in state taskPending, while the job has not ended.
	pending []int
	reduce  task
	// running counts the tasks that run, held their attempts.
	running int
	held    int
	done    int
	dropped int
	started time.Time
	ended   time.Time
	outcome string
	// finishes are the moments of the last completions, inside rateWindow.
	finishes []time.Time
	// wasted is the wasted slot time, work that of the attempts that counted.
	wasted Waste
	work   time.Duration
	// longest is the time of the longest attempt that counted, by phase.
	longest [PhaseReduce + 1]time.Duration
	// est decides on copies of its tasks.
	est estimates
}

// worker is the worker of one node.
type worker struct {
	slots     int
	connected bool
	heard     time.Time
	// running are the attempts that occupy a slot, those told to stop too, until
	// the worker says that they ended or is lost.
	running map[Ref]bool
}

// Core decides which task runs where. It is a state machine: events change it, Step returns the actions. It reads no
// clock and does no I/O; the same events at the same times give the same actions.
//
// Guarantees:
//   - a node never starts a task beyond its usable slots;
//   - inside a class jobs start in the order of their submission, and no job starts while one of a higher class
//     waits, unless shares name others (see Share);
//   - only the discipline "p" kills a running job, which then starts again;
//   - at most as many jobs run at once as the discipline allows;
//   - while a usable slot is free, no runnable task waits, unless it cannot end by its job's deadline and is not
//     needed;
//   - no task starts before the drop ratio of its run is committed;
//   - a task counts once, whatever attempts and copies report;
//   - a copy never runs on a node with a lower speed than the original's.
//
// A Core is not safe for concurrent use.
type Core struct {
	// queue is the one home of the order of jobs and of when each begins.
	queue *buffers.Buffers
	// run sets the attempts of this process apart from those of earlier ones.
	run uint16
	// draws is the source of random numbers of a seed: the same ones each time.
	draws   func(seed uint64) func() uint64
	jobs    map[string]*job
	active  []*job   // running jobs, by class and submission
	ended   []string // ended jobs, oldest first, at most EndedMax
	workers map[string]*worker
	caps    map[string]Cap
	// shares are how many slots each job may hold before others get theirs, in the order of service; empty: no shares.
	shares  []Share
	hold    time.Time
	actions []Action
	// rule states how copies are decided on; past are ended jobs that teach it, accuracy is how good estimates were.
	rule     Speculation
	past     *speculation.Samples
	accuracy speculation.Accuracy
}

// Share is how many slots a job holds before jobs that are named after it get any.
type Share struct {
	Job   string
	Slots int
	// Copies is how many copies of its tasks may run; nil leaves it to the policy.
	Copies *int
}

// New returns a core without jobs and workers. queue is a dispatcher without jobs,
// which belongs to the core from here on; run is a number that no earlier core of
// the same jobs had; draws gives the random numbers of a seed, the same ones in every
// process and version.
func New(queue *buffers.Buffers, run uint16, draws func(seed uint64) func() uint64) *Core {
	return &Core{
		queue:   queue,
		run:     run,
		draws:   draws,
		jobs:    make(map[string]*job),
		workers: make(map[string]*worker),
		caps:    make(map[string]Cap),
		past:    speculation.NewSamples(speculation.AllFactors),
	}
}

// HoldUntil starts no task before t. After a restart it gives the workers time to report what they still run.
func (c *Core) HoldUntil(t time.Time) { c.hold = t }

// Knows reports whether the job is in the core, ended or not.
func (c *Core) Knows(id string) bool { return c.jobs[id] != nil }

// Add puts a committed job into the buffer of its class; a job that had started
// before comes back as running. Adding a known job changes nothing.
// It returns ErrUnknownClass when the class is not one of the core's.
func (c *Core) Add(now time.Time, p Plan, past Past) error {
	if c.Knows(p.ID) {
		return nil
	}
	rank := slices.IndexFunc(c.queue.Classes, func(k buffers.Class) bool { return k.Name == p.Class })
	if rank < 0 {
		return fmt.Errorf("job %s: class %q: %w", p.ID, p.Class, ErrUnknownClass)
	}
	if len(p.Sizes) != p.Tasks {
		p.Sizes = nil
	}
	j := &job{Plan: p, rank: rank, maps: p.ownTasks()}
	j.order(c.draws)
	j.restore(past)
	c.jobs[p.ID] = j
	return c.enter(now, j, past)
}

// ownTasks returns the map tasks that the core itself hands out: none of a job of an engine.
func (p Plan) ownTasks() []task {
	if p.Engine != "" {
		return nil
	}
	return make([]task, p.Tasks)
}

// order sets the order in which map tasks start. A job that may end with fewer than all starts those last that a drop
// ratio would drop first, so that a ratio that rises late can still drop them.
func (j *job) order(draws func(seed uint64) func() uint64) {
	if j.Engine != "" || j.MinTasks >= 1 {
		return
	}
	j.places = make([]int, j.Tasks)
	for i, index := range DropOrder(j.Tasks, draws(buffers.Seed(j.ID))) {
		j.places[index] = j.Tasks - 1 - i
	}
}

// place returns where a map task stands in the order in which they start.
func (j *job) place(index int) int {
	if j.places == nil {
		return index
	}
	return j.places[index]
}

// compare orders map tasks by when they start.
func (j *job) compare(a, b int) int { return cmp.Compare(j.place(a), j.place(b)) }

// restore marks the tasks that were over before.
func (j *job) restore(past Past) {
	j.started = past.Started
	for _, i := range past.Done {
		if i >= 0 && i < len(j.maps) {
			j.maps[i].state = taskDone
		}
	}
	for _, i := range past.Dropped { // a dropped task stays dropped, even if its output came late
		if i >= 0 && i < len(j.maps) {
			j.maps[i].state = taskDropped
		}
	}
	for i := range j.maps {
		switch j.maps[i].state {
		case taskDone:
			j.done++
		case taskDropped:
			j.dropped++
		case taskPending, taskRunning:
			j.pending = append(j.pending, i)
		}
	}
	slices.SortFunc(j.pending, j.compare)
	if past.ReduceDone && len(j.pending) == 0 {
		j.reduce.state = taskDone
	}
}

// AddEnded puts a job that ended under an earlier scheduler process into the
// listings; done and dropped count its map tasks, and a runtime of 0 is not known.
func (c *Core) AddEnded(p Plan, state State, outcome string, done, dropped int, runtime time.Duration) {
	if c.Knows(p.ID) || !state.Ended() {
		return
	}
	j := &job{Plan: p, state: state, outcome: outcome, done: done, dropped: dropped}
	if runtime > 0 { // when it started is no longer known, and does not matter
		j.started, j.ended = p.Submitted, p.Submitted.Add(runtime)
	}
	c.jobs[p.ID] = j
	c.remember(j)
}

// remember keeps an ended job for listings and forgets the oldest beyond the bound.
func (c *Core) remember(j *job) {
	c.ended = append(c.ended, j.ID)
	if len(c.ended) > EndedMax {
		delete(c.jobs, c.ended[0])
		c.ended = c.ended[1:]
	}
}

// Cancel ends a job that has not ended, with the outcome in words; its running
// tasks are stopped. It does nothing for other jobs.
func (c *Core) Cancel(now time.Time, id, outcome string) {
	if j := c.jobs[id]; j != nil && !j.state.Ended() {
		c.end(now, j, Cancelled, outcome)
	}
}

// SetCap applies a node's cap. Running tasks above the new number of usable slots run to their end; no further one
// starts until they have ended.
func (c *Core) SetCap(node string, cap Cap) { c.caps[node] = cap }

// end ends a job: what still runs is stopped, and its slots are reassigned when the workers report that they are free.
func (c *Core) end(now time.Time, j *job, state State, outcome string) {
	if j.Engine != "" && j.launched {
		c.queue.Cancel(j.ID) // it counts as running until the engine says that it is over
	} else {
		c.queue.Completed(now, j.ID)
		c.queue.Cancel(j.ID) // it may have waited
	}
	c.active = slices.DeleteFunc(c.active, func(o *job) bool { return o == j })
	for i := range j.maps {
		c.stop(now, j, PhaseMap, i)
	}
	c.stop(now, j, PhaseReduce, 0)
	sample := c.addSample(now, j, state)
	j.state, j.ended, j.outcome, j.running, j.held = state, now, outcome, 0, 0
	j.maps, j.pending, j.finishes, j.Sizes, j.est = nil, nil, nil, nil, estimates{said: j.est.said}
	c.act(EndJob{
		Job: j.ID, State: state, Outcome: outcome, Tasks: j.Tasks, Done: j.done, Runtime: j.runtime(now), Course: j.seen(),
		Wasted: j.wasted, Work: j.work, Longest: j.longest[PhaseMap] + j.longest[PhaseReduce], Sample: sample,
	})
	c.remember(j)
}

// task returns a task of the job, or nil when there is none of that name.
func (j *job) task(phase Phase, index int) *task {
	switch {
	case phase == PhaseReduce && index == 0:
		return &j.reduce
	case phase == PhaseMap && index >= 0 && index < len(j.maps):
		return &j.maps[index]
	default:
		return nil
	}
}

// runtime returns the time since the first task started, 0 before that.
func (j *job) runtime(now time.Time) time.Duration {
	if j.started.IsZero() {
		return 0
	}
	if j.state.Ended() {
		now = j.ended
	}
	return max(0, now.Sub(j.started))
}

// before returns the order in which jobs get slots: class, then submission.
func (j *job) before(o *job) int {
	return cmp.Or(cmp.Compare(j.rank, o.rank), j.Submitted.Compare(o.Submitted), cmp.Compare(j.ID, o.ID))
}

func insert(list []*job, j *job) []*job {
	at, _ := slices.BinarySearchFunc(list, j, (*job).before)
	return slices.Insert(list, at, j)
}

func (c *Core) act(actions ...Action) { c.actions = append(c.actions, actions...) }

// nodes returns the names of all workers in order, so that decisions do not depend
// on the order of a map.
func (c *Core) nodes() []string { return slices.Sorted(maps.Keys(c.workers)) }
