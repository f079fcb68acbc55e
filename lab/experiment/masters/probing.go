package masters

import (
	"context"

	"headroom/lab/dispatch/eagle"
)

// Sparrow: each distributor probes twice as many monitors as a job has tasks; a monitor whose worker is free requests a task
// from the distributor of its oldest probe. Eagle: distributors do so for short jobs, and one more, the central one, places
// the tasks of long jobs outside of the short partition, which is the first workers. A monitor with a task of a long job
// refuses probes of short ones, and reports which others have such tasks.

// startSparrow starts monitors and distributors.
func startSparrow(ctx context.Context, p *plant, seed uint64) (system, error) {
	return startParties(ctx, p, seed, none)
}

// startEagle starts monitors, distributors and the central one.
func startEagle(ctx context.Context, p *plant, seed uint64) (system, error) {
	return startParties(ctx, p, seed, p.Distributors)
}

// none is no central distributor.
const none = -1

// hub is a distributor: it has the tasks of its jobs that no monitor has requested.
type hub struct {
	jobs    map[int]*heldJob
	prober  *eagle.Prober
	view    *eagle.View    // the newest
	central *eagle.Central // of the central distributor only
}

type heldJob struct {
	lengths []float64
	mean    float64
	// given and ended are how many tasks were given to monitors, and have ended.
	given, ended int
}

func (h *hub) hear(m message) (out []outgoing) {
	j := h.jobs[m.Job]
	switch {
	case m.Kind == submit:
		return h.submit(&m)
	case m.Kind == refuse && j != nil:
		if h.view == nil || m.View.Sequence > h.view.Sequence {
			h.view = m.View
		}
		for _, node := range h.prober.Again(1, m.Round+1, h.view) {
			out = append(out, outgoing{node, message{Kind: probe, Job: m.Job, Mean: j.mean, Round: m.Round + 1}})
		}
	case m.Kind == ask && (j == nil || j.given == len(j.lengths)):
		return []outgoing{{m.Node, message{Kind: empty, Job: m.Job}}}
	case m.Kind == ask:
		if h.central != nil {
			h.central.Started(m.Node, m.at, j.mean)
		}
		j.given++
		return []outgoing{{m.Node, message{Kind: give, Job: m.Job, Task: j.given - 1, Length: j.lengths[j.given-1]}}}
	case m.Kind == ended && j != nil:
		if h.central != nil {
			h.central.Ended(m.Node, j.mean)
		}
		if j.ended++; j.ended == len(j.lengths) {
			delete(h.jobs, m.Job)
		}
	}
	return out
}

// submit takes a job's tasks and probes monitors for them.
func (h *hub) submit(m *message) (out []outgoing) {
	h.jobs[m.Job] = &heldJob{lengths: m.Lengths, mean: m.Mean}
	var nodes []int
	var view *eagle.View
	if h.central != nil {
		nodes, view = h.central.Place(m.at, len(m.Lengths), m.Mean)
	} else {
		nodes = h.prober.First(len(m.Lengths))
	}
	for _, node := range nodes {
		out = append(out, outgoing{node, message{Kind: probe, Job: m.Job, Mean: m.Mean, View: view}})
	}
	return out
}

// asked identifies the distributor of a probe and its job.
type asked struct{ hub, job int }

type monitor struct {
	node    *eagle.Node[asked]
	serving asked
}

func (s *monitor) hear(m message) (out []outgoing) {
	switch m.Kind {
	case probe:
		if !s.node.Probe(eagle.Probe[asked]{To: asked{m.Hub, m.Job}, Estimate: m.Mean, View: m.View}) {
			out = append(out, outgoing{m.Hub, message{Kind: refuse, Job: m.Job, Round: m.Round, View: s.node.View()}})
		}
	case give:
		s.node.Bound(true)
		return []outgoing{{self, m}}
	case empty:
		s.node.Bound(false)
	case ended:
		s.node.End()
		out = append(out, outgoing{s.serving.hub, message{Kind: ended, Job: m.Job, Task: m.Task}})
	default:
	}
	if next, ok := s.node.Next(); ok {
		s.serving = next.To
		out = append(out, outgoing{next.To.hub, message{Kind: ask, Job: next.To.job}})
	}
	return out
}
