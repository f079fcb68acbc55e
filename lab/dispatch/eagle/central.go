// Package eagle dispatches short and long jobs side by side, as Eagle does (Delgado et al. 2016), and short ones alone as
// Sparrow does (Ousterhout et al. 2013): it is what Headroom's own dispatch is compared with.
//
// The one idea: a scheduler probes twice as many random workers as a short job has tasks (batch sampling). A worker queues
// probes, not tasks, and requests a task from the scheduler when a probe's turn comes (late binding). Long jobs are placed by
// a central scheduler that knows how long each worker's queue is. A part of the workers, the short partition, takes no long
// tasks. A worker with a long task rejects a short probe and answers with its View, the bits of the workers that have long
// tasks; the scheduler probes again elsewhere (succinct state sharing), and after Rounds rounds in the short partition.
// Sparrow is Eagle without long jobs.
//
// Guarantees: no short probe is queued at a worker that has a long task; no long task goes to the short partition; the
// workers of a job's probes are distinct as long as there are enough. The package reads no clock, draws no random numbers of
// its own and does no I/O. Times are in seconds.
package eagle

import "math/bits"

// View has a bit for each worker that had long tasks when it was taken. Its zero value has none.
type View struct {
	// Sequence is larger for a later View.
	Sequence uint64
	Words    []uint64
}

// Long reports whether a worker had long tasks.
func (v *View) Long(worker int) bool {
	return v != nil && worker/bits.UintSize < len(v.Words) && v.Words[worker/bits.UintSize]>>(worker%bits.UintSize)&1 == 1
}

// Central places the tasks of long jobs on the workers outside the short partition.
type Central struct {
	first   int // worker outside the short partition
	workers []queue
	heap    []place
	views   uint64
}

// queue is what Central knows of a worker: the estimated time of the long tasks that are there, and which of them runs since when.
type queue struct {
	tasks    int
	work     float64
	running  bool
	since    float64
	estimate float64
}

// place is a worker in the heap of those that would begin a task first.
type place struct {
	wait   float64
	worker int
}

func (p place) before(q place) bool {
	return p.wait < q.wait || p.wait == q.wait && p.worker < q.worker
}

// NewCentral returns a Central of so many workers, of which the first short ones are the short partition.
func NewCentral(workers, short int) *Central {
	return &Central{first: short, workers: make([]queue, workers)}
}

// Place returns a worker for each of a job's tasks, always the one that would begin it first, and the View that the tasks carry to
// them.
func (c *Central) Place(now float64, tasks int, estimate float64) (placed []int, view *View) {
	c.heap = c.heap[:0]
	for w := c.first; w < len(c.workers); w++ {
		c.heap = append(c.heap, place{c.workers[w].wait(now), w})
	}
	for i := len(c.heap)/2 - 1; i >= 0; i-- {
		c.sink(i)
	}
	for range tasks {
		first := &c.heap[0]
		placed = append(placed, first.worker)
		q := &c.workers[first.worker]
		q.tasks++
		q.work += estimate
		first.wait += estimate
		c.sink(0)
	}
	return placed, c.view()
}

func (q *queue) wait(now float64) float64 {
	if q.tasks > 0 && q.running {
		return max(0, q.work-min(now-q.since, q.estimate))
	}
	return q.work
}

func (c *Central) sink(i int) {
	h := c.heap
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

func (c *Central) view() *View {
	c.views++
	v := &View{Sequence: c.views, Words: make([]uint64, len(c.workers)/bits.UintSize+1)}
	for w := range c.workers {
		if c.workers[w].tasks > 0 {
			v.Words[w/bits.UintSize] |= 1 << (w % bits.UintSize)
		}
	}
	return v
}

// Started states that a worker has started a long task.
func (c *Central) Started(worker int, now, estimate float64) {
	q := &c.workers[worker]
	q.running, q.since, q.estimate = true, now, estimate
}

// Ended states that a worker has ended one.
func (c *Central) Ended(worker int, estimate float64) {
	q := &c.workers[worker]
	q.running = false
	q.work -= estimate
	if q.tasks--; q.tasks == 0 {
		q.work = 0 // no rest of rounding
	}
}
