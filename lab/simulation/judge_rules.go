package simulation

//headroom:judge

import (
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// The numbers of the promises, written a second time: a judge that took them from the code
// under test would move with a mistake there.
const (
	// rho is by how much a clock may be off (P2).
	rho = 0.01
	// leaseLength is how long a lease runs unless the log sets another length (P2).
	leaseLength = 10 * time.Second
	// brakeWithin is how soon every reachable node is at its fail-safe cap once it is braked.
	brakeWithin = 2 * time.Second
	// unheardAfter is how long a node may be silent before a cut counts without it (P5).
	unheardAfter = 3500 * time.Millisecond
	// clocksApart is how far a clock of a quorum may be from the leader's, so that no two
	// are more than a minute apart (P5), and what reading them takes.
	clocksApart = 30*time.Second + 2*clocksWithin
)

// grantable reports whether the log may grant a node leases.
func grantable(n ledger.Node) bool { return n.Admitted && n.Controlled && !n.Released && n.Off == "" }

// failSafe is the fail-safe cap that a node must store, the operator's before its own.
func failSafe(n ledger.Node) units.Power {
	if own := n.Settings.FailSafe; own != nil {
		return min(max(*own, n.Floor), n.Rated)
	}
	return n.FailSafe
}

// least is the lowest cap that a node may be driven to: not below its fail-safe cap and
// its floor, nor below what an operator has requested for it.
func least(n ledger.Node) units.Power {
	low := max(failSafe(n), n.Floor)
	if own := n.Settings.Min; own != nil {
		low = max(low, min(*own, n.Rated))
	}
	return low
}

// braked reports whether a generation of the brake is set and not lifted.
func braked(s *ledger.State) bool { return s.Brake.Set > s.Brake.Lifted }

// sprintOf is the sprint that a lease of the node carries.
func sprintOf(n ledger.Node) lease.Sprint {
	if n.Sprint == nil {
		return lease.Sprint{}
	}
	return lease.Sprint{ID: n.Sprint.ID, Cap: n.Sprint.Cap, Duration: n.Sprint.Duration, Escrow: n.Sprint.Escrow}
}
