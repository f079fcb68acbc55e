package ledger

import (
	"errors"
	"fmt"

	"headroom/units"
)

// Reasons for refusing a command.
var (
	// ErrUnknownCommand: the command is not of these rules.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrEpoch: the command was written by another leadership than the one in force.
	ErrEpoch = errors.New("it was written by another leadership")
	// ErrNotFounded: the cluster has no power tree yet.
	ErrNotFounded = errors.New("the cluster has no power tree yet")
	// ErrFounded: the cluster has a power tree already.
	ErrFounded = errors.New("the cluster has a power tree already")
	// ErrOverBudget: a raise or an admission does not fit.
	ErrOverBudget = errors.New("it does not fit the budget")
	// ErrUnknownNode, ErrUnknownDomain, ErrUnknownJob: there is none of this name.
	ErrUnknownNode   = errors.New("unknown node")
	ErrUnknownDomain = errors.New("unknown domain")
	ErrUnknownJob    = errors.New("unknown job")
	// ErrIdentity: the node's name is used by another machine.
	ErrIdentity = errors.New("the name is used by another machine")
	// ErrDeclaration: a node declares amounts that make no sense.
	ErrDeclaration = errors.New("bad declaration")
	// ErrNotGrantable: the node is not admitted, not controlled or released.
	ErrNotGrantable = errors.New("the node may not be granted a cap")
	// ErrTarget: a target outside of what the node can hold, or a raise where only lowering is allowed.
	ErrTarget = errors.New("bad target")
	// ErrConflict: budgets or nodes changed after the revision that the command was planned against.
	ErrConflict = errors.New("revision moved")
	// ErrSnapshot: a snapshot that no state can have made.
	ErrSnapshot = errors.New("bad snapshot")
	// ErrJob: a job that exists differently, has ended, or is too large.
	ErrJob = errors.New("bad job")
	// ErrFull: a bound of the state is reached.
	ErrFull = errors.New("no room")
)

// FloorError refuses a budget below what the domain can be driven to.
type FloorError struct {
	// Domain and the Budget that was asked for.
	Domain string
	Budget units.Power
	// Unmanaged watts and Floor (unmanaged + every node at its least) of the domain; Nodes counts them.
	Unmanaged, Floor units.Power
	Nodes            int
}

// Error names the rule and the numbers.
func (e *FloorError) Error() string {
	return fmt.Sprintf("budget %v is below the floor of %s: %v unmanaged + %v with all %d nodes at their least = %v (%v short)",
		e.Budget, e.Domain, e.Unmanaged, e.Floor-e.Unmanaged, e.Nodes, e.Floor, e.Floor-e.Budget)
}

// ConflictError refuses a command that was planned against an older revision.
type ConflictError struct {
	// Planned is the revision it was planned against, Now the one in force.
	Planned, Now uint64
	// Last is the newest change to budgets or nodes.
	Last Event
}

// Error says what moved and who moved it.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("revision moved: you planned against %d, now %d (%s, %q)", e.Planned, e.Now, e.Last.Actor, e.Last.What)
}

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// OverBudgetError refuses a raise that does not fit a domain.
type OverBudgetError struct {
	Domain string
	// Over is by how much the domain would exceed its budget.
	Over units.Power
	// Budget less unmanaged watts, and what would be Reserved.
	Budget, Reserved units.Power
}

// Error names the domain and the numbers.
func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("%s would be charged %v of %v: %v over", e.Domain, e.Reserved, e.Budget, e.Over)
}

// Unwrap makes errors.Is(err, ErrOverBudget) true.
func (e *OverBudgetError) Unwrap() error { return ErrOverBudget }
