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
	// ErrUnknownCommand: these rules have no such command.
	ErrUnknownCommand = errors.New("unknown command")
	// ErrSkip: the brake generation is too high to be skipped.
	ErrSkip = errors.New("too few brake generations would remain above it")
	// ErrDenial: a denial must name exactly one identity or serial number.
	ErrDenial = errors.New("invalid denial")
	// ErrEpoch: the command is from another epoch than the current one.
	ErrEpoch = errors.New("the command is from another epoch")
	// ErrNotFounded: the cluster has no power tree yet.
	ErrNotFounded = errors.New("the cluster has no power tree yet")
	// ErrFounded: the cluster already has a power tree.
	ErrFounded = errors.New("the cluster already has a power tree")
	// ErrOverBudget: a raise or an admission does not fit.
	ErrOverBudget = errors.New("it does not fit the budget")
	// ErrUnknownNode, ErrUnknownDomain, ErrUnknownJob: no such name exists.
	ErrUnknownNode   = errors.New("unknown node")
	ErrUnknownDomain = errors.New("unknown domain")
	ErrUnknownJob    = errors.New("unknown job")
	// ErrIdentity: the node's name is used by another machine.
	ErrIdentity = errors.New("the name is used by another machine")
	// ErrDeclaration: a node declares invalid values.
	ErrDeclaration = errors.New("invalid declaration")
	// ErrNotGrantable: the node is not admitted, not controlled or released.
	ErrNotGrantable = errors.New("the node cannot be granted a cap")
	// ErrTarget: a target outside the node's range, or a raise where only lowering is allowed.
	ErrTarget = errors.New("invalid target")
	// ErrConflict: budgets or nodes changed after the revision that the command was planned against.
	ErrConflict = errors.New("the revision has changed")
	// ErrSnapshot: the snapshot is inconsistent.
	ErrSnapshot = errors.New("invalid snapshot")
	// ErrJob: the job differs from the accepted one, has ended, or is too large.
	ErrJob = errors.New("invalid job")
	// ErrFloor: fewer tasks would be left than the job's quality floor.
	ErrFloor = errors.New("below the job's quality floor")
	// ErrStop: the early stop or the list of dropped tasks is invalid.
	ErrStop = errors.New("invalid early stop")
	// ErrNoStop: tasks may be dropped only under an early stop, or under a drop ratio if the engine names dropped tasks.
	ErrNoStop = errors.New("no early stop is in force")
	// ErrDeflation: the drop ratio is invalid or below the one in force, or the seed differs.
	ErrDeflation = errors.New("invalid drop ratio")
	// ErrContainerPolicy: no container policy has this name.
	ErrContainerPolicy = errors.New("unknown container policy")
	// ErrRules: the command was written under rules that are not in force.
	ErrRules = errors.New("the rules are not in force")
	// ErrDomain: a setting of the domain is invalid.
	ErrDomain = errors.New("invalid domain")
	// ErrRating: a budget above what the domain's breaker carries.
	ErrRating = errors.New("above the rating")
	// ErrParent: the parent of a domain cannot be changed.
	ErrParent = errors.New("the parent of a domain cannot be changed")
	// ErrInUse: the domain still has a child domain, a node or an open sprint.
	ErrInUse = errors.New("it is in use")
	// ErrSettings: an operator's setting of a node is invalid.
	ErrSettings = errors.New("invalid setting")
	// ErrMoving: an earlier move of the node is not finished.
	ErrMoving = errors.New("a move of the node is in progress")
	// ErrLostCharge: the domain does not lower the charge of lost nodes.
	ErrLostCharge = errors.New("the domain keeps the charge of lost nodes")
	// ErrBraked: nothing is raised while the brake is set.
	ErrBraked = errors.New("the brake is set")
	// ErrRestored: nothing is raised until every node has confirmed its cap.
	ErrRestored = errors.New("the cluster was restored and not every node has confirmed its cap")
	// ErrIncarnation: a node has been granted a lease by a newer incarnation.
	ErrIncarnation = errors.New("a node has seen a newer incarnation of this cluster")
	// ErrBudgetNotNamed: a recovery must name the budget of every domain.
	ErrBudgetNotNamed = errors.New("its budget must be given: the one in the snapshot may be out of date")
	// ErrAtRated: a sprint of a node whose cap already equals its rated power.
	ErrAtRated = errors.New("a sprint cannot raise it further")
	// ErrSprint: the sprint cannot be granted.
	ErrSprint = errors.New("sprint not granted")
	// ErrUnknownSprint and the next ones: no such name exists.
	ErrUnknownSprint   = errors.New("unknown sprint")
	ErrUnknownSchedule = errors.New("unknown schedule")
	ErrUnknownToken    = errors.New("unknown token")
	ErrUnknownServer   = errors.New("unknown server")
	ErrUnknownAlarm    = errors.New("unknown alarm")
	// ErrSchedule: the schedule cannot be parsed.
	ErrSchedule = errors.New("invalid schedule")
	// ErrNotDue: a scheduled change that is not due.
	ErrNotDue = errors.New("no such change is due")
	// ErrLease: a lease length outside its bounds.
	ErrLease = errors.New("lease length out of range")
	// ErrClocks: a scheduled raise without a quorum of clocks that agree.
	ErrClocks = errors.New("a scheduled raise needs a quorum of servers whose clocks agree within a minute")
	// ErrPast: the time is in the past.
	ErrPast = errors.New("the time is in the past")
	// ErrRole, ErrToken, ErrServer: invalid input of that kind.
	ErrRole   = errors.New("unknown role")
	ErrToken  = errors.New("invalid token")
	ErrServer = errors.New("invalid server")
	// ErrScheduler: the scheduler's lease cannot be granted. ErrSchedulerEpoch: another scheduler is the active one.
	ErrScheduler      = errors.New("invalid lease of a scheduler")
	ErrSchedulerEpoch = errors.New("another scheduler is active")
	// ErrText: longer than the audit log stores.
	ErrText = errors.New("text too long")
	// ErrFull: a limit on the size of the state is reached.
	ErrFull = errors.New("limit reached")
)

// FloorError refuses a budget below the lowest power that the domain can be lowered to.
type FloorError struct {
	// Domain and the Budget that was asked for.
	Domain string
	Budget units.Power
	// Unmanaged watts and Floor (unmanaged + every node at its lowest cap) of the domain; Nodes is their number.
	Unmanaged, Floor units.Power
	Nodes            int
}

// Error names the rule and the numbers.
func (e *FloorError) Error() string {
	return fmt.Sprintf("budget %v is below the floor of %s: %v unmanaged + %v with all %d nodes at their lowest caps = %v (%v short)",
		e.Budget, e.Domain, e.Unmanaged, e.Floor-e.Unmanaged, e.Nodes, e.Floor, e.Floor-e.Budget)
}

// ConflictError refuses a command that was planned against an older revision.
type ConflictError struct {
	// Planned is the revision it was planned against, Now the one in force.
	Planned, Now uint64
	// Last is the newest change to budgets or nodes.
	Last Event
}

// Error names both revisions and the newest change.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("the revision has changed from %d to %d since the plan (%s, %q)", e.Planned, e.Now, e.Last.Actor, e.Last.What)
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
	// Escrow is the energy that the sprint needs, Balance the energy available, Room the
	// most that can be available while open sprints hold theirs.
	Escrow, Balance, Room units.Energy
	// Refill of the sprint budget.
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
