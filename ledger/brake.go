package ledger

import "fmt"

// Brake is what the log knows of the brake: generations only rise. A node that
// has seen a generation above the one that its lease says is lifted holds its
// fail-safe cap.
type Brake struct {
	// Set is the highest generation that the log has heard of.
	Set uint64 `json:"set,omitempty"`
	// Lifted is the highest generation that an operator has lifted.
	Lifted uint64 `json:"lifted,omitempty"`
	// By and Reason of the newest generation, in words.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// At is when the log heard of it, microseconds since the Unix epoch.
	At int64 `json:"at_us,omitempty"`
}

// Active reports whether the brake is set.
func (b Brake) Active() bool { return b.Set > b.Lifted }

// SetBrake tells the log of a brake generation that was seen.
type SetBrake struct {
	Generation uint64 `json:"generation"`
}

// LiftBrake lifts the brake up to the generation that the operator has seen.
type LiftBrake struct {
	Generation uint64 `json:"generation"`
}

// SkipBrake passes over a generation that a node tells and nobody has signed, so that
// the node may be granted again: the next brake is of a higher one.
type SkipBrake struct {
	Generation uint64 `json:"generation"`
}

// MaxSkip bounds the generations that may be passed over: there must always be room above.
const MaxSkip = 1 << 62

// skipBrake is refused while a brake is set: one that was signed is lifted, not passed over.
func (t *tx) skipBrake(c Command, x *SkipBrake) error {
	switch {
	case t.Brake.Active():
		return fmt.Errorf("brake %d is in force: %w", t.Brake.Set, ErrConflict)
	case x.Generation > MaxSkip:
		return fmt.Errorf("brake generation %d is above %d: %w", x.Generation, uint64(MaxSkip), ErrSkip)
	case x.Generation <= t.Brake.Set:
		return nil
	}
	t.Brake = Brake{Set: x.Generation, Lifted: x.Generation, By: c.Actor, Reason: c.Reason, At: c.At}
	t.recordPower(c, fmt.Sprintf("brake generations up to %d skipped: nobody has signed them", x.Generation))
	return nil
}

// setBrake takes in a generation and aims every node at its fail-safe cap, which
// it holds by itself once it has heard: that is told by its read-backs.
func (t *tx) setBrake(c Command, x *SetBrake) error {
	if x.Generation <= t.Brake.Set {
		return nil
	}
	t.Brake.Set, t.Brake.By, t.Brake.Reason, t.Brake.At = x.Generation, c.Actor, c.Reason, c.At
	for _, n := range t.NodesByName() {
		if n.Grantable() && (n.Target > n.lowest() || n.Sprint != nil) {
			t.putNode(t.retarget(n, min(n.Target, n.lowest())))
		}
	}
	t.recordPower(c, fmt.Sprintf("brake %d set: every node to its fail-safe cap", x.Generation))
	return nil
}

// liftBrake lifts exactly the generation in force: whoever lifts must have seen it.
func (t *tx) liftBrake(c Command, x *LiftBrake) error {
	switch {
	case !t.Brake.Active():
		return nil
	case x.Generation != t.Brake.Set:
		return fmt.Errorf("brake %d cannot be lifted; %d is in force: %w", x.Generation, t.Brake.Set, ErrConflict)
	}
	t.Brake.Lifted = x.Generation
	t.recordPower(c, fmt.Sprintf("brake %d lifted", x.Generation))
	return nil
}
