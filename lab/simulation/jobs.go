package simulation

import (
	"fmt"
	"time"

	"headroom/ledger"
	"headroom/ledger/leader"
)

// jobsAtOnce is how many jobs a scheduler has running at most.
const jobsAtOnce = 3

// orderJob is what a scheduler and the job loop request: a job with a floor, its
// uncapped finish time, an early stop, tasks dropped or the end. All is requested again
// while no answer comes, and an old request may be repeated much later.
func (w *world) orderJob(r random) {
	running := w.runningJobs()
	if len(running) == 0 || len(running) < jobsAtOnce && r.chance(0.2) {
		w.orderNewJob(r)
		return
	}
	id := pick(r, running)
	tasks := jobTasks(id)
	switch kind := r.IntN(10); {
	case kind == 0:
		w.askJob("finish-job", func(c *ledger.Command) {
			c.Finish = &ledger.FinishJob{ID: id, State: ledger.JobDone, Tasks: tasks, Done: tasks, Runtime: time.Minute}
		})
	case kind == 1:
		x := &ledger.SetUncapped{ID: id, Uncapped: r.between(time.Second, time.Minute)}
		w.askJob("uncapped", func(c *ledger.Command) { c.SetUncapped = x })
	case kind < 5:
		least := ledger.LeastTasks(w.seen().Jobs[id].Floor, tasks)
		if r.chance(0.4) { // above the floor, or below it
			least = uint32(r.IntN(int(tasks) + 1))
		}
		w.askJob("stop-job", func(c *ledger.Command) { c.StopJob = &ledger.StopJob{ID: id, Tasks: tasks, MinTasks: least} })
	default:
		w.orderDrops(r, id)
	}
}

func (w *world) runningJobs() (running []string) {
	for _, id := range sortedKeys(w.seen().Jobs) {
		if w.seen().Jobs[id].State == ledger.JobAccepted {
			running = append(running, id)
		}
	}
	return running
}

// orderDeflation is what a scheduler requests before it starts a job, and the arbiter
// later: a drop ratio, at times beyond the floor, lower than before or by another seed.
func (w *world) orderDeflation(r random) {
	running := w.runningJobs()
	if len(running) == 0 {
		w.orderNewJob(r)
		return
	}
	id := pick(r, running)
	theta := ledger.MostTheta(w.seen().Jobs[id].Floor) * r.Float64()
	if r.chance(0.3) {
		theta = r.Float64()
	}
	x := &ledger.DeflateJob{ID: id, Theta: theta, Seed: uint64(r.IntN(10) / 9)}
	w.askJob("deflate", func(c *ledger.Command) { c.DeflateJob = x })
}

func (w *world) orderNewJob(r random) {
	n := len(w.seen().Jobs)
	floor := []float64{0.3, 0.5, 0.75, 0.9, 1}[r.IntN(5)]
	w.askJob("job", func(c *ledger.Command) {
		c.Job = &ledger.Job{
			ID: fmt.Sprintf("job-%d", n), Class: "low", Floor: floor, State: ledger.JobAccepted, Submitted: int64(n),
		}
		if namesDrops(c.Job.ID) {
			c.Job.Engine = "yarn"
		}
	})
}

// jobTasks is how many map tasks a job has, by its id: 7 to 24.
func jobTasks(id string) uint32 {
	sum := uint32(0)
	for _, b := range []byte(id) {
		sum = sum*31 + uint32(b)
	}
	return 7 + sum%18
}

// namesDrops reports whether a job is of an engine whose drops are recorded one by one under
// a drop ratio too; of others the ratio leaves tasks out beside those that are recorded.
func namesDrops(id string) bool { return jobTasks(id)%2 == 0 }

// orderDrops requests that some tasks be dropped, at times those requested before,
// out of order.
func (w *world) orderDrops(r random, id string) {
	tasks := int(jobTasks(id))
	first := r.IntN(tasks)
	x := &ledger.DropTasks{ID: id, Of: uint32(tasks), Ranges: []ledger.TaskRange{{First: uint32(first), Last: uint32(min(tasks-1, first+r.IntN(4)))}}}
	if again := r.chance(0.3); again && len(w.drops) > 0 {
		x = w.drops[r.IntN(len(w.drops))]
	}
	w.drops = append(w.drops, x)
	o := w.askJob("drop", func(c *ledger.Command) { c.DropTasks = x })
	o.after = func(err error) {
		if err == nil && o.group == w.group {
			w.judge.jobs.told(w.judge, x)
		}
	}
}

func (w *world) askJob(what string, fill func(*ledger.Command)) *order {
	o := &order{what: what, actor: "scheduler", make: func(_ leader.View, c *ledger.Command) error {
		fill(c)
		return nil
	}}
	w.ask(o)
	return o
}
