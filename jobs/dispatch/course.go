package dispatch

import (
	"cmp"
	"slices"
	"time"
)

// Course is how a run went, as far as models of job times learn from it: when its parts
// began and ended, and how much of its map stage ran. A moment that did not come is zero.
type Course struct {
	// Maps is when its first map task ran, MapsOver when none was left, Reduce when its reduce
	// task began.
	Maps, MapsOver, Reduce time.Time
	// Tasks and Kept are the map tasks that the stage had and those that ran, Slots the most
	// that ran at once. Of an engine's job they are those of its first stage.
	Tasks, Kept, Slots int
}

// watch notes how the running jobs go.
func (c *Core) watch(now time.Time) {
	for _, j := range c.active {
		if !j.course.MapsOver.IsZero() {
			if j.course.Reduce.IsZero() && j.reduce.state == taskRunning {
				j.course.Reduce = now
			}
			continue
		}
		tasks, kept, done, running := j.stage()
		if j.course.Maps.IsZero() && running+done > 0 {
			j.course.Maps = now
		}
		j.course.Tasks, j.course.Kept, j.course.Slots = tasks, kept, max(j.course.Slots, running)
		if kept > 0 && done >= kept && !j.course.Maps.IsZero() {
			j.course.MapsOver = now
		}
	}
}

// stage returns the map stage of a running job: of its tasks those to run, done and running.
func (j *job) stage() (tasks, kept, done, running int) {
	if j.Engine == "" {
		return j.Tasks, j.Tasks - j.dropped, j.done, j.running
	}
	if len(j.progress.Stages) == 0 {
		return 0, 0, 0, j.running
	}
	first := slices.MinFunc(j.progress.Stages, func(a, b Stage) int { return cmp.Compare(a.ID, b.ID) })
	return first.Total, first.Kept, first.Done, j.running
}

// seen returns the course of a run that this core saw from its beginning.
func (j *job) seen() Course {
	if !j.watched {
		return Course{}
	}
	return j.course
}
