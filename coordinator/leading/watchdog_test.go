// Claim (P5): a leader whose loop stands still gives up the lead, and ends when it still
// stands; one that turns, however slowly within its deadline, or that was stopped as a whole
// process, does not.
package leading

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// watched runs a watchdog in the bubble and returns what it did.
func watched(t *testing.T, turns *atomic.Uint64) (gaveUp, ended *atomic.Int32) {
	t.Helper()
	gaveUp, ended = &atomic.Int32{}, &atomic.Int32{}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &watchdog{
		turns: turns, logger: slog.New(slog.DiscardHandler),
		giveUp: func(ctx context.Context) error { gaveUp.Add(1); <-ctx.Done(); return ctx.Err() }, // it hangs too
		end: func(err error) {
			if errors.Is(err, errStuck) {
				ended.Add(1)
			}
		},
	}
	go w.run(ctx)
	return gaveUp, ended
}

func TestStuckLeaderGivesUpAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns atomic.Uint64
		gaveUp, ended := watched(t, &turns)
		for range 60 { // a loop that turns as slowly as it may
			time.Sleep(proposeDeadline)
			turns.Add(1)
		}
		if gaveUp.Load() != 0 || ended.Load() != 0 {
			t.Fatal("a loop that turns is taken for stuck")
		}
		time.Sleep(proposeDeadline + 3*time.Second)
		synctest.Wait()
		if gaveUp.Load() != 1 || ended.Load() != 0 {
			t.Fatalf("stuck: gave up %d times, ended %d", gaveUp.Load(), ended.Load())
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if gaveUp.Load() != 1 || ended.Load() != 1 {
			t.Errorf("still stuck: gave up %d times, ended %d", gaveUp.Load(), ended.Load())
		}
	})
}

// What was given back in time is not ended.
func TestLoopThatGoesOnIsNotEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var turns atomic.Uint64
		gaveUp, ended := watched(t, &turns)
		time.Sleep(proposeDeadline + 3*time.Second)
		turns.Add(1)
		time.Sleep(proposeDeadline)
		synctest.Wait()
		if gaveUp.Load() != 1 || ended.Load() != 0 {
			t.Errorf("gave up %d times, ended %d", gaveUp.Load(), ended.Load())
		}
	})
}

// Looks count, not time: a process that stood still as a whole has seen one look.
func TestStopOfTheWholeProcessIsNoStall(t *testing.T) {
	t.Parallel()
	s := stall{seen: 7}
	if s.look(7) != 1 || s.look(8) != 0 || s.look(8) != 1 || s.look(8) != 2 || s.look(9) != 0 {
		t.Errorf("%+v", s)
	}
}
