package dispatch

import (
	"fmt"
	"time"

	"headroom/jobs/speculation"
	"headroom/units"
)

// bounded reports whether the job may end on fewer tasks than all because of its own
// error bound or deadline.
func (j *job) bounded() bool { return j.ErrorBound || j.untilDeadline() }

// untilDeadline reports whether the job wants as many tasks as possible by its deadline,
// and not just those of its floor.
func (j *job) untilDeadline() bool { return !j.ErrorBound && !j.Deadline.IsZero() && j.MinTasks < 1 }

// floor is how many map tasks must be done, at least one.
func (j *job) floor() int { return max(1, units.Ratio(j.MinTasks).Of(j.Tasks)) }

// bound is what the job's tasks are chosen for now: the deadline, or the tasks of its floor
// that are still missing, among those that were not given up.
func (j *job) bound(now time.Time) speculation.Bound {
	if left := j.Deadline.Sub(now); j.untilDeadline() && left > 0 {
		return speculation.Bound{ByDeadline: true, Left: min(left, speculation.TimeMost)}
	}
	return j.least()
}

// least is the bound of the floor. A job without a bound of its own wants all tasks.
func (j *job) least() speculation.Bound {
	need := j.Tasks - j.dropped
	if j.bounded() {
		need = min(need, j.floor())
	}
	return speculation.Bound{Error: 1 - float64(need)/float64(max(1, j.Tasks-j.dropped)), Ceil: true}
}

// meetBounds gives up what is left of the jobs that have what they need: those with an error
// bound as soon as the tasks of their floor are done, those with a deadline from then on if
// they are.
func (c *Core) meetBounds(now time.Time) {
	for _, j := range c.active {
		if !j.bounded() || !j.ready() || j.done+j.dropped >= j.Tasks || j.done < j.floor() {
			continue
		}
		switch {
		case j.ErrorBound:
			c.giveUp(now, j, fmt.Sprintf("the job ends at its bound: %d of %d tasks are done, %d were needed", j.done, j.Tasks, j.floor()))
		case !now.Before(j.Deadline):
			c.giveUp(now, j, fmt.Sprintf("the job's deadline has passed: %d of %d tasks are done, %d were needed", j.done, j.Tasks, j.floor()))
		}
	}
}

// giveUp drops the map tasks that wait or run. The record of it comes before anything stops.
func (c *Core) giveUp(now time.Time, j *job, why string) {
	var indexes []int
	for i := range j.maps {
		if s := j.maps[i].state; s == taskPending || s == taskRunning {
			indexes = append(indexes, i)
		}
	}
	c.act(DropTasks{Job: j.ID, Indexes: indexes, Why: why})
	for _, i := range indexes {
		c.stop(now, j, PhaseMap, i)
		j.maps[i].state = taskDropped
	}
	j.dropped += len(indexes)
	j.pending = nil
}
