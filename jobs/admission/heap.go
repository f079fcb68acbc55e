package admission

import "container/heap"

// jobHeap is a heap of jobs that know their places in it, so that one whose key changed can be moved.
type jobHeap struct {
	jobs []*job
	// place is the index of the heap in job.at.
	place int
	less  func(a, b *job) bool
}

func (h *jobHeap) Len() int           { return len(h.jobs) }
func (h *jobHeap) Less(i, j int) bool { return h.less(h.jobs[i], h.jobs[j]) }

func (h *jobHeap) Swap(i, j int) {
	h.jobs[i], h.jobs[j] = h.jobs[j], h.jobs[i]
	h.jobs[i].at[h.place], h.jobs[j].at[h.place] = i, j
}

// Push is for package heap.
func (h *jobHeap) Push(x any) {
	j := x.(*job)
	j.at[h.place] = len(h.jobs)
	h.jobs = append(h.jobs, j)
}

// Pop is for package heap.
func (h *jobHeap) Pop() any {
	last := len(h.jobs) - 1
	j := h.jobs[last]
	h.jobs[last], h.jobs = nil, h.jobs[:last]
	return j
}

// queue holds the jobs that wait, in two orders.
type queue struct {
	// order is who is served first: the fewest slots, then the longest time to the deadline, then who came first.
	// Needs grow while jobs wait, so a stored need is at most the true one: the head is brought up to date before
	// it is believed, and once it does not fit, no other does.
	order jobHeap
	// ends is who has to be refused first.
	ends jobHeap
	// sweep is where in order the next refresh of estimates goes on.
	sweep int
}

func newQueue() queue {
	return queue{
		order: jobHeap{place: 0, less: func(a, b *job) bool {
			if a.need != b.need {
				return a.need < b.need
			}
			if a.due != b.due {
				return a.due > b.due
			}
			return a.seq < b.seq
		}},
		ends: jobHeap{place: 1, less: func(a, b *job) bool {
			if a.last != b.last {
				return a.last < b.last
			}
			return a.seq < b.seq
		}},
	}
}

func (q *queue) push(j *job) {
	heap.Push(&q.order, j)
	heap.Push(&q.ends, j)
}

func (q *queue) remove(j *job) {
	heap.Remove(&q.order, j.at[0])
	heap.Remove(&q.ends, j.at[1])
}

// moved restores both orders after j's keys have changed.
func (q *queue) moved(j *job) {
	heap.Fix(&q.order, j.at[0])
	heap.Fix(&q.ends, j.at[1])
}

// rebuilt restores both orders after all keys may have changed.
func (q *queue) rebuilt() {
	heap.Init(&q.order)
	heap.Init(&q.ends)
}
