package yarn

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch"
	"headroom/units"
)

// candidate is a map task that may be dropped, with the length of its input.
type candidate struct {
	task  int
	bytes uint64
}

// decide applies an early stop. One that permits more drops than the previous one makes the engine sweep again.
func (j *job) decide(now time.Time, of, least int) {
	if j.stop && j.of == of && j.least == least {
		return
	}
	if !j.stop {
		j.stopped = now
	}
	if !j.stop || least < j.least {
		j.loosen(now)
	}
	j.stop, j.of, j.least = true, of, least
}

// deflate applies a drop ratio, which only rises, and keeps its seed.
func (j *job) deflate(now time.Time, theta float64, seed uint64) {
	if !(theta > j.theta) {
		return
	}
	if j.theta == 0 {
		j.seed = seed
	}
	j.theta = theta
	j.loosen(now)
}

// loosen makes the engine sweep after the next read of the master.
func (j *job) loosen(now time.Time) { j.loosened, j.swept = now, false }

// bound returns how many map tasks the job has and how many of them must at least be done: what the early stop or the
// drop ratio in force permits, whichever is less, never below the floor. loose is whether one of them permits drops.
func (j *job) bound() (of, least int, loose bool) {
	if of, least = j.tasks, j.tasks; j.stop {
		of, least, loose = j.of, j.least, true
	}
	if j.theta > 0 {
		if kept := max(units.Ratio(1-j.theta).Kept(of), units.Ratio(j.floor.Fraction).Least(of)); kept < of {
			least, loose = min(least, kept), true
		}
	}
	return of, least, loose
}

// hookLife is how long a job counts as one with a hook after its last request: it polls twice a second.
const hookLife = 10 * time.Second

// exact returns why no drop ratio drops tasks of the job; empty if one may.
func (j *job) exact(now time.Time) string {
	switch {
	case j.floor.Fraction >= 1:
		return "its quality floor is all tasks"
	case !j.terms.deflate:
		return "its owner does not allow drop ratios (headroom.deflate, or deflate of its queue, is false)"
	case j.whole(now):
		return "it has no hook that can drop tasks"
	}
	return ""
}

// whole reports whether the job has no hook, so that none of its tasks can be dropped.
func (j *job) whole(now time.Time) bool {
	if j.spark != nil {
		return !j.spark.hooked(now)
	}
	return !j.wraps && (j.heard.IsZero() || now.Sub(j.heard) >= hookLife)
}

// ratio returns the drop ratio in force, ratioSeed the seed that orders the dropped tasks.
func (j *job) ratio() float64 {
	if j.spark != nil {
		return j.spark.theta
	}
	return j.theta
}

func (j *job) ratioSeed() uint64 {
	if j.spark != nil {
		return j.spark.seed
	}
	return j.seed
}

// deflateJob applies a directive: a job runs fewer of its tasks.
func (b *book) deflateJob(now time.Time, d *headroomv1.DeflateDirective) error {
	j, theta := b.jobs[d.GetId()], d.GetTheta()
	switch {
	case j == nil && !b.restored:
		return nil // the log will bring the job, with its drop ratio
	case j == nil || j.over || !j.committed:
		return fmt.Errorf("yarn: drop ratio of %q: %w", d.GetId(), errJob)
	case !(theta >= 0 && theta <= 1):
		return fmt.Errorf("yarn: drop ratio of %s: %v is not from 0 to 1: %w", d.GetId(), theta, errRequest)
	case theta <= j.ratio():
		return nil
	}
	if why := j.exact(now); why != "" {
		return fmt.Errorf("yarn: drop ratio of %s: %s: %w", d.GetId(), why, errExact)
	}
	if most := units.Ratio(1 - j.floor.Fraction); units.Ratio(theta).Above(most) {
		return fmt.Errorf("yarn: drop ratio of %s: %s would leave less than its floor of %s: %w",
			d.GetId(), units.Percent(theta), units.Percent(j.floor.Fraction), errRequest)
	}
	if j.spark != nil {
		j.spark.deflate(theta, d.GetSeed())
		b.logger.Info("yarn: drop ratio in force", slog.String("job", d.GetId()), slog.Float64("theta", theta))
		return nil
	}
	j.deflate(now, theta, d.GetSeed())
	of, least, _ := j.bound()
	b.logger.Info("yarn: drop ratio in force", slog.String("job", d.GetId()), slog.Float64("theta", theta), slog.Int("tasks", of), slog.Int("min_tasks", least))
	return nil
}

