package yarn

import (
	"strconv"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/scheduler/scaling"
)

// The runs of applications teach how they scale, as those of the scheduler's own jobs do, from what the engine reads anyway:
// the containers of each, the tasks of its master, and the reports of its driver.

// curveName returns the name under which runs are learned from. Users do not learn from each other's applications.
func (j *job) curveName() string { return Name + "/" + j.app.user + "/" + j.app.name }

// restarted returns how many map tasks have lost their attempt since they were last read: their progress went back.
func (j *job) restarted(maps []task) (n int) {
	if j.all == nil {
		return 0
	}
	for i, was := range j.all.maps {
		if was.state == taskSucceeded && maps[i].state != taskSucceeded || was.state == taskRuns && maps[i].state == taskRuns && maps[i].part >= 0 && maps[i].part < was.part {
			n++
		}
	}
	return n
}

// measure records what the job holds for its tasks, if that was just read.
func (b *book) measure(now time.Time, j *job) {
	sample, ok := j.sampleHeld()
	if j.spark != nil {
		sample, ok = b.sampleSpark(now, j, j.spark)
	}
	if b.learner == nil || !ok {
		return
	}
	j.meter.Look(now, j.attemptNumber(), sample, func(address string) (float64, bool) {
		s, known := b.speeds[b.cfg.node(address)]
		return s.now, known
	})
}

// sampleHeld returns what a MapReduce job holds for its maps; false after them, and while that is unknown.
func (j *job) sampleHeld() (s scaling.Sample, ok bool) {
	maps := j.count(taskRuns)
	if j.all == nil || j.on == nil || maps+j.count(taskWaits) == 0 {
		return s, false
	}
	containers := 0
	for _, n := range j.on {
		containers += n
	}
	for _, t := range j.all.reduces {
		if t.state == taskRuns {
			containers--
		}
	}
	// A master reports a task as running that waits for its next container.
	s = scaling.Sample{Held: float64(max(0, min(maps, containers))), On: j.on, Done: j.done(), Lost: j.lost}
	j.lost = 0
	return s, true
}

// sampleSpark returns what a Spark application holds for its tasks, in the unit of shares; false while that is unknown.
func (b *book) sampleSpark(now time.Time, j *job, app *sparkApp) (s scaling.Sample, ok bool) {
	if !app.fresh(now) || j.on == nil {
		return s, false
	}
	p, each := &app.progress, 1.0
	if room := app.executors * b.cfg.Container.times(app.executor); p.Cores > 0 && room > 0 {
		each = float64(room) / float64(p.Cores)
	}
	s = scaling.Sample{Held: float64(p.Running+p.Copies) * each, Copies: float64(p.Copies) * each, On: j.on, Done: p.Done}
	for _, stage := range p.Stages {
		if stage.Attempt > 0 {
			s.Lost = max(s.Lost, stage.Partitions) // outputs were lost, and their tasks ran again
		}
	}
	return s, true
}

// attemptNumber returns the number of its master's attempt, 0 while unknown.
func (j *job) attemptNumber() uint32 {
	n, err := strconv.ParseUint(j.app.attempt[strings.LastIndexByte(j.app.attempt, '_')+1:], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// learnEnd learns from an ended run. A master that was started again has not seen all of it.
func (b *book) learnEnd(j *job) {
	if run, ok := j.meter.End(1, j.finallyDone(), 0); ok && j.state == headroomv1.JobState_JOB_STATE_DONE {
		b.learner.Ended(j.curveName(), run)
	}
	j.meter = scaling.Meter{}
}
