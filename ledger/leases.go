package ledger

import (
	"cmp"
	"fmt"
	"time"
)

// LeaseLeast and LeaseMost bound the length of leases: shorter ones end in a change of the
// leader, longer ones keep watts of lost nodes for too long. SettleLeast and SettleMost
// bound what lost nodes are given beyond it, see Timing.Settle.
const (
	LeaseLeast  = 3 * time.Second
	LeaseMost   = 2 * time.Minute
	SettleLeast = time.Second
	SettleMost  = 5 * time.Minute
)

// Leases is how long leases run, as committed. What a server's own configuration says
// counts once, for the first entry: servers that disagree would take a lease for over that
// another has granted (promise P2).
type Leases struct {
	// Length of the leases that are granted now; 0 in a log in which nobody has said.
	Length time.Duration `json:"length_ns,omitempty"`
	// Settle is how much longer than a lease a lost node may take to be at its fail-safe
	// cap (see Timing.Settle); 0 in a log in which nobody has said.
	Settle time.Duration `json:"settle_ns,omitempty"`
	// Longest that may still count, and LongestSettle, until State.Elapsed has come to
	// Until: what was in force before a change. A node that fell silent before the change
	// may still be on its way to its fail-safe cap by then.
	Longest       time.Duration `json:"longest_ns,omitempty"`
	LongestSettle time.Duration `json:"longest_settle_ns,omitempty"`
	Until         time.Duration `json:"until_ns,omitempty"`
	// Changed since the newest tick: that one says from when Until counts, since it brings
	// time with it that passed before the change.
	Changed bool `json:"changed,omitempty"`
}

// SetLease changes how long leases run, and what is waited for beyond.
type SetLease struct {
	Length time.Duration `json:"length_ns"`
	// Settle is Leases.Settle from now on; 0 leaves it.
	Settle time.Duration `json:"settle_ns,omitempty"`
}

func (t *tx) setLease(c Command, x *SetLease) error {
	if x.Length < LeaseLeast || x.Length > LeaseMost {
		return fmt.Errorf("a lease of %v; it must be from %v to %v: %w", x.Length, LeaseLeast, LeaseMost, ErrLease)
	}
	if x.Settle != 0 && (x.Settle < SettleLeast || x.Settle > SettleMost) {
		return fmt.Errorf("%v to settle after a lease; it must be from %v to %v: %w", x.Settle, SettleLeast, SettleMost, ErrLease)
	}
	was := t.Leases.Length
	before := t.waiting(Timing{Lease: t.LongestLease(), Settle: t.Leases.Settle})
	t.Leases = Leases{
		Length: x.Length, Settle: cmp.Or(x.Settle, t.Leases.Settle), Longest: before.Lease, LongestSettle: before.Settle, Changed: true,
	}
	if was == 0 {
		t.recordPower(c, fmt.Sprintf("leases of %v", x.Length))
		return nil
	}
	what := fmt.Sprintf("leases of %v instead of %v", x.Length, was)
	if x.Settle != 0 {
		what += fmt.Sprintf(", %v to settle after them", x.Settle)
	}
	t.recordPower(c, what)
	return nil
}

// leasesPassed tells, at the end of a tick, from when a change of the leases counts.
func (t *tx) leasesPassed() {
	if x := &t.Leases; x.Changed {
		x.Changed = false
		x.Until = t.Elapsed + Timing{Lease: x.Longest, Settle: max(x.LongestSettle, x.Settle)}.Fallen()
	}
}

// changing reports whether what was in force before a change of the leases still counts.
func (s *State) changing() bool { return s.Leases.Changed || s.Elapsed < s.Leases.Until }

// LongestLease is the longest lease that may be out now, as far as the log knows; 0 where
// nobody was granted any.
func (s *State) LongestLease() time.Duration {
	switch {
	case s.Leases.Length == 0 && len(s.Nodes) == 0:
		return 0 // nobody was granted any
	case s.Leases.Length == 0:
		return LeaseMost // each server had a length of its own
	case s.changing():
		return max(s.Leases.Length, s.Leases.Longest)
	}
	return s.Leases.Length
}

// granting is the timing with the length of the leases that are granted now.
func (s *State) granting(t Timing) Timing {
	if s.Leases.Length > 0 {
		t.Lease = s.Leases.Length
	}
	return t
}

// waiting is the timing with the longest lease that may be out: every wait for leases to
// end counts with it.
func (s *State) waiting(t Timing) Timing {
	if s.Leases.Length > 0 {
		t.Lease = s.LongestLease()
	}
	if s.Leases.Settle > 0 {
		t.Settle = s.Leases.Settle
	}
	if s.changing() {
		t.Settle = max(t.Settle, s.Leases.LongestSettle)
	}
	return t
}

// AssumeLeases tells a recovered state that no lease which it does not know was longer: a
// snapshot does not tell which lengths were committed after it. Without that the longest
// that there can be is waited for. Lengths out of bounds, or below the committed one, are
// taken for the nearest within.
func (s *State) AssumeLeases(longest time.Duration) {
	s.Unknown = min(max(longest, s.Leases.Length, LeaseLeast), LeaseMost)
}

// unknownLeases is how long a restored state waits at least for nodes that it does not
// know: by then the leases that they may hold have ended, and they have settled. Which
// margin was committed after the snapshot is not known; none below the usual one is taken.
func (s *State) unknownLeases() time.Duration {
	if s.Unknown == 0 { // nobody has assumed any
		return 15 * time.Second
	}
	settle := max(s.Leases.Settle, s.Leases.LongestSettle, DefaultTiming().Settle)
	return Timing{Lease: s.Unknown, Settle: settle}.Fallen()
}
