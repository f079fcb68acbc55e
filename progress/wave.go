package progress

import "time"

// wave follows when the running tasks of a job began, for engines that tell of a running
// task's progress only at its end. MapReduce is one where tasks are short: a map that
// spends most of its life on being started is at 0 until it is nearly done. Taken at its
// word, a job would stand still within each wave of tasks and leap at its end.
//
// Tasks that began first are taken to end first. What runs is taken to be done as far as
// its age says of the length of those that have ended.
type wave struct {
	begun []time.Duration // of each running task, oldest first
	// lengths of the tasks that have ended, newest weighted most.
	length float64 // seconds; 0 while none has ended
	// blind: running tasks' progress has been seen to be missing.
	blind bool
}

const (
	// nearlyDone is the most that a running task counts for by its age.
	nearlyDone = 0.9
	// lengthGain is the weight of the newest task's length: a cap changes them.
	lengthGain = 0.25
	// wavesMost bounds the running tasks that are followed.
	wavesMost = 10_000
)

// step takes in o after last: tasks that ended, and tasks that began.
func (w *wave) step(last, o *Observation) {
	middle := (o.Elapsed + last.Elapsed) / 2 // when, as far as is known
	ended := min(max(o.Done-last.Done, 0), len(w.begun))
	for _, at := range w.begun[:ended] {
		w.ended((middle - at).Seconds())
	}
	w.begun = w.begun[ended:]
	running := min(int(o.Containers+0.5), o.Tasks-o.Done, wavesMost)
	for len(w.begun) < running {
		w.begun = append(w.begun, middle)
	}
	w.begun = w.begun[:max(running, 0)] // what was taken away began last
}

func (w *wave) ended(seconds float64) {
	switch {
	case seconds <= 0:
	case w.length == 0:
		w.length = seconds
	default:
		w.length += lengthGain * (seconds - w.length)
	}
}

// parts returns the finished parts of the running tasks, in tasks, by their ages and the
// length of one in seconds; 0 while that is not known.
func (w *wave) parts(now time.Duration, length float64) float64 {
	if length <= 0 {
		return 0
	}
	sum := 0.0
	for _, at := range w.begun {
		sum += min((now-at).Seconds()/length, nearlyDone)
	}
	return sum
}

// work returns the map work done at o, as the engine tells it, or by ages where it has been
// seen to say nothing of running tasks.
func (w *wave) work(o *Observation, length float64) float64 {
	if o.Work < 0 {
		return o.Work
	}
	parts, told := w.parts(o.Elapsed, length), o.Work-float64(o.Done)
	w.blind = w.blind || parts > 0.5 && told < 0.1*parts
	if !w.blind {
		return o.Work
	}
	return min(max(o.Work, float64(o.Done)+parts), float64(o.Tasks))
}
