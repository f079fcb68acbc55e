package leader

import (
	"errors"
	"fmt"
	"time"

	"headroom/ledger"
)

// ErrHeld means that a scheduler asked for the lease while another may still act.
var ErrHeld = errors.New("another scheduler is active")

// schedulerWatch is what a leadership has of the scheduler's lease beside the log: when its holder
// may have been told last that it holds it. Renewals are not entries; like leases of nodes they are
// answered only once this server has proven that it led after they came.
type schedulerWatch struct {
	// heard is the last renewal, or when this leadership began: the one before answered none later.
	heard time.Duration
	// doubt: an entry that changes the holder may still commit. The next tick that commits ends it.
	doubt bool
}

// RenewScheduler takes in a renewal. Whether the lease is held is known only after the proof (Read).
func (l *Leader) RenewScheduler(s *ledger.State, now Moment, process string) {
	if x := s.Scheduler; x != nil && !x.Released && x.Process == process {
		l.scheduler.heard = now.Mono
	}
}

// HoldsScheduler reports whether a process holds the scheduler's lease, after a proof.
func (l *Leader) HoldsScheduler(s *ledger.State, process string) bool {
	x := s.Scheduler
	return x != nil && !x.Released && x.Process == process && !l.scheduler.doubt
}

// HoldScheduler makes a scheduler the active one, if the one before may no longer act: it has
// released its lease, its process has ended, or it was not heard for SchedulerLapse.
func HoldScheduler(h ledger.SchedulerHolder, key ledger.Secret) func(View, *ledger.Command) error {
	return func(v View, c *ledger.Command) error {
		if v.State.Rules < ledger.RulesOfScheduler { // older servers could not read it
			return RefusedError{fmt.Errorf("rules %d know no lease of a scheduler: %w", v.State.Rules, ledger.ErrRules)}
		}
		was := v.State.Scheduler
		c.HoldScheduler = &ledger.HoldScheduler{SchedulerHolder: h, After: v.State.SchedulerEpoch(), Key: key}
		if was == nil || was.Released || was.Place != "" && was.Place == h.Place && was.ID == h.ID && was.Process != h.Process {
			return nil
		}
		if silent := v.Now.Mono - v.l.scheduler.heard; silent < ledger.SchedulerLapse() {
			return fmt.Errorf("scheduler %s at %s was heard %.1fs ago: %w", was.Name, was.Address, silent.Seconds(), ErrHeld)
		}
		return nil
	}
}

// noteScheduler follows what came of an entry.
func (l *Leader) noteScheduler(now Moment, c ledger.Command, err error) {
	_, refused := errors.AsType[RefusedError](err)
	switch {
	case c.HoldScheduler == nil && c.ReleaseScheduler == nil:
		l.scheduler.doubt = l.scheduler.doubt && (c.Tick == nil || err != nil)
	case err == nil:
		l.scheduler.heard = now.Mono
	case !refused:
		l.scheduler.doubt = true
	}
}
