package distributor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/rpc"
)

// Lost is the error of a task that its group has lost, if its submitter wants no further attempt.
const Lost = "lost"

var (
	// errStopped is returned after the distributor has ended.
	errStopped = errors.New("distributor stopped")
	// errTwice is returned if two tasks at masters have the same reference.
	errTwice = errors.New("a task with this reference is already at a master")
)

// Distributor sends tasks to masters. Its methods may be called from any goroutine.
type Distributor struct {
	cfg    Config
	peers  rpc.Peers
	events chan event
	// ended is closed when Run returns.
	ended chan struct{}
	loop  *loop
}

// event is something that happened; the loop applies them in order.
type event interface {
	apply(l *loop, now time.Time)
}

// New returns a distributor that does nothing until Run.
func New(cfg Config) (*Distributor, error) {
	if len(cfg.Groups) == 0 {
		return nil, errors.New("distributor: no group configured")
	}
	for _, g := range cfg.Groups {
		if len(g.Masters) == 0 {
			return nil, fmt.Errorf("distributor: group %q has no master", g.Name)
		}
	}
	if cfg.LostAfter == 0 {
		cfg.LostAfter = lostAfter
	}
	if cfg.Random == nil {
		cfg.Random = processRandom{}
	}
	d := &Distributor{cfg: cfg, peers: cfg.Peers, events: make(chan event, eventsMax), ended: make(chan struct{})}
	if d.peers.HTTP() == nil {
		d.peers = rpc.PlainPeers()
	}
	d.loop = newLoop(d)
	return d, nil
}

// Run keeps the streams to the masters until ctx ends, and closes Peers; then it returns nil. Tasks at masters
// continue. It is called once.
func (d *Distributor) Run(ctx context.Context) error {
	defer d.peers.Close()
	defer close(d.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams sync.WaitGroup
	for _, g := range d.loop.groups {
		for _, k := range g.links {
			streams.Go(func() { d.keep(ctx, k) })
		}
	}
	d.loop.run(ctx)
	streams.Wait()
	return nil
}

// post sends an event to the loop; it returns false when ctx or the distributor has ended.
func (d *Distributor) post(ctx context.Context, e event) bool {
	select {
	case d.events <- e:
		return true
	case <-ctx.Done():
	case <-d.ended:
	}
	return false
}

// ask sends an event to the loop and waits for the answer.
func ask[T any](ctx context.Context, d *Distributor, e event, reply <-chan T) (answer T, err error) {
	if !d.post(ctx, e) {
		return answer, errors.Join(ctx.Err(), errStopped)
	}
	select {
	case answer = <-reply:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	case <-d.ended:
		return answer, errStopped
	}
}

// Submit accepts all tasks of a job, or returns a *cli.Error if too many tasks would wait. Each task has one result in
// the Flight.
func (d *Distributor) Submit(ctx context.Context, j Job) (*Flight, error) {
	f := &Flight{Job: j, distributor: d, results: make(chan Result, j.Tasks), left: j.Tasks}
	reply := make(chan error, 1)
	refused, err := ask(ctx, d, submitted{f, reply}, reply)
	switch {
	case err != nil:
		f.Cancel(context.WithoutCancel(ctx)) // it may have been taken
		return nil, err
	case refused != nil:
		return nil, refused
	}
	return f, nil
}

// Status returns the status of the groups.
func (d *Distributor) Status(ctx context.Context) ([]*headroomv1.DispatchGroup, error) {
	reply := make(chan []*headroomv1.DispatchGroup, 1)
	return ask(ctx, d, statusRequest{reply}, reply)
}

// Flight is a submitted job.
type Flight struct {
	Job
	distributor *Distributor
	// results has room for all results, so that the sender never blocks.
	results chan Result
	// handed counts the tasks that were sent and have no result.
	handed atomic.Int64
	// The loop owns the following fields. pieces are the tasks, left those without a result. number is unique per
	// flight.
	pieces []piece
	number uint64
	left   int
}

// Results returns the results of the job's tasks as they arrive. It is closed after the last one, and when the job is
// cancelled.
func (f *Flight) Results() <-chan Result { return f.results }

// Handed returns how many of its tasks were sent and have no result.
func (f *Flight) Handed() int { return int(f.handed.Load()) }

// Cancel cancels all tasks without a result: waiting ones are removed, running ones are killed.
func (f *Flight) Cancel(ctx context.Context) {
	f.distributor.post(ctx, cancelled{flight: f})
}

// Stop cancels some of its tasks, as Cancel does.
func (f *Flight) Stop(ctx context.Context, indexes []int) {
	if len(indexes) > 0 {
		f.distributor.post(ctx, cancelled{f, indexes})
	}
}

// Withdraw removes up to most tasks that were not sent yet, in the order of the indexes, and returns which.
func (f *Flight) Withdraw(ctx context.Context, indexes []int, most int) ([]int, error) {
	reply := make(chan []int, 1)
	return ask(ctx, f.distributor, withdrawn{f, indexes, most, reply}, reply)
}
