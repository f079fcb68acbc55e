package containers

import (
	"time"

	"headroom/units"
)

// QueueFloors returns the fractions of tasks that the paper's three queues guarantee, the
// most sensitive queue first.
func QueueFloors() []float64 { return []float64{1, 0.75, 0.5} }

// MinTasks returns the minimum number of tasks with which a job of n tasks may end: the floor, a fraction of them,
// rounded up. A floor of 0 or less, above 1, or NaN, is all tasks.
func MinTasks(n int, floor float64) int {
	return units.Ratio(floor).Least(n)
}

// MayStop reports whether a job's map tasks that have not started may be dropped: it has exceeded its uncapped finish
// time, and its minimum of tasks and the target are done or running. Running tasks are never killed, so they count:
// waiting for their ends would only start tasks that are not needed. It returns false for a job without a task left to
// drop, and if D is unknown (0).
func MayStop(elapsed, uncapped time.Duration, tasks, done, running, minTasks, aim int) bool {
	return uncapped > 0 && elapsed > uncapped && minTasks < tasks && done+running >= max(minTasks, aim) && done < tasks
}

// Damping prevents allocations from following noise.
type Damping struct {
	// Every is the minimum time between two changes; 0: none.
	Every time.Duration
	// Move is by how many containers one job's share must differ; below 1 it counts as 1.
	Move int
	// Gain is by how much the sum of delays must fall if less moves, as a fraction of it.
	Gain float64
	// Least is by how much it must fall in any case, as a fraction of it, if there is any. The model lets a job keep
	// its containers to the end, while those of an ended job go to the others, so small gains are none. 0: it may even
	// rise.
	Least float64
}

// DefaultDamping lets shares change at most every 20 s, like the published code, by 2 containers or for a tenth of the
// delays, and never for less than a fiftieth.
func DefaultDamping() Damping {
	return Damping{Every: 20 * time.Second, Move: 2, Gain: 0.1, Least: 0.02}
}

// Worth reports whether a new division should replace the old one, which has stood for
// since: both name the same jobs in the same order; before and after are their
// stretches (Plan.Stretch).
func (d Damping) Worth(since time.Duration, old, now []int, before, after float64) bool {
	if since < d.Every {
		return false
	}
	moved := 0
	for i := range now {
		moved = max(moved, now[i]-old[i], old[i]-now[i])
	}
	if d.Least > 0 && before > 0 && after > before*(1-d.Least) {
		return false
	}
	return moved >= max(1, d.Move) || moved > 0 && after < before*(1-d.Gain)
}
