package masters

import (
	"context"
	"slices"

	"headroom/lab/dispatch/eagle"
)

// Eagle: distributors probe for short jobs as Sparrow's do, and one more, the central one, places the tasks of long jobs outside of
// the short partition, which is the first workers. A monitor with a task of a long job refuses probes of short ones, and reports which others have such tasks.

// startEagle starts monitors, distributors and the central one.
func startEagle(ctx context.Context, p *plant, seed uint64) (system, error) {
	return startParties(ctx, p, p.Distributors, func(at int) part {
		if at == p.Distributors {
			return &eagleCentral{held: newHeld(), central: eagle.NewCentral(p.Workers(), p.short())}
		}
		return &eagleDistributor{held: newHeld(), prober: eagle.NewProber(draws(seed, at), p.Workers(), p.short())}
	}, func(int) part { return &eagleMonitor{node: eagle.NewNode[asked](eagle.Options{}, nil)} }, p.Distributors+1)
}

type eagleDistributor struct {
	held   held
	prober *eagle.Prober
	view   *eagle.View // the newest
}

func (d *eagleDistributor) hear(m message) (out []outgoing) {
	switch m.Kind {
	case submit:
		d.held.take(&m)
		for _, node := range d.prober.First(len(m.Lengths)) {
			out = append(out, d.probe(node, m.Job, 0))
		}
	case refuse:
		if d.view == nil || m.View > d.view.Sequence {
			d.view = eagle.ViewOf(m.View, m.Busy)
		}
		for _, node := range d.prober.Again(1, m.Round+1, d.view) {
			out = append(out, d.probe(node, m.Job, m.Round+1))
		}
	default:
		return d.held.hear(&m)
	}
	return out
}

func (d *eagleDistributor) probe(node, job, round int) outgoing {
	return outgoing{node, message{Kind: probe, Job: job, Mean: d.held.mean(job), Round: round}}
}

type eagleCentral struct {
	held    held
	central *eagle.Central
}

func (c *eagleCentral) hear(m message) (out []outgoing) {
	switch m.Kind {
	case submit:
		c.held.take(&m)
		nodes, view := c.central.Place(m.at, len(m.Lengths), m.Mean)
		busy := slices.Collect(view.All())
		for _, node := range nodes {
			out = append(out, outgoing{node, message{Kind: probe, Job: m.Job, Mean: m.Mean, Long: true, Busy: busy, View: view.Sequence}})
		}
		return out
	case ask:
		c.central.Started(m.Node, m.at, c.held.mean(m.Job))
	case ended:
		c.central.Ended(m.Node, c.held.mean(m.Job))
	default:
	}
	return c.held.hear(&m)
}

type eagleMonitor struct {
	node    *eagle.Node[asked]
	serving asked
}

func (s *eagleMonitor) hear(m message) (out []outgoing) {
	switch m.Kind {
	case probe:
		p := eagle.Probe[asked]{To: asked{m.Hub, m.Job}, Estimate: m.Mean, Long: m.Long}
		if m.Long {
			p.View = eagle.ViewOf(m.View, m.Busy)
		}
		if !s.node.Probe(p) {
			view := s.node.View()
			out = append(out, outgoing{m.Hub, message{Kind: refuse, Job: m.Job, Round: m.Round, Busy: slices.Collect(view.All()), View: view.Sequence}})
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
