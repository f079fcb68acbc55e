package dispatch

import (
	"fmt"
	"time"

	"headroom/jobs/speculation"
	"headroom/units"
)

// bounded reports whether the job may end on fewer tasks than all because of its own
// error bound or deadline.
func (p Plan) bounded() bool { return p.ErrorBound || p.untilDeadline() }

// untilDeadline reports whether the job wants as many tasks as possible by its deadline,
// and not just those of its floor.
func (p Plan) untilDeadline() bool { return !p.ErrorBound && !p.Deadline.IsZero() && p.MinTasks < 1 }

// needed returns how many map tasks must be kept.
func (p Plan) needed() int { return units.Ratio(p.MinTasks).Of(p.Tasks) }

// floor returns how many map tasks must be done, at least one.
func (p Plan) floor() int { return max(1, p.needed()) }

// Enough returns why a job that has so many map tasks done and dropped ends now, without the others: one with an error
// bound as soon as the tasks of its floor are done, one with a deadline from then on if they are. It is empty for one that
// goes on.
func (p Plan) Enough(now time.Time, done, dropped int) (why string) {
	if done+dropped >= p.Tasks || done < p.floor() {
		return ""
	}
	switch {
	case p.ErrorBound:
		return fmt.Sprintf("the job's error bound is met: %d of %d tasks done, %d required", done, p.Tasks, p.floor())
	case p.untilDeadline() && !now.Before(p.Deadline):
		return fmt.Sprintf("the job's deadline has passed: %d of %d tasks done, %d required", done, p.Tasks, p.floor())
	}
	return ""
}

// Droppable returns how many map tasks a drop ratio drops at most.
func (p Plan) Droppable(theta float64) int {
	return p.Tasks - max(units.Ratio(1-theta).Kept(p.Tasks), p.needed())
}

// Spares reports whether one more map task may be dropped than were dropped.
func (p Plan) Spares(dropped int) bool { return p.Tasks-dropped-1 >= p.needed() }

// Summary returns the outcome of a job that is done.
func (p Plan) Summary(done, dropped int) string {
	if dropped == 0 {
		return fmt.Sprintf("%d of %d tasks done", done, p.Tasks)
	}
	said := fmt.Sprintf("%d of %d tasks done, %d dropped (at least %d required)", done, p.Tasks, dropped, p.needed())
	if p.bounded() {
		said += ", error " + units.Percent(float64(p.Tasks-done)/float64(p.Tasks))
	}
	return said
}

// bound returns what the job's tasks are chosen for now: the deadline, or the tasks of its floor
// that are still missing, among those that were not given up.
func (j *job) bound(now time.Time) speculation.Bound {
	if left := j.Deadline.Sub(now); j.untilDeadline() && left > 0 {
		return speculation.Bound{ByDeadline: true, Left: min(left, speculation.TimeMost)}
	}
	return j.least()
}

// least returns the bound of the floor. A job without a bound of its own wants all tasks.
func (j *job) least() speculation.Bound {
	need := j.Tasks - j.dropped
	if j.bounded() {
		need = min(need, j.floor())
	}
	return speculation.Bound{Error: 1 - float64(need)/float64(max(1, j.Tasks-j.dropped)), Ceil: true}
}

// meetBounds gives up what is left of the jobs that have what they need.
func (c *Core) meetBounds(now time.Time) {
	for _, j := range c.active {
		if !j.ready() {
			continue
		}
		if why := j.Enough(now, j.done, j.dropped); why != "" {
			c.giveUp(now, j, why)
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
