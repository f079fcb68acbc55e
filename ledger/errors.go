package ledger

import (
	"errors"
	"fmt"
	"math"
	"time"

	"headroom/units"
)

// Reasons for refusing a command.
var (
	// ErrUnknownCommand: the command is not of these rules.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrSkip: a generation of the brake that may not be passed over.
	ErrSkip = errors.New("there would be no room for another brake")
	// ErrDenial: a denial that denies nothing, or more than one thing.
	ErrDenial = errors.New("bad denial")
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
	// ErrFloor: fewer tasks would be left than the job's quality floor.
	ErrFloor = errors.New("below the job's quality floor")
	// ErrStop: an early stop, or dropped tasks, that make no sense.
	ErrStop = errors.New("bad early stop")
	// ErrNoStop: tasks are dropped only under an early stop, or a drop ratio of an engine that names them.
	ErrNoStop = errors.New("no early stop is in force")
	// ErrDeflation: a drop ratio that makes no sense, a lower one than that in force, or another seed.
	ErrDeflation = errors.New("bad drop ratio")
	// ErrContainerPolicy: there is no such policy for containers.
	ErrContainerPolicy = errors.New("unknown container policy")
	// ErrRules: a command of rules that are not in force.
	ErrRules = errors.New("the rules are not in force")
	// ErrDomain: what is said of a domain makes no sense.
	ErrDomain = errors.New("bad domain")
	// ErrRating: a budget above what the domain's breaker carries.
	ErrRating = errors.New("above the rating")
	// ErrParent: a domain does not move.
	ErrParent = errors.New("a domain stays below its parent")
	// ErrInUse: something still stands in the domain.
	ErrInUse = errors.New("it is in use")
	// ErrSettings: what an operator says of a node makes no sense.
	ErrSettings = errors.New("bad setting")
	// ErrMoving: an earlier move of the node is not finished.
	ErrMoving = errors.New("the node is on the move")
	// ErrLostCharge: the domain keeps what a lost node is charged.
	ErrLostCharge = errors.New("the domain keeps the charge of lost nodes")
	// ErrBraked: nothing is raised while the brake is set.
	ErrBraked = errors.New("the brake is set")
	// ErrRestored: nothing is raised until every node has shown what it holds.
	ErrRestored = errors.New("the cluster was restored and not every node has shown what it holds")
	// ErrIncarnation: a node has left this group for a newer one.
	ErrIncarnation = errors.New("a node has heard of a newer incarnation of this cluster")
	// ErrBudgetNotNamed: a recovery must name the budget of every domain.
	ErrBudgetNotNamed = errors.New("its budget must be named: the snapshot may hold an older one")
	// ErrAtRated: a sprint of a node whose cap is its rating already.
	ErrAtRated = errors.New("a sprint cannot raise it further")
	// ErrSprint: a sprint that may not be granted.
	ErrSprint = errors.New("no sprint")
	// ErrUnknownSprint and the next ones: there is none of this name.
	ErrUnknownSprint   = errors.New("unknown sprint")
	ErrUnknownSchedule = errors.New("unknown schedule")
	ErrUnknownToken    = errors.New("unknown token")
	ErrUnknownServer   = errors.New("unknown server")
	ErrUnknownAlarm    = errors.New("unknown alarm")
	// ErrSchedule: a schedule that cannot be read.
	ErrSchedule = errors.New("bad schedule")
	// ErrNotDue: a change by the clock that is not the one that is due.
	ErrNotDue = errors.New("nothing of the kind is due")
	// ErrLease: a length of leases out of its bounds.
	ErrLease = errors.New("the length of leases is out of its bounds")
	// ErrClocks: a raise by the clock without a quorum of clocks that agree.
	ErrClocks = errors.New("a raise by the clock needs a quorum whose clocks agree within a minute")
	// ErrPast: a time that is over.
	ErrPast = errors.New("that time is over")
	// ErrRole, ErrToken, ErrServer: bad input of that kind.
	ErrRole   = errors.New("unknown role")
	ErrToken  = errors.New("bad token")
	ErrServer = errors.New("bad server")
	// ErrText: more words than the audit log keeps.
	ErrText = errors.New("too many words")
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

// RatingError refuses a budget above what the domain's breaker carries less its margin.
type RatingError struct {
	Domain                 string
	Budget, Rating, Usable units.Power
}

// Error names the rule and the numbers.
func (e *RatingError) Error() string {
	return fmt.Sprintf("budget %v of %s is above %v: its rating %v less its margin", e.Budget, e.Domain, e.Usable, e.Rating)
}

// Unwrap makes errors.Is(err, ErrRating) true.
func (e *RatingError) Unwrap() error { return ErrRating }

// EscrowError refuses a sprint that its budget of energy cannot pay.
type EscrowError struct {
	Domain, Class string
	// Escrow is what the sprint needs, Balance what the pot has, Room the most that it
	// can have while open sprints hold their part of it.
	Escrow, Balance, Room units.Energy
	// Refill of the pot.
	Refill units.Power
}

// Error names the numbers.
func (e *EscrowError) Error() string {
	of := e.Domain
	if e.Class != "" {
		of += ", class " + e.Class
	}
	return fmt.Sprintf("sprint budget of %s is too low: %v needed, %v available", of, e.Escrow, e.Balance)
}

// Wait returns how long the refill takes until the budget can pay the sprint, and
// false when it never can.
func (e *EscrowError) Wait() (time.Duration, bool) {
	if e.Escrow > e.Room || e.Refill <= 0 {
		return 0, false
	}
	return time.Duration(math.Ceil(float64(e.Escrow-e.Balance)/float64(e.Refill))) * time.Second, true
}

// Unwrap makes errors.Is(err, ErrSprint) true.
func (e *EscrowError) Unwrap() error { return ErrSprint }
