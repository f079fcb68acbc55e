package dispatch

import "headroom/lab/dispatch/eagle"

// probing is Sparrow, or Eagle: schedulers that hold tasks until workers request them.
type probing struct {
	*world
	nodes  []*eagle.Node[*job]
	prober *eagle.Prober
	// central places long jobs; nil for Sparrow, where all are short.
	central *eagle.Central
}

func newProbing(w *world) *probing {
	p := &probing{world: w, prober: eagle.NewProber(w.random, w.setup.Workers, w.setup.Reserved)}
	if w.setup.Policy == Eagle {
		p.central = eagle.NewCentral(w.setup.Workers, w.setup.Reserved)
	}
	for range w.setup.Workers {
		p.nodes = append(p.nodes, eagle.NewNode(w.setup.SRPT, w.setup.SBP, (*job).workLeft))
	}
	return p
}

func (j *job) workLeft() float64 { return float64(len(j.times)-j.bound) * j.mean }

func (p *probing) long(j *job) bool { return p.central != nil && !j.short }

func (p *probing) arrive(j *job) {
	if !p.long(j) {
		p.probe(j, p.prober.First(len(j.times)), 1, nil)
		return
	}
	workers, view := p.central.Place(p.now(), len(j.times), j.mean)
	p.probe(j, workers, 0, view)
}

// probe sends probes to workers. Long ones have the newest view of the central scheduler. A worker may reject short ones; the
// newest view goes back with them.
func (p *probing) probe(j *job, workers []int, round int, view *eagle.View) {
	p.hop(func() {
		rejected := 0
		var newest *eagle.View
		for _, w := range workers {
			n := p.nodes[w]
			if n.Probe(eagle.Probe[*job]{To: j, Estimate: j.mean, View: view}) {
				p.ask(w)
				continue
			}
			rejected++
			if v := n.View(); newest == nil || v.Sequence > newest.Sequence {
				newest = v
			}
		}
		if rejected > 0 {
			p.hop(func() { p.probe(j, p.prober.Again(rejected, round, newest), round+1, nil) })
		}
	})
}

// ask lets an idle worker request a task. It has the answer two hops later; as all hops are alike, the scheduler can decide now.
func (p *probing) ask(worker int) {
	n := p.nodes[worker]
	probe, ok := n.Next()
	if !ok {
		return
	}
	j, answer := probe.To, p.now()+2*p.setup.Hop
	if j.bound == len(j.times) {
		p.clock.Schedule(answer, rankTask, func() {
			n.Bound(false)
			p.ask(worker)
		})
		return
	}
	time := j.times[j.bound]
	j.bound++
	n.Bound(true)
	if p.long(j) {
		p.central.Started(worker, p.now(), j.mean)
	}
	p.clock.Schedule(answer+time, rankTask, func() {
		p.hop(func() { p.ended(j, time) })
		n.End()
		if p.long(j) {
			p.central.Ended(worker, j.mean)
		}
		p.ask(worker)
	})
}
