package yarn

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// candidate is a map task that may be dropped, with the length of its input.
type candidate struct {
	task  int
	bytes uint64
}

// decide takes over an early stop. One that leaves more to drop than the one
// before lets the engine sweep again.
func (j *job) decide(now time.Time, of, least int) {
	if j.stop && j.of == of && j.least == least {
		return
	}
	j.swept = j.swept && least >= j.least
	if !j.stop {
		j.stopped = now
	}
	j.stop, j.of, j.least = true, of, least
}

// stopJob takes over a directive: the job may stop early.
func (b *book) stopJob(now time.Time, d *headroomv1.StopDirective) error {
	j := b.jobs[d.GetId()]
	of, least := int(d.GetTasks()), int(d.GetMinTasks())
	switch {
	case j == nil && !b.restored:
		return nil // the log brings the job, and its stop with it
	case j == nil || j.over || !j.committed:
		return fmt.Errorf("yarn: early stop of %q: %w", d.GetId(), errJob)
	case least < 1 || least > of || of > tasksMax:
		return fmt.Errorf("yarn: early stop of %s at %d of %d map tasks: %w", d.GetId(), least, of, errRequest)
	case j.tasks > 0 && of != j.tasks:
		return fmt.Errorf("yarn: early stop of %s with %d map tasks, and it has %d: %w", d.GetId(), of, j.tasks, errRequest)
	}
	if !j.stop {
		b.logger.Info("yarn: early stop in force", slog.String("job", d.GetId()), slog.Int("tasks", of), slog.Int("min_tasks", least))
	}
	j.decide(now, of, least)
	return nil
}

// running is a job that the hooks may ask about. One that has ended comes with an error.
func (b *book) running(id string) (*job, error) {
	if !b.restored {
		return nil, errStarting
	}
	j := b.jobs[id]
	if j == nil || j.over {
		return j, fmt.Errorf("%s: %w", id, errJob)
	}
	return j, nil
}

// within tells whether task is one of the job's map tasks, as far as is known.
func (j *job) within(task int) bool {
	bound := tasksMax
	if j.tasks > 0 {
		bound = j.tasks
	}
	return task >= 0 && task < bound
}

// choose takes of the candidates as many as the floor leaves, the highest numbers
// first, and none that was told to run or has a result. They are in flight from then on.
func (j *job) choose(candidates []candidate) numbers {
	left := j.of - j.least - len(j.dropped)
	chosen := numbers{}
	slices.SortFunc(candidates, func(a, b candidate) int { return b.task - a.task })
	for _, c := range candidates {
		if left <= len(chosen) {
			break
		}
		if j.within(c.task) && !j.dropped[c.task] && !j.began[c.task] && !j.hasEnded(c.task) {
			chosen[c.task] = true
			if c.bytes > 0 {
				j.bytes[c.task] = c.bytes
			}
		}
	}
	j.flight = chosen
	return chosen
}

// hasEnded tells whether a task has a result, as its master said. One that runs may
// be named by its master all the same: a preempted task waits for a container again.
func (j *job) hasEnded(task int) bool {
	return j.all != nil && task < len(j.all.maps) && j.all.maps[task].state == taskSucceeded
}

// drop is the command that records the tasks in flight.
func (j *job) drop() *headroomv1.DropTasksRequest {
	return &headroomv1.DropTasksRequest{
		Id: j.app.id, Tasks: j.flight.ranges(),
		Change: &headroomv1.Change{Actor: actor, Reason: fmt.Sprintf("early stop at %d of %d map tasks", j.least, j.of), RequestId: requestOf(j.app.id, j.flight)},
	}
}

// recorded takes over what the coordinators have recorded.
func (j *job) recorded(all numbers) {
	j.dropped.add(all)
	j.flight = numbers{}
}

// sweeps are the jobs whose tasks that have not begun are to be dropped by the
// engine: an early stop is in force, their tasks ask before they begin, and the
// master was looked at since the stop. Once per stop.
func (b *book) sweeps() []string {
	var ids []string
	for _, j := range b.sorted() {
		due := j.stop && j.wraps && !j.swept && j.committed && !j.over && j.seen.After(j.stopped)
		if b.restored && (due || len(j.flight) > 0) {
			ids = append(ids, j.app.id)
		}
	}
	return ids
}

// waiting are the map tasks that have not begun, as the master knows.
func (j *job) waiting() []candidate {
	var list []candidate
	if j.all == nil {
		return nil
	}
	for i, t := range j.all.maps {
		if t.state == taskWaits {
			list = append(list, candidate{task: i, bytes: j.bytes[i]})
		}
	}
	return list
}
