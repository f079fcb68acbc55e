package dispatch

import (
	"slices"

	"headroom/lab/dispatch/eagle"
	"headroom/lab/dispatch/sparrow"
)

// probing is Sparrow, or Eagle: schedulers that hold tasks until workers request them.
type probing struct {
	*world
	schedulers []*sparrow.Jobs[float64]
	nodes      []node
	sampler    *sparrow.Sampler // of Sparrow
	prober     *eagle.Prober    // of Eagle, with central
	central    *eagle.Central
}

// bid is the content of a probe: the distributor to query, and the job.
type bid struct {
	// job is another one by now if this one has ended; then the scheduler has no task for id.
	job         *job
	id          sparrow.Job
	distributor int
	mean        float64
}

// node is a worker of either kind.
type node struct {
	plain *sparrow.Node[bid]
	eagle *eagle.Node[bid]
}

func newProbing(w *world) *probing {
	p := &probing{world: w, nodes: make([]node, w.setup.Workers)}
	for range w.setup.Distributors {
		p.schedulers = append(p.schedulers, &sparrow.Jobs[float64]{})
	}
	if w.setup.Policy == Sparrow {
		p.sampler = sparrow.NewSampler(w.random, 0, w.setup.Workers)
		for i := range p.nodes {
			p.nodes[i].plain = &sparrow.Node[bid]{}
		}
		return p
	}
	p.prober = eagle.NewProber(w.random, w.setup.Workers, w.setup.Reserved)
	p.central = eagle.NewCentral(w.setup.Workers, w.setup.Reserved)
	for i := range p.nodes {
		p.nodes[i].eagle = eagle.NewNode(eagle.Options{SRPT: w.setup.SRPT, SBP: w.setup.SBP}, p.workLeft)
	}
	return p
}

// workLeft is what Eagle's SRPT goes by.
func (p *probing) workLeft(b bid) float64 {
	return float64(p.schedulers[b.distributor].Left(b.id)) * b.mean
}

func (p *probing) arrive(j *job) {
	b := bid{j, p.schedulers[j.distributor].Submit(j.times), j.distributor, j.mean}
	switch {
	case p.central == nil:
		p.probe(b, p.sampler.Draw(sparrow.ProbesPerTask*len(j.times)), 0, nil)
	case j.short:
		p.probe(b, p.prober.First(len(j.times)), 1, nil)
	default:
		workers, view := p.central.Place(p.now(), len(j.times), j.mean)
		p.probe(b, workers, 0, view)
	}
}

// probe sends probes to workers. Long ones have the newest view of the central scheduler.
func (p *probing) probe(b bid, workers []int, round int, view *eagle.View) {
	workers = slices.Clone(workers)
	p.hop(func() { p.probed(b, workers, round, view) })
}

// probed queues probes at workers. A worker of Eagle may reject short ones; the newest view goes back with them.
func (p *probing) probed(b bid, workers []int, round int, view *eagle.View) {
	rejected := 0
	var newest *eagle.View
	for _, w := range workers {
		n := &p.nodes[w]
		if n.plain != nil {
			n.plain.Probe(b)
		} else if !n.eagle.Probe(eagle.Probe[bid]{To: b, Estimate: b.mean, Long: view != nil, View: view}) {
			rejected++
			if v := n.eagle.View(); newest == nil || v.Sequence > newest.Sequence {
				newest = v
			}
			continue
		}
		p.ask(w)
	}
	if rejected > 0 {
		p.hop(func() { p.probe(b, p.prober.Again(rejected, round, newest), round+1, nil) })
	}
}

// ask lets an idle worker request a task. It has the answer two hops later; as all hops are alike, the scheduler can decide now.
func (p *probing) ask(worker int) {
	n := &p.nodes[worker]
	b, ok := n.next()
	if !ok {
		return
	}
	time, task := p.schedulers[b.distributor].Bind(b.id)
	answer := p.now() + 2*p.setup.Hop
	if !task {
		p.clock.Schedule(answer, rankTask, func() {
			n.refused()
			p.ask(worker)
		})
		return
	}
	if n.eagle != nil {
		n.eagle.Bound(true)
		if !b.job.short {
			p.central.Started(worker, p.now(), b.mean)
		}
	}
	p.clock.Schedule(answer+time, rankTask, func() {
		p.hop(func() { p.ended(b.job, time) })
		p.free(worker, b)
	})
}

// free lets a worker go on after a task.
func (p *probing) free(worker int, b bid) {
	n := &p.nodes[worker]
	if n.plain != nil {
		n.plain.Free()
	} else {
		n.eagle.End()
		if !b.job.short {
			p.central.Ended(worker, b.mean)
		}
	}
	p.ask(worker)
}

func (n *node) next() (bid, bool) {
	if n.plain != nil {
		return n.plain.Next()
	}
	probe, ok := n.eagle.Next()
	return probe.To, ok
}

// refused takes the answer that there is no task.
func (n *node) refused() {
	if n.plain != nil {
		n.plain.Free()
	} else {
		n.eagle.Bound(false)
	}
}
