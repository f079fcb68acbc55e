package leading

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// A leader whose loop is stuck renews no lease and makes no cut, while raft's own heartbeats
// continue and keep every other server from becoming leader (promise P5). So the loop is
// watched from outside.
const (
	// watchEvery is the interval between two checks.
	watchEvery = 500 * time.Millisecond
	// stuckLooks checks in a row without a turn of the loop transfer leadership: longer than one
	// entry may take to commit or fail (proposeDeadline), after which the loop turns.
	stuckLooks = int((proposeDeadline + 2*time.Second) / watchEvery)
	// stuckEnd checks without a turn end the process; the service manager restarts it.
	stuckEnd = stuckLooks + int(3*time.Second/watchEvery)
)

// errStuck ends a server whose loop is stuck.
var errStuck = errors.New("the leader's loop is stuck")

// stall counts the looks at which a loop had not turned since the look before. Looks, not
// time: a process that was stopped as a whole (SIGSTOP, a suspended machine) has not looked
// either.
type stall struct {
	seen  uint64
	looks int
}

// look takes in how often the loop has turned and returns for how many looks it has not.
func (s *stall) look(turns uint64) int {
	if turns != s.seen {
		s.seen, s.looks = turns, 0
		return 0
	}
	s.looks++
	return s.looks
}

// watchdog watches one leadership's loop.
type watchdog struct {
	turns *atomic.Uint64
	// giveUp transfers leadership to another server. It may block.
	giveUp func(context.Context) error
	// end ends the process.
	end    func(error)
	logger *slog.Logger
}

// run watches until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	s := stall{seen: w.turns.Load()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch s.look(w.turns.Load()) {
		case stuckLooks:
			w.logger.Error("leader's loop stuck, transferring leadership", slog.Duration("for", time.Duration(stuckLooks)*watchEvery))
			go func() {
				if err := w.giveUp(ctx); err != nil && ctx.Err() == nil {
					w.logger.Error("leadership not transferred", slog.Any("error", err))
				}
			}()
		case stuckEnd:
			w.end(errStuck)
			return
		}
	}
}
