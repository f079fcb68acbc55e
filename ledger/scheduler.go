package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

const (
	// RulesOfScheduler are the first rules under which the active scheduler holds a lease.
	RulesOfScheduler = 3
	// SchedulerLease is how long a scheduler may act after it has asked for its lease. The leader
	// counts from when it heard that, so a lost scheduler is replaced after SchedulerLapse.
	SchedulerLease = 5 * time.Second
	// schedulerKey is the length of the key of task attempts, bytes.
	schedulerKey = 32
	// epochsOfIncarnation are the scheduler's epochs of one incarnation: those of a restored group
	// are above any that its schedulers and workers have seen.
	epochsOfIncarnation = 32
)

// SchedulerLapse is how long the leader waits after it has last heard the active scheduler until
// another may replace it: a lease and the drift of both clocks.
func SchedulerLapse() time.Duration { return SchedulerLease + drift(SchedulerLease) }

// Secret is a key in the log. It is printed nowhere but in the log's own encoding.
type Secret []byte

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// Redacted returns JSON text of a command or state without the secrets of the scheduler's lease.
func Redacted(data json.RawMessage) json.RawMessage {
	const begin = `"attempts_key":"`
	if i := bytes.Index(data, []byte(begin)); i >= 0 {
		i += len(begin)
		if n := bytes.IndexByte(data[i:], '"'); n >= 0 {
			return append(append(bytes.Clone(data[:i]), "(secret)"...), data[i+n:]...)
		}
	}
	return data
}

// SchedulerHolder is a scheduler that holds the lease, or asks for it.
type SchedulerHolder struct {
	// Name of its certificate, ROLE/NAME; in the clear, the id that it claims. ID is that of its state folder.
	Name string `json:"name"`
	ID   string `json:"id"`
	// Process differs at each start, and whenever it had to stop acting.
	Process string `json:"process"`
	// Place is its state folder on its machine since that booted. Only one process can hold the
	// folder's lock, so one that asks from the same place proves that the one before has ended.
	Place string `json:"place,omitempty"`
	// Address that clients and workers reach it at.
	Address string `json:"address"`
}

// Scheduler is the lease of the active scheduler. When it lapses is not in the log: the leader
// counts it (SchedulerLapse), and a new leader from when it began to lead.
type Scheduler struct {
	SchedulerHolder
	// Epoch rises with every new holder; 0 before the first one.
	Epoch uint64 `json:"epoch"`
	// Released: it has stopped acting, and anybody may take its place.
	Released bool `json:"released,omitempty"`
	// Since is when it became active, microseconds since the Unix epoch.
	Since int64 `json:"since_us,omitempty"`
	// Key proves to every scheduler which attempts of tasks a worker was given.
	Key Secret `json:"attempts_key,omitempty"`
}

// HoldScheduler makes a scheduler the active one.
type HoldScheduler struct {
	SchedulerHolder
	// After is the epoch that it replaces.
	After uint64 `json:"after"`
	// Key is used for the first holder of all.
	Key Secret `json:"attempts_key,omitempty"`
}

// ReleaseScheduler ends the lease of an epoch before it lapses.
type ReleaseScheduler struct {
	Epoch uint64 `json:"epoch"`
}

// check refuses a holder that cannot be told apart or is too long to be kept.
func (h SchedulerHolder) check() error {
	if h.Process == "" || h.Address == "" || max(len(h.Name), len(h.ID), len(h.Process), len(h.Place), len(h.Address)) > maxName {
		return fmt.Errorf("%w: it needs a process and an address, at most %d bytes each", ErrScheduler, maxName)
	}
	return nil
}

// sound checks a lease that no Apply has made.
func (x *Scheduler) sound() error {
	if x == nil {
		return nil
	}
	if x.Epoch == 0 || len(x.Key) != schedulerKey {
		return fmt.Errorf("%w: the scheduler's lease has epoch %d and a key of %d bytes", ErrSnapshot, x.Epoch, len(x.Key))
	}
	return x.check()
}

// holdScheduler begins the epoch of another scheduler. That the one before may no longer act is
// the leader's to know (leader.HoldScheduler).
func (t *tx) holdScheduler(c Command, x *HoldScheduler) error {
	if err := x.check(); err != nil {
		return err
	}
	was := Scheduler{Key: x.Key}
	if t.Scheduler != nil {
		was = *t.Scheduler
	}
	switch {
	case was.Epoch == x.After+1 && was.Process == x.Process && !was.Released:
		return nil // its answer was lost
	case was.Epoch != x.After:
		return fmt.Errorf("%w: epoch %d has begun, %d was to be replaced", ErrSchedulerEpoch, was.Epoch, x.After)
	case len(was.Key) != schedulerKey:
		return fmt.Errorf("%w: its key has %d bytes instead of %d", ErrScheduler, len(was.Key), schedulerKey)
	}
	next := max(was.Epoch+1, t.Epoch.Incarnation<<epochsOfIncarnation+1)
	t.Scheduler = &Scheduler{SchedulerHolder: x.SchedulerHolder, Epoch: next, Since: c.At, Key: was.Key}
	t.record(c, fmt.Sprintf("scheduler %s at %s begins epoch %d", x.Name, x.Address, next))
	return nil
}

func (t *tx) releaseScheduler(c Command, x *ReleaseScheduler) error {
	if t.Scheduler == nil || t.Scheduler.Epoch != x.Epoch {
		return fmt.Errorf("%w: epoch %d is not the one in force", ErrSchedulerEpoch, x.Epoch)
	}
	if t.Scheduler.Released {
		return nil
	}
	released := *t.Scheduler
	released.Released = true
	t.Scheduler = &released
	t.record(c, fmt.Sprintf("scheduler %s released its lease", released.Name))
	return nil
}

// Outdated refuses what a scheduler of an epoch asks for unless it is the active one. Epoch 0 is a
// scheduler of an older version, which knows no lease: it may act while nobody holds one.
func (s *State) Outdated(epoch uint64) error {
	x := s.Scheduler
	if x == nil || epoch == x.Epoch || epoch == 0 && x.Released {
		return nil
	}
	return fmt.Errorf("scheduler %s at %s of epoch %d acts, epoch %d may not: %w", x.Name, x.Address, x.Epoch, epoch, ErrSchedulerEpoch)
}

// SchedulerEpoch returns the epoch of the newest scheduler, 0 before the first one.
func (s *State) SchedulerEpoch() uint64 {
	if s.Scheduler == nil {
		return 0
	}
	return s.Scheduler.Epoch
}
