package eagle

import "math/bits"

// View states which workers had long tasks when it was taken. Its zero value says that none has.
type View struct {
	// Sequence is larger for a later View.
	Sequence uint64
	words    []uint64
}

// Long reports whether a worker had long tasks.
func (v *View) Long(worker int) bool {
	return v != nil && worker/bits.UintSize < len(v.words) && v.words[worker/bits.UintSize]>>(worker%bits.UintSize)&1 == 1
}

// Central places the tasks of long jobs on the workers outside the short partition.
type Central struct {
	first   int // worker outside the short partition
	workers []queue
	heap    []place
	placed  []int
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
// them. The workers are valid until the next call.
func (c *Central) Place(now float64, tasks int, estimate float64) ([]int, *View) {
	c.heap = c.heap[:0]
	for w := c.first; w < len(c.workers); w++ {
		c.heap = append(c.heap, place{c.workers[w].wait(now), w})
	}
	for i := len(c.heap)/2 - 1; i >= 0; i-- {
		c.sink(i)
	}
	c.placed = c.placed[:0]
	for range tasks {
		first := &c.heap[0]
		c.placed = append(c.placed, first.worker)
		q := &c.workers[first.worker]
		q.tasks++
		q.work += estimate
		first.wait += estimate
		c.sink(0)
	}
	return c.placed, c.view()
}

// wait returns how long a new task would wait.
func (q *queue) wait(now float64) float64 {
	if q.tasks == 0 {
		return 0
	}
	if !q.running {
		return q.work
	}
	return max(0, q.work-min(now-q.since, q.estimate))
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
	v := &View{Sequence: c.views, words: make([]uint64, len(c.workers)/bits.UintSize+1)}
	for w := range c.workers {
		if c.workers[w].tasks > 0 {
			v.words[w/bits.UintSize] |= 1 << (w % bits.UintSize)
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
	q.tasks--
	q.work -= estimate
	if q.tasks == 0 {
		q.work = 0 // no rest of rounding
	}
}
