package runs

import (
	"context"
	"sync"
	"time"
)

// Handed is a job that was handed in, or could not be.
type Handed struct {
	// Job is its place among the jobs, ID its name at the scheduler.
	Job int
	ID  string
	// At is when it was handed in, since the run began.
	At time.Duration
	// Taken is when the engine had taken it, since the run began: deadlines count from then.
	Taken time.Duration
	Err   error
}

// Clients hand jobs in as they come. A client of Hadoop needs seconds for that, during which others go on.
type Clients struct {
	ctx     context.Context //nolint:containedctx // ends the clients, which outlive a call
	cancel  context.CancelFunc
	at      []time.Duration
	submit  func(ctx context.Context, job int) (string, error)
	next    int
	taken   chan Handed
	clients sync.WaitGroup
}

// NewClients hand in a job at each of these moments since the run's begin, in ascending order, with submit.
func NewClients(ctx context.Context, at []time.Duration, submit func(ctx context.Context, job int) (string, error)) *Clients {
	c := &Clients{at: at, submit: submit, taken: make(chan Handed, len(at))}
	c.ctx, c.cancel = context.WithCancel(ctx)
	return c
}

// Look hands in what has come by now, and returns the jobs that the engine has taken or refused since the last look.
func (c *Clients) Look(now time.Duration) (all []Handed) {
	for ; c.next < len(c.at) && now >= c.at[c.next]; c.next++ {
		i := c.next
		c.clients.Go(func() {
			began := time.Now()
			id, err := c.submit(c.ctx, i)
			c.taken <- Handed{i, id, now, now + time.Since(began), err}
		})
	}
	for {
		select {
		case h := <-c.taken:
			all = append(all, h)
		default:
			return all
		}
	}
}

// Close ends what is under way, and waits for it.
func (c *Clients) Close() {
	c.cancel()
	c.clients.Wait()
}
