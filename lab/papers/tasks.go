package papers

import "slices"

// Tasks are the map tasks of a simulated job, each of which runs in a container.
type Tasks struct {
	// Times is the time of each task at full speed, s.
	Times                []float64
	Begun, Done, Dropped int

	left, length []float64 // of each running task, s at full speed
}

// Pending returns the number of tasks that have not started.
func (t *Tasks) Pending() int { return max(0, len(t.Times)-t.Begun-t.Dropped) }

// Over reports whether none is left to run or to end.
func (t *Tasks) Over() bool { return t.Done+t.Dropped >= len(t.Times) }

// Running returns the number of running tasks.
func (t *Tasks) Running() int { return len(t.left) }

// Begin starts the next.
func (t *Tasks) Begin() {
	t.left, t.length = append(t.left, t.Times[t.Begun]), append(t.length, t.Times[t.Begun])
	t.Begun++
}

// Drop drops up to n tasks that have not started.
func (t *Tasks) Drop(n int) { t.Dropped += max(0, min(n, t.Pending())) }

// Kill kills the running tasks, whose work is lost.
func (t *Tasks) Kill() {
	t.Dropped += len(t.left)
	t.left, t.length = nil, nil
}

// Work advances the running tasks by the given seconds at full speed.
func (t *Tasks) Work(seconds float64) {
	kept := 0
	for i := range t.left {
		if t.left[i] -= seconds; t.left[i] <= 0 {
			t.Done++
			continue
		}
		t.left[kept], t.length[kept] = t.left[i], t.length[i]
		kept++
	}
	t.left, t.length = t.left[:kept], t.length[:kept]
}

// Worked is the work done, in tasks, the finished parts of running ones included.
func (t *Tasks) Worked() float64 {
	sum := float64(t.Done)
	for i := range t.left {
		sum += 1 - t.left[i]/t.length[i]
	}
	return sum
}

// Clone are tasks in the same state.
func (t *Tasks) Clone() Tasks {
	c := *t
	c.left, c.length = slices.Clone(t.left), slices.Clone(t.length)
	return c
}
