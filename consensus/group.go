package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Leadership describes whether this server leads.
type Leadership struct {
	// Leading is true once this server leads and has applied every entry
	// committed before.
	Leading bool
	// Term is the raft term of this leadership, or the latest known one. It never
	// decreases, and no two leaderships share one.
	Term uint64
}

// Group is one running server of the group. Its methods may be called from any
// goroutine.
type Group struct {
	cfg         Config
	log         *slog.Logger
	raft        *raft.Raft
	ready       chan struct{} // closed when raft is set
	trans       *transport
	checked     *checkedLog
	closeStores func() error
	wire        *tripwire
	guard       *guard
	mark        *mark // nil without a directory
	unread      error // of the last snapshot, before raft runs
	notify      <-chan bool
	stop        chan struct{} // closed when raft has ended
	dead        chan struct{} // closed when the log cannot be trusted
	watching    sync.WaitGroup

	leading atomic.Pointer[leaderTerm] // nil while another leads

	changes sync.Mutex // one change of the servers at a time

	mu        sync.Mutex
	last      Leadership
	listeners []chan Leadership
	closed    bool
	calls     sync.WaitGroup // futures in progress
}

// leaderTerm is one term that this server leads, from its election to its loss.
type leaderTerm struct {
	term     uint64
	began    time.Time
	health   record
	caughtUp chan struct{} // closed when everything committed before is applied
	over     chan struct{} // closed at the loss
}

func newGroup(cfg Config, trans *transport, notify <-chan bool) *Group {
	g := &Group{
		cfg: cfg, log: cfg.Logger, trans: trans, notify: notify,
		ready: make(chan struct{}), stop: make(chan struct{}), dead: make(chan struct{}),
	}
	g.wire = &tripwire{end: g.fail}
	g.guard = &guard{wire: g.wire, deadline: cfg.WriteDeadline}
	return g
}

func (g *Group) start(r *raft.Raft) {
	g.raft = r
	close(g.ready)
	g.guard.armed.Store(true)
	g.last.Term = r.CurrentTerm()
	g.watching.Go(g.watch)
}

// fail stops a server whose log cannot be trusted. The transport is closed
// first, so that the others elect a leader while this process exits.
func (g *Group) fail(err error) {
	g.trans.cut()
	close(g.dead)
	g.log.Error("log cannot be trusted, ending the process", slog.Any("error", err))
	select {
	case <-g.ready:
		g.raft.Shutdown()
	default:
	}
	g.cfg.Fatal(err)
}

// cannotRead takes the error of a snapshot that the machine cannot read. At the start raft tries an
// older one. Later the snapshot is the leader's, which would send it again and again.
func (g *Group) cannotRead(err error) {
	select {
	case <-g.ready:
		g.wire.trip(err)
	default:
		g.unread = err
	}
}

// watch follows raft's leadership until raft has ended.
func (g *Group) watch() {
	for {
		select {
		case leading := <-g.notify:
			if leading {
				g.becomeLeader()
			} else {
				g.stepDown()
			}
		case <-g.stop:
			return
		}
	}
}

func (g *Group) becomeLeader() {
	// raft waits for this notice before it writes anything, so the term is that
	// of this leadership; otherwise the envelope would refuse every entry.
	r := &leaderTerm{term: g.raft.CurrentTerm(), began: time.Now(), caughtUp: make(chan struct{}), over: make(chan struct{})}
	g.leading.Store(r)
	g.watching.Go(func() { g.catchUp(r) })
	g.watching.Go(func() { g.watchHealth(r) })
}

// catchUp publishes the leadership once every earlier committed entry is applied here.
func (g *Group) catchUp(r *leaderTerm) {
	for {
		if err := g.await(context.Background(), func() error { return g.raft.Barrier(0).Error() }); err == nil {
			break
		}
		// The barrier fails while a transfer is in progress; the transfer may not succeed.
		again := time.NewTimer(g.cfg.Timing.Heartbeat)
		select {
		case <-again.C:
		case <-r.over:
			again.Stop()
			return
		case <-g.stop:
			again.Stop()
			return
		}
	}
	if g.publish(Leadership{Leading: true, Term: r.term}, r) {
		close(r.caughtUp)
		g.log.Info("leading", slog.Uint64("term", r.term))
	}
}

func (g *Group) stepDown() {
	g.trans.letGo()
	r := g.leading.Swap(nil)
	if r == nil {
		return
	}
	close(r.over)
	g.publish(Leadership{Term: max(r.term, g.raft.CurrentTerm())}, nil)
	g.log.Info("no longer leading", slog.Uint64("term", r.term))
}

// publish sends the newest leadership to every listener. It reports whether it
// did: a leadership that has ended meanwhile is not published.
func (g *Group) publish(l Leadership, of *leaderTerm) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if of != nil && g.leading.Load() != of {
		return false
	}
	g.last = l
	for _, c := range g.listeners {
		send(c, l)
	}
	return true
}

// send replaces a value that the listener has not read yet. The caller holds the
// lock and is the only sender, so sending never blocks.
func send(c chan Leadership, l Leadership) {
	select {
	case <-c:
	default:
	}
	c <- l
}

// Leadership returns a channel that receives the current leadership at once and
// then each change; a slow reader receives only the newest. Close closes it.
// Each call makes a new channel that lives until then: call it once per reader.
func (g *Group) Leadership() <-chan Leadership {
	c := make(chan Leadership, 1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		close(c)
		return c
	}
	c <- g.last
	g.listeners = append(g.listeners, c)
	return c
}

