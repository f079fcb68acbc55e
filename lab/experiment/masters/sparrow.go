package masters

import (
	"context"

	"headroom/lab/dispatch/sparrow"
)

// Sparrow: each distributor probes twice as many monitors as a job has tasks; a monitor whose worker is free requests a task from the
// distributor of its oldest probe.

// startSparrow starts monitors and distributors.
func startSparrow(ctx context.Context, p *plant, seed uint64) (system, error) {
	return startParties(ctx, p, none, func(at int) part {
		return &sparrowDistributor{held: newHeld(), sampler: sparrow.NewSampler(draws(seed, at), 0, p.Workers())}
	}, func(int) part { return &sparrowMonitor{} }, p.Distributors)
}

// none is no central distributor.
const none = -1

// held are the tasks of a distributor's jobs that no monitor has requested.
type held struct {
	jobs sparrow.Jobs[int] // indexes of tasks
	of   map[int]*heldJob
}

type heldJob struct {
	id      sparrow.Job
	lengths []float64
	mean    float64
	// ended is how many tasks have.
	ended int
}

func newHeld() held { return held{of: map[int]*heldJob{}} }

// take takes a job's tasks.
func (h *held) take(m *message) {
	indexes := make([]int, len(m.Lengths))
	for i := range indexes {
		indexes[i] = i
	}
	h.of[m.Job] = &heldJob{id: h.jobs.Submit(indexes), lengths: m.Lengths, mean: m.Mean}
}

// mean is the mean time of a job's tasks; 0 once it has ended.
func (h *held) mean(job int) float64 {
	if x := h.of[job]; x != nil {
		return x.mean
	}
	return 0
}

// hear answers a monitor that requests a task, and forgets a job with its last task.
func (h *held) hear(m *message) []outgoing {
	x := h.of[m.Job]
	switch m.Kind {
	case ask:
		if x != nil {
			if task, ok := h.jobs.Bind(x.id); ok {
				return []outgoing{{m.Node, message{Kind: give, Job: m.Job, Task: task, Length: x.lengths[task]}}}
			}
		}
		return []outgoing{{m.Node, message{Kind: empty, Job: m.Job}}}
	case ended:
		if x != nil {
			if x.ended++; x.ended == len(x.lengths) {
				delete(h.of, m.Job)
			}
		}
	default:
	}
	return nil
}

type sparrowDistributor struct {
	held    held
	sampler *sparrow.Sampler
}

func (d *sparrowDistributor) hear(m message) (out []outgoing) {
	if m.Kind != submit {
		return d.held.hear(&m)
	}
	d.held.take(&m)
	for _, node := range d.sampler.Draw(sparrow.ProbesPerTask * len(m.Lengths)) {
		out = append(out, outgoing{node, message{Kind: probe, Job: m.Job}})
	}
	return out
}

// asked names whom a probe is from.
type asked struct{ hub, job int }

type sparrowMonitor struct {
	node    sparrow.Node[asked]
	serving asked
}

func (s *sparrowMonitor) hear(m message) (out []outgoing) {
	switch m.Kind {
	case probe:
		s.node.Probe(asked{m.Hub, m.Job})
	case give:
		return []outgoing{{self, m}}
	case empty:
		s.node.Free()
	case ended:
		s.node.Free()
		out = append(out, outgoing{s.serving.hub, message{Kind: ended, Job: m.Job, Task: m.Task}})
	default:
	}
	if next, ok := s.node.Next(); ok {
		s.serving = next
		out = append(out, outgoing{next.hub, message{Kind: ask, Job: next.job}})
	}
	return out
}
