package dispatch

import (
	"maps"
	"slices"
	"time"
)

// JobView is a job as listings and progress reports show it.
type JobView struct {
	Plan
	State   State
	Outcome string
	// Tasks of the map phase.
	Done, Dropped int
	// Running counts the reduce task too, and a task once whatever copies of it run.
	Running int
	// Held are the slots that its attempts hold, copies included.
	Held int
	// Rate is the completions per second over the last 5 s; RateKnown is false
	// before the job has run for a second and after it ended.
	Rate      float64
	RateKnown bool
	// Runtime is the time since the first task started; Started is false before that.
	Runtime time.Duration
	Started bool
	// RunningOn counts the running attempts per node.
	RunningOn map[string]int
	// Run is its present run, or the last one; Due reports that its sprint timer has fired.
	Run RunRecord
	Due bool
	// Place is where it waits in its buffer, 1 is next; 0 when it does not wait.
	Place int
	// Rank is its class's place, 0 is the highest.
	Rank int
	// Progress is what its engine says.
	Progress EngineProgress
	// Copies are the attempts of its map tasks that run beside an original, CopiesWanted the
	// copies that it would start now if it had the slots, CopiesSave by how much sooner it
	// would then end; that is unknown before a task has ended.
	Copies, CopiesWanted int
	CopiesSave           time.Duration
	CopiesKnown          bool
	// Wasted is the slot time that counted for nothing, Work that of the attempts that counted.
	Wasted Waste
	Work   time.Duration
	// Busy is the slot time of the attempts that run now.
	Busy time.Duration
	// Speculation is the policy of its copies and the last decision in words; empty before one.
	Speculation string
}

// WorkerView is a worker as listings show it.
type WorkerView struct {
	Node                   string
	Slots, Usable, Running int
	Connected              bool
}

// Jobs returns all jobs in order of submission.
func (c *Core) Jobs(now time.Time) []JobView {
	all := make([]*job, 0, len(c.jobs))
	for _, j := range c.jobs {
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *job) int {
		if n := a.Submitted.Compare(b.Submitted); n != 0 {
			return n
		}
		return a.before(b)
	})
	views := make([]JobView, len(all))
	for i, j := range all {
		views[i] = c.view(now, j)
	}
	return views
}

func (c *Core) view(now time.Time, j *job) JobView {
	v := JobView{
		Plan: j.Plan, State: j.state, Outcome: j.outcome,
		Done: j.done, Dropped: j.dropped, Running: j.running, Held: j.held,
		Runtime: j.runtime(now), Started: !j.started.IsZero(),
		RunningOn: make(map[string]int),
		Run:       j.run, Place: c.queue.Place(j.ID), Rank: j.rank, Progress: j.progress,
	}
	if r, runs := c.queue.Run(j.ID); runs {
		v.Due = r.Due
	}
	maps.Copy(v.RunningOn, j.progress.RunningOn)
	v.Rate, v.RateKnown = j.rate(now)
	for i := range j.maps {
		runs := j.maps[i].runs
		for _, a := range runs {
			v.RunningOn[a.node]++
			v.Busy += a.ran(now)
		}
		v.Copies += max(0, len(runs)-1)
	}
	for _, a := range j.reduce.runs {
		v.RunningOn[a.node]++
		v.Busy += a.ran(now)
	}
	v.Wasted, v.Work, v.Speculation = j.wasted, j.work, j.est.said
	v.CopiesWanted, v.CopiesSave, v.CopiesKnown = c.wanted(now, j)
	return v
}

// rate returns the completions per second over the last window, or over the job's
// life when that is shorter.
func (j *job) rate(now time.Time) (perSecond float64, known bool) {
	span := min(rateWindow, j.runtime(now))
	if j.state != Running || span < time.Second {
		return 0, false
	}
	return float64(len(recent(j.finishes, now))) / span.Seconds(), true
}

// Outputs returns the map tasks that are part of the result, in their order.
func (c *Core) Outputs(id string) []int {
	j := c.jobs[id]
	if j == nil {
		return nil
	}
	var done []int
	for i := range j.maps {
		if j.maps[i].state == taskDone {
			done = append(done, i)
		}
	}
	return done
}

// Workers returns all workers in order of their nodes' names.
func (c *Core) Workers() []WorkerView {
	views := make([]WorkerView, 0, len(c.workers))
	for _, name := range c.nodes() {
		w := c.workers[name]
		views = append(views, WorkerView{name, w.slots, c.usable(name, w), len(w.running), w.connected})
	}
	return views
}