// stopJob applies a directive: the job may stop early.
func (b *book) stopJob(now time.Time, d *headroomv1.StopDirective) error {
	j := b.jobs[d.GetId()]
	of, least := int(d.GetTasks()), int(d.GetMinTasks())
	switch {
	case j == nil && !b.restored:
		return nil // the log will bring the job, with its stop
	case j == nil || j.over || !j.committed:
		return fmt.Errorf("yarn: early stop of %q: %w", d.GetId(), errJob)
	case least < 1 || least > of || of > tasksMax:
		return fmt.Errorf("yarn: early stop of %s at %d of %d map tasks: %w", d.GetId(), least, of, errRequest)
	case j.tasks > 0 && of != j.tasks:
		return fmt.Errorf("yarn: early stop of %s with %d map tasks, but it has %d: %w", d.GetId(), of, j.tasks, errRequest)
	}
	if !j.stop {
		b.logger.Info("yarn: early stop in force", slog.String("job", d.GetId()), slog.Int("tasks", of), slog.Int("min_tasks", least))
	}
	j.decide(now, of, least)
	return nil
}

// running returns a job that hooks may ask about. One that has ended comes with an error.
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

// within reports whether task is one of the job's map tasks, as far as is known.
func (j *job) within(task int) bool {
	bound := tasksMax
	if j.tasks > 0 {
		bound = j.tasks
	}
	return task >= 0 && task < bound
}

// choose takes as many candidates as the bound permits, and none that was told to run or has a result. They are in
// flight from then on. A drop ratio takes them in the order of its seed, a sample of the input; an early stop takes the
// highest numbers first. Running tasks, which a master reports if its owner permits it, come last.
func (j *job) choose(candidates []candidate) numbers {
	of, least, _ := j.bound()
	left := of - least - len(j.dropped)
	chosen := numbers{}
	if left <= 0 {
		j.flight = chosen
		return chosen
	}
	order := j.dropOrder(of)
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(j.runs(a.task), j.runs(b.task)), cmp.Compare(order(a.task), order(b.task)))
	})
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

// runs returns 1 for a running task, as reported by its master: waiting ones are dropped first.
func (j *job) runs(task int) int {
	if j.all != nil && task >= 0 && task < len(j.all.maps) && j.all.maps[task].state == taskRuns {
		return 1
	}
	return 0
}

// dropOrder returns the place of a task among those that are dropped first.
func (j *job) dropOrder(of int) func(task int) int {
	if j.theta == 0 {
		return func(task int) int { return -task }
	}
	place := make([]int, of)
	for i, task := range dispatch.DropOrder(of, rand.NewPCG(j.seed, 0).Uint64) {
		place[task] = i
	}
	return func(task int) int {
		if task < 0 || task >= of {
			return of
		}
		return place[task]
	}
}

// hasEnded reports whether a task has a result, as reported by its master. A running task may be a candidate too: a
// preempted task waits for a container again.
func (j *job) hasEnded(task int) bool {
	return j.all != nil && task < len(j.all.maps) && j.all.maps[task].state == taskSucceeded
}

// drop returns the command that records the tasks in flight.
func (j *job) drop() *headroomv1.DropTasksRequest {
	of, least, _ := j.bound()
	reason := fmt.Sprintf("early stop at %d of %d map tasks", least, of)
	r := &headroomv1.DropTasksRequest{Id: j.app.id, Tasks: j.flight.ranges()}
	if j.theta > 0 {
		r.Of, reason = uint32(of), fmt.Sprintf("drop ratio of %s: at least %d of %d map tasks remain", units.Percent(j.theta), least, of)
	}
	r.Change = &headroomv1.Change{Actor: actor, Reason: reason, RequestId: requestOf(j.app.id, j.flight)}
	return r
}

// recorded applies what the coordinators have recorded.
func (j *job) recorded(all numbers) {
	j.dropped.add(all)
	j.flight = numbers{}
}

// sweeps returns the jobs whose tasks that have not started are to be dropped by the engine: once each time that more
// may be dropped.
func (b *book) sweeps() []string {
	var ids []string
	for _, j := range b.sorted() {
		if b.restored && (j.sweeps() || len(j.flight) > 0) {
			ids = append(ids, j.app.id)
		}
	}
	return ids
}

// sweeps reports whether tasks may be dropped, ask before they start, and the master was read since.
func (j *job) sweeps() bool {
	_, _, loose := j.bound()
	return loose && j.wraps && !j.swept && j.committed && !j.over && j.seen.After(j.loosened)
}

// waiting returns the map tasks that have not started, as reported by the master.
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