// ProposeIn appends data to the log only if it is committed in the given term,
// and returns the result of Machine.Apply on this server, after the commit and
// the local apply.
//
// ErrNotLeader, ErrBusy, ErrTooLarge, ErrClosed and the context's own error
// before the start mean that nothing was done. ErrUnknownOutcome means that the
// entry may have been committed or may still be, in that term.
func (g *Group) ProposeIn(ctx context.Context, term uint64, data []byte) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, g.propose(err)
	}
	if len(data) > maxEntry {
		return nil, g.propose(ErrTooLarge)
	}
	if r := g.leading.Load(); r == nil || r.term != term {
		return nil, g.propose(ErrNotLeader)
	}
	entry := raft.Log{Data: seal(term, data), Extensions: wantsSum()}
	result := make(chan any, 1) // buffered: a late result has no reader
	err := g.await(ctx, func() error {
		f := g.raft.ApplyLog(entry, enqueueTimeout)
		err := f.Error()
		if err == nil {
			result <- f.Response()
		}
		if err == nil && !g.routine(data) {
			err = g.mark.keep()
		}
		return err
	})
	if err != nil {
		return nil, g.propose(outcome(err))
	}
	out := <-result
	if _, ok := out.(refused); ok {
		return nil, g.propose(ErrNotLeader)
	}
	return out, nil
}

// routine reports whether an entry is answered before it is marked.
func (g *Group) routine(data []byte) bool { return g.cfg.Routine != nil && g.cfg.Routine(data) }

func (g *Group) propose(err error) error {
	return fmt.Errorf("consensus: propose on %s: %w", g.cfg.ID, err)
}

// outcome maps raft's errors to those after which nothing was done and those
// after which the outcome is unknown.
func outcome(err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return err
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return fmt.Errorf("%w: %w", ErrBusy, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// Verify makes a read on this server linearizable: when it returns nil, this
// server led after the call began, and everything that any leader acknowledged
// before the call is applied here. Otherwise it returns ErrNotLeader, ErrBusy,
// ErrClosed or the context's error.
//
// It costs one empty log entry. raft's own VerifyLeader is cheaper, but counts
// answers to heartbeats that were sent before the call.
func (g *Group) Verify(ctx context.Context) error {
	r := g.leading.Load()
	if r == nil {
		return g.verify(ErrNotLeader)
	}
	select {
	case <-r.caughtUp:
	case <-r.over:
		return g.verify(ErrNotLeader)
	case <-g.stop:
		return g.verify(ErrClosed)
	case <-ctx.Done():
		return g.verify(ctx.Err())
	}
	err := g.await(ctx, func() error { return g.raft.Barrier(enqueueTimeout).Error() })
	switch {
	case err == nil && g.leading.Load() == r:
		return nil
	case err == nil:
		return g.verify(ErrNotLeader)
	case errors.Is(err, ErrClosed), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return g.verify(err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return g.verify(fmt.Errorf("%w: %w", ErrBusy, err))
	default:
		return g.verify(fmt.Errorf("%w: %w", ErrNotLeader, err))
	}
}

func (g *Group) verify(err error) error {
	return fmt.Errorf("consensus: verify on %s: %w", g.cfg.ID, err)
}

// Transfer transfers leadership to the follower with the longest log, for a
// planned stop. nil means that this server no longer leads.
func (g *Group) Transfer(ctx context.Context) error {
	if g.leading.Load() == nil {
		return fmt.Errorf("consensus: transfer from %s: %w", g.cfg.ID, ErrNotLeader)
	}
	if err := g.await(ctx, func() error { return g.raft.LeadershipTransfer().Error() }); err != nil {
		return fmt.Errorf("consensus: transfer from %s: %w", g.cfg.ID, err)
	}
	return nil
}

// await runs one of raft's futures, which take no context. A call abandoned by
// its context ends when raft answers it; Close waits for it.
func (g *Group) await(ctx context.Context, call func() error) error {
	g.mu.Lock()
	if g.closed || g.wire.tripped.Load() {
		g.mu.Unlock()
		return ErrClosed
	}
	g.calls.Add(1)
	g.mu.Unlock()
	done := make(chan error, 1)
	go func() {
		defer g.calls.Done()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-g.dead:
		return errDead
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops this server. It accepts no new calls, gives those in progress
// closeTimeout to finish, then closes raft, the transport and the log. A second
// call does nothing. Close does not transfer leadership; call Transfer first.
func (g *Group) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()

	err := g.stopRaft()
	close(g.stop)
	g.watching.Wait()
	err = errors.Join(err, g.mark.close())
	g.checked.Close()
	g.mu.Lock()
	for _, c := range g.listeners {
		close(c)
	}
	g.listeners = nil
	g.mu.Unlock()
	return errors.Join(err, g.closeStores())
}

// stopRaft waits for the calls in progress, because raft drops some of them when
// it stops, and then stops raft.
func (g *Group) stopRaft() error {
	if !g.wire.tripped.Load() {
		_ = within(g.calls.Wait)
	}
	ended := within(func() { _ = g.raft.Shutdown().Error() })
	g.trans.cut()
	ended = within(g.trans.pump.Wait) && ended
	if !ended {
		return fmt.Errorf("consensus: close %s: a write has not returned: %w", g.cfg.ID, ErrWriteDeadline)
	}
	return nil
}

// within reports whether f returned within closeTimeout; otherwise f continues to run.
func within(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
