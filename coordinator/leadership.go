package coordinator

import (
	"context"
	"log/slog"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/leading"
	"headroom/coordinator/metrics"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"
	"headroom/internal/pause"
	"headroom/lease"
)

// leadershipWatcher runs the leader's loop while this server is the leader, and announces
// the leader otherwise.
type leadershipWatcher struct {
	id       string
	group    *consensus.Group
	machine  *statemachine.Machine
	requests *requests
	streams  *streams.Streams
	counts   *metrics.Counts
	logger   *slog.Logger
	// address returns a server's RPC address, empty while unknown. incarnation is the cluster's.
	address     func(id string) string
	incarnation func() uint64
	// newLoop returns the loop of one leadership.
	newLoop func(lease.Epoch) *leading.Loop
	// die ends the process.
	die func(error)
}

// leaderPoll is the interval at which a follower checks who the leader is, to announce it.
const leaderPoll = 100 * time.Millisecond

// watch runs a loop whenever this server becomes the leader, and ends it when it loses leadership.
func (w *leadershipWatcher) watch(ctx context.Context) error {
	changes := w.group.Leadership()
	look := time.NewTicker(leaderPoll)
	defer look.Stop()
	var stop func()
	shut := func() {
		if stop != nil {
			stop()
			stop = nil
		}
	}
	defer shut()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case l, open := <-changes:
			shut()
			if !open {
				return consensus.ErrClosed
			}
			told = w.id // a leadership may have begun and ended since the last check
			if l.Leading {
				w.counts.Led(w.id)
				stop = w.lead(ctx, l.Term)
			}
		case <-look.C:
			if !w.requests.leads() {
				told = w.tellLeader(told)
			} else {
				told = w.id
			}
		}
	}
}

// tellLeader announces the leader if it is not the one in told.
func (w *leadershipWatcher) tellLeader(told string) string {
	id, _ := w.group.Leader()
	w.counts.Led(id)
	if id == told || id == w.id {
		return told
	}
	w.streams.Announce(&headroomv1.Leader{Id: id, Address: w.address(id)})
	return id
}

// lead runs the loop of one leadership; stop ends it and waits for it.
func (w *leadershipWatcher) lead(ctx context.Context, term uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.keepLoop(ctx, term)
	}()
	return func() {
		cancel()
		<-done
		w.logger.Info("lost leadership", slog.Uint64("term", term))
	}
}

// loopPause is the pause before a leader restarts its loop.
const loopPause = 200 * time.Millisecond

// keepLoop runs a loop until ctx ends, and restarts one that ended: raft reports when this
// server loses leadership, and until then no other server would lead the nodes.
func (w *leadershipWatcher) keepLoop(ctx context.Context, term uint64) {
	for {
		err := w.run(ctx, term)
		if ctx.Err() != nil {
			return
		}
		w.logger.Warn("leader's loop ended, restarting it", slog.Any("error", err))
		if !pause.For(ctx, loopPause) {
			return
		}
	}
}

// run waits until everything committed before is applied, then runs the loop.
func (w *leadershipWatcher) run(ctx context.Context, term uint64) error {
	if err := w.group.Verify(ctx); err != nil {
		return err
	}
	l := w.newLoop(lease.Epoch{Incarnation: w.incarnation(), Term: term})
	w.requests.loop.Store(l)
	defer w.requests.loop.CompareAndSwap(l, nil)
	watch, done := context.WithCancel(ctx)
	defer done()
	go l.Watch(watch, w.group.Transfer, w.die)
	return l.Run(ctx)
}
