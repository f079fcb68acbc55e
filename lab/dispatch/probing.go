package dispatch

import (
	"headroom/jobs/dispatch/eagle"
	"headroom/jobs/dispatch/sparrow"
	"headroom/lab/events"
)

// probing is Sparrow, or Eagle: schedulers that hold tasks until workers ask for them.
type probing struct {
	*world
	clock      events.Clock[float64, probeEvent]
	schedulers []*sparrow.Jobs[float64]
	nodes      []node
	sampler    *sparrow.Sampler // of Sparrow
	prober     *eagle.Prober    // of Eagle, with central
	central    *eagle.Central
}

// bid is the content of a probe: the distributor to ask, and the job.
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

type probeKind uint8

const (
	// probesArrive at workers; those that are rejected go back.
	probesArrive probeKind = iota
	// rejected probes are back at the scheduler.
	rejected
	// noTask is a scheduler's answer at a worker.
	noTask
	// taskDone is the end of a task at its worker; resultArrives follows a hop later.
	taskDone
	resultArrives
)

type probeEvent struct {
	kind   probeKind
	bid    bid
	worker int32
	round  int32
	count  int32
	ran    float64
	// workers are probed; long ones come with a view, rejected ones bring one back.
	workers []int
	view    *eagle.View
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
		workers, view := p.central.Place(p.now, len(j.times), j.mean)
		p.probe(b, workers, 0, view)
	}
}

// probe sends probes to workers.
func (p *probing) probe(b bid, workers []int, round int32, view *eagle.View) {
	p.clock.Schedule(p.now+p.setup.Hop, rankTask, probeEvent{kind: probesArrive, bid: b, workers: append([]int(nil), workers...), round: round, view: view})
}

func (p *probing) step(until float64) bool {
	e, ok := p.clock.Before(until)
	if !ok {
		return false
	}
	p.now = p.clock.Now()
	switch e.kind {
	case probesArrive:
		p.arriveProbes(&e)
	case rejected:
		p.probe(e.bid, p.prober.Again(int(e.count), int(e.round), e.view), e.round+1, nil)
	case noTask:
		p.nodes[e.worker].refused()
		p.ask(int(e.worker))
	case taskDone:
		p.clock.Schedule(p.now+p.setup.Hop, rankTask, probeEvent{kind: resultArrives, bid: e.bid, ran: e.ran})
		p.free(int(e.worker), e.bid)
	case resultArrives:
		p.ended(e.bid.job, e.ran)
	}
	return true
}

// arriveProbes queues probes at workers. A worker of Eagle may reject short ones; the newest view goes back with them.
func (p *probing) arriveProbes(e *probeEvent) {
	back := probeEvent{kind: rejected, bid: e.bid, round: e.round}
	for _, w := range e.workers {
		n := &p.nodes[w]
		if n.plain != nil {
			n.plain.Probe(e.bid)
		} else if !n.eagle.Probe(eagle.Probe[bid]{To: e.bid, Estimate: e.bid.mean, Long: e.view != nil, View: e.view}) {
			back.count++
			if v := n.eagle.View(); back.view == nil || v.Sequence > back.view.Sequence {
				back.view = v
			}
			continue
		}
		p.ask(w)
	}
	if back.count > 0 {
		p.clock.Schedule(p.now+p.setup.Hop, rankTask, back)
	}
}

// ask lets an idle worker ask for a task. It has the answer two hops later; as all hops are alike, the scheduler can decide now.
func (p *probing) ask(worker int) {
	n := &p.nodes[worker]
	b, ok := n.next()
	if !ok {
		return
	}
	time, task := p.schedulers[b.distributor].Bind(b.id)
	answer := p.now + 2*p.setup.Hop
	if !task {
		p.clock.Schedule(answer, rankTask, probeEvent{kind: noTask, worker: int32(worker)})
		return
	}
	if n.eagle != nil {
		n.eagle.Bound(true)
		if !b.job.short {
			p.central.Started(worker, p.now, b.mean)
		}
	}
	p.clock.Schedule(answer+time, rankTask, probeEvent{kind: taskDone, bid: b, worker: int32(worker), ran: time})
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
