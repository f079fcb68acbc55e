package live

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/traces"
)

// part is the pure half of a distributor or of a node monitor. It belongs to one goroutine.
type part interface {
	// hear returns what follows from a message, in order.
	hear(m message) []outgoing
}

// outgoing is a message to a monitor or to a distributor. A monitor's to itself starts a task on its worker.
type outgoing struct {
	to int
	message
}

// self is where a monitor sends what its own worker is to start.
const self = -1

// parties are the distributors and node monitors of a system that probes. Each has a goroutine that owns its part, and takes
// one message after the other.
type parties struct {
	*plant

	served *slots
	hubs   []*hub
	// hubBox and nodeBox are the inboxes.
	hubBox, nodeBox []chan message
	// central is the hub that long jobs are submitted to; -1 where each distributor takes them.
	central int

	began   time.Time
	stop    context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	jobs map[int]*flight
	err  error // the first that broke the system
	over chan struct{}
}

// flight is a job that was submitted and has not ended.
type flight struct {
	left int
	done chan struct{}
}

// startParties starts a monitor with a worker for each node, and so many distributors, each with its part.
func startParties(ctx context.Context, p *plant, central int, distributor, monitor func(at int) part, count int) (system, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &parties{plant: p, central: central, began: time.Now(), stop: cancel, jobs: map[int]*flight{}, over: make(chan struct{})}
	err := s.begin(ctx, distributor, monitor, count)
	if err == nil {
		err = await(ctx, "workers are not ready", func() (bool, error) { return s.served.connected() == p.workers(), s.broken() })
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *parties) begin(ctx context.Context, distributor, monitor func(at int) part, count int) (err error) {
	for range s.workers() {
		s.nodeBox = append(s.nodeBox, newBox())
	}
	if s.served, err = serveSlots(s.taskEnded); err != nil {
		return err
	}
	for range count {
		box := newBox()
		h, err := serveHub(ctx, &s.running, func(m message) error { return post(box, m) })
		if err != nil {
			return err
		}
		s.hubs, s.hubBox = append(s.hubs, h), append(s.hubBox, box)
	}
	for i := range s.hubs { // what they read is complete by now
		s.running.Go(func() { s.distribute(ctx, i, distributor(i)) })
	}
	for i := range s.workers() {
		links, err := s.joinAll(ctx, i)
		if err != nil {
			return err
		}
		s.running.Go(func() { s.monitor(ctx, i, links, monitor(i)) })
		if err := s.startWorker(nodeName(i), s.served.address); err != nil {
			return err
		}
	}
	return await(ctx, "node monitors are not ready", func() (bool, error) {
		for _, h := range s.hubs {
			if h.connected() < s.workers() {
				return false, s.broken()
			}
		}
		return true, nil
	})
}

func nodeName(i int) string { return "w" + strconv.Itoa(i) }

// joinAll opens a monitor's streams to all distributors.
func (s *parties) joinAll(ctx context.Context, node int) (links []chan<- message, err error) {
	client := newClient()
	for at, h := range s.hubs {
		l, err := join(ctx, &s.running, client, h.address, node, func(m message) error {
			m.Hub = at
			return post(s.nodeBox[node], m)
		}, func(err error) { s.fail(fmt.Errorf("live: stream of node monitor %d: %w", node, err)) })
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	s.running.Go(func() {
		<-ctx.Done()
		client.CloseIdleConnections()
	})
	return links, nil
}

// distribute owns a distributor.
func (s *parties) distribute(ctx context.Context, at int, p part) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.hubBox[at]:
			if m.Kind == ended {
				s.count(m.Job)
			}
			m.at = time.Since(s.began).Seconds()
			for _, o := range p.hear(m) {
				s.fail(s.hubs[at].send(o.to, o.message))
			}
		}
	}
}

// monitor owns a node monitor.
func (s *parties) monitor(ctx context.Context, node int, links []chan<- message, p part) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.nodeBox[node]:
			for _, o := range p.hear(m) {
				if o.to == self {
					s.served.start(nodeName(node), s.task(strconv.Itoa(o.Job), o.Task, o.Length))
					continue
				}
				o.Node = node
				s.fail(post(links[o.to], o.message))
			}
		}
	}
}

// taskEnded notifies a monitor that its worker's task has ended.
func (s *parties) taskEnded(node string, r *headroomv1.TaskResult) {
	if err := failed(r); err != nil {
		s.fail(err)
		return
	}
	job, err := strconv.Atoi(r.GetRef().GetJob())
	if err == nil {
		var at int
		if at, err = strconv.Atoi(node[1:]); err == nil {
			err = post(s.nodeBox[at], message{Kind: ended, Node: at, Hub: self, Job: job, Task: int(r.GetRef().GetIndex())})
		}
	}
	s.fail(err)
}

// fail ends all runs with the first error.
func (s *parties) fail(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.over)
	}
}

func (s *parties) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// count takes note of a task that has ended.
func (s *parties) count(job int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.jobs[job]
	if f == nil {
		return
	}
	if f.left--; f.left == 0 {
		delete(s.jobs, job)
		close(f.done)
	}
}

// doors implements system: the central distributor is none of them.
func (s *parties) doors() int { return s.distributors }

// run implements system.
func (s *parties) run(ctx context.Context, at, job int, j *traces.Job, long bool) error {
	if long && s.central >= 0 {
		at = s.central
	}
	f := &flight{left: len(j.Times), done: make(chan struct{})}
	s.mu.Lock()
	s.jobs[job] = f
	s.mu.Unlock()
	if err := post(s.hubBox[at], message{Kind: submit, Hub: at, Job: job, Lengths: j.Times, Mean: j.Mean, Long: long}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.over:
		return s.broken()
	case <-f.done:
		return nil
	}
}

// close implements system.
func (s *parties) close() error {
	s.stop()
	err := s.group.Close()
	if s.served != nil {
		s.served.close()
	}
	s.running.Wait()
	return err
}
