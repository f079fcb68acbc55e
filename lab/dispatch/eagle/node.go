package eagle

import (
	"math"
	"slices"
)

// DelayMost is how much SRPT may delay a probe, as a multiple of its job's task time.
const DelayMost = 5

// Probe waits at a Node. P is its content, such as the scheduler that has the tasks.
type Probe[P any] struct {
	To P
	// Estimate is the job's mean task time.
	Estimate float64
	// View is that of the placement of a long task; nil for a short one.
	View *View

	delay float64 // by which other probes have overtaken it
}

func (p *Probe[P]) long() bool { return p.View != nil }

// Node is a worker with one slot.
type Node[P any] struct {
	// srpt serves the job with the least work left first; without it the first come. sbp asks for more tasks of a short job
	// before the next probe is served.
	srpt, sbp bool
	// left is the work of a job that no worker has begun, in seconds; 0 if there is none.
	left  func(P) float64
	queue []Probe[P]
	view  *View
	busy  bool
	// serving is the probe that is served, found at place.
	serving Probe[P]
	place   int
	// long counts long tasks: those that wait and the one that runs.
	long int
}

// NewNode returns an idle Node, with SRPT and SBP where they are on. left returns the work of a probe's job that no worker has begun; only SRPT uses it.
func NewNode[P any](srpt, sbp bool, left func(P) float64) *Node[P] {
	return &Node[P]{srpt: srpt, sbp: sbp, left: left}
}

// Probe queues a probe; false if it is a short one and the worker has a long task. View shows which others have one.
func (n *Node[P]) Probe(p Probe[P]) bool {
	switch {
	case p.long():
		n.long++
		n.view = p.View
	case n.long > 0:
		return false
	}
	n.queue = append(n.queue, p)
	return true
}

// View returns the newest View that a long task has brought; nil if there was none.
func (n *Node[P]) View() *View { return n.view }

// Next returns the probe whose scheduler is to be asked for a task; false if none waits or the slot is in use. The slot is in use from
// then on until Bound(false) or End.
func (n *Node[P]) Next() (Probe[P], bool) {
	if n.busy {
		return Probe[P]{}, false
	}
	n.place = 0
	if n.srpt {
		n.place = n.shortest()
	}
	if n.place >= len(n.queue) {
		return Probe[P]{}, false
	}
	n.busy = true
	n.serving = n.queue[n.place]
	return n.serving, true
}

// shortest returns the place of the job with the least work left that may overtake those ahead of it. Probes of jobs without work are
// removed.
func (n *Node[P]) shortest() int {
	n.queue = slices.DeleteFunc(n.queue, func(p Probe[P]) bool { return !p.long() && n.left(p.To) <= 0 })
	best, least, slack := 0, math.Inf(1), math.Inf(1)
	for i := range n.queue {
		p := &n.queue[i]
		if p.long() && i == 0 {
			return 0
		}
		if left := n.left(p.To); left < least && p.Estimate <= slack {
			best, least = i, left
			if p.long() {
				break
			}
		}
		if !p.long() {
			slack = min(slack, DelayMost*p.Estimate-p.delay)
		}
	}
	return best
}

// Bound takes the answer whether the scheduler had a task. If so, it runs from now on.
func (n *Node[P]) Bound(task bool) {
	sticks := n.sbp && task && !n.serving.long()
	if !sticks {
		n.queue = slices.Delete(n.queue, n.place, n.place+1)
	}
	if !task {
		n.End()
		return
	}
	for i := range n.place {
		n.queue[i].delay += n.serving.Estimate
	}
}

// End states that the task has ended.
func (n *Node[P]) End() {
	n.busy = false
	if n.serving.long() {
		n.long--
	}
}
