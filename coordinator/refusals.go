package coordinator

import (
	"errors"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/leading"
	"headroom/coordinator/members"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// refuse converts the error of a proposal to a refusal.
func (q *requests) refuse(err error, own ...refusalRule) error {
	if errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrClosed) || errors.Is(err, leading.ErrDeposed) {
		return q.notLeader()
	}
	text := view.Plain(err)
	if floor, ok := errors.AsType[*ledger.FloorError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "infeasible", cli.ExitRefused, text,
			fmt.Sprintf("--force drives every node to fail-safe and leaves %v missing", floor.Floor-floor.Budget))
	}
	if rating, ok := errors.AsType[*ledger.RatingError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "above-rating", cli.ExitRefused, text,
			fmt.Sprintf("at most %s; coordinator domain set %s --rating changes what the breaker carries", rating.Usable.Exact(), rating.Domain))
	}
	if used, ok := errors.AsType[*ledger.RequestError](err); ok {
		return rpc.Refuse(connect.CodeAborted, "request-id-used", cli.ExitConflict, used.Error(), "nothing was changed; use a new --request-id, or none")
	}
	if escrow, ok := errors.AsType[*ledger.EscrowError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "no-energy", cli.ExitRefused, text, escrowHint(escrow))
	}
	if refusal, ok := errors.AsType[*connect.Error](err); ok {
		return refusal
	}
	for _, r := range slices.Concat(own, refusals(), changeRefusals(), memberRefusals()) {
		if errors.Is(err, r.when) {
			return rpc.Refuse(r.code, r.short, r.exit, text, r.hint)
		}
	}
	if _, ok := errors.AsType[leader.RefusedError](err); ok {
		return rpc.Refuse(connect.CodeFailedPrecondition, "refused", cli.ExitRefused, text, "nothing was changed")
	}
	return rpc.Refuse(connect.CodeUnknown, "unknown-outcome", cli.ExitUnknown, text, "check the present state; it is safe to retry with the same --request-id")
}

// escrowHint is how long to wait until the budget can pay the sprint, or what to change
// where it never can.
func escrowHint(e *ledger.EscrowError) string {
	if wait, ok := e.Wait(); ok {
		return fmt.Sprintf("retry in %v: %v refills it; or ask for a shorter sprint or a lower --cap", wait, e.Refill)
	}
	if e.Refill <= 0 && e.Escrow <= e.Room {
		return "the budget has no refill: coordinator sprint budget ENERGY --refill POWER"
	}
	return fmt.Sprintf("at most %v can become available: ask for a shorter sprint or a lower --cap", e.Room)
}

type refusalRule struct {
	when  error
	code  connect.Code
	short string
	exit  int
	hint  string
}

func refusals() []refusalRule {
	return []refusalRule{
		{ledger.ErrConflict, connect.CodeAborted, "conflict", cli.ExitConflict, "see coordinator event list, then plan again"},
		{ledger.ErrOverBudget, connect.CodeFailedPrecondition, "over-budget", cli.ExitRefused, "lower other nodes or raise the budget first; coordinator budget show shows the headroom"},
		{ledger.ErrUnknownDomain, connect.CodeNotFound, "unknown-domain", cli.ExitUsage, "coordinator budget show lists the domains"},
		{ledger.ErrUnknownNode, connect.CodeNotFound, "unknown-node", cli.ExitUsage, "coordinator node list lists the nodes"},
		{ledger.ErrUnknownJob, connect.CodeNotFound, "unknown-job", cli.ExitUsage, "coordinator job list lists the jobs"},
		{ledger.ErrIdentity, connect.CodeAlreadyExists, "name-taken", cli.ExitConflict, "another machine has this node name"},
		{ledger.ErrJob, connect.CodeAlreadyExists, "bad-job", cli.ExitConflict, "coordinator job list lists the committed jobs"},
		{ledger.ErrSchedulerEpoch, connect.CodeFailedPrecondition, "not-active", cli.ExitUnreachable, "nothing was changed; the active scheduler continues the jobs"},
		{ledger.ErrScheduler, connect.CodeInvalidArgument, "bad-scheduler", cli.ExitUsage, "use a scheduler of this version"},
		{ledger.ErrFloor, connect.CodeFailedPrecondition, "floor", cli.ExitRefused, "coordinator job show JOB shows the quality floor and how many tasks may still be dropped"},
		{ledger.ErrNoStop, connect.CodeFailedPrecondition, "no-stop", cli.ExitRefused, "tasks may be dropped only after an early stop is committed; continue the job"},
		{ledger.ErrStop, connect.CodeInvalidArgument, "bad-stop", cli.ExitUsage, "coordinator job show JOB shows its tasks and its early stop"},
		{ledger.ErrDeflation, connect.CodeInvalidArgument, "bad-deflation", cli.ExitUsage, "a drop ratio is from 0 to 1, can only rise and keeps its seed; coordinator job show JOB shows it"},
		{ledger.ErrTarget, connect.CodeAborted, "moved", cli.ExitConflict, "the state changed while the change was planned; send it again"},
		{ledger.ErrNotGrantable, connect.CodeAborted, "moved", cli.ExitConflict, "the state changed while the change was planned; send it again"},
		{ledger.ErrEpoch, connect.CodeUnavailable, "no-leader", cli.ExitUnreachable, "the leader changed; retry with the same --request-id"},
		{ledger.ErrFull, connect.CodeResourceExhausted, "full", cli.ExitRefused, "remove unused entries first"},
		{budget.ErrAmount, connect.CodeInvalidArgument, "usage", cli.ExitUsage, "use a budget above 0 W, e.g. 2800W"},
		{consensus.ErrTooLarge, connect.CodeInvalidArgument, "too-large", cli.ExitUsage, "make the request smaller"},
		{consensus.ErrBusy, connect.CodeUnavailable, "busy", cli.ExitUnreachable, "nothing was done; retry in a moment"},
		{ledger.ErrNotFounded, connect.CodeUnavailable, "not-founded", cli.ExitUnreachable, "the cluster is starting; retry in a moment"},
	}
}

// memberRefusals returns the refusals of membership changes.
func memberRefusals() []refusalRule {
	const failed, exists, missing = connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeNotFound
	return []refusalRule{
		{consensus.ErrUnknownServer, missing, "unknown-server", cli.ExitUsage, "coordinator member list lists the servers"},
		{ledger.ErrUnknownServer, missing, "unknown-server", cli.ExitUsage, "coordinator member list lists the servers"},
		{ledger.ErrServer, connect.CodeInvalidArgument, "bad-server", cli.ExitUsage, "name its id and its RPC address: coordinator member add c4 --rpc HOST:PORT"},
		{consensus.ErrTooManyServers, failed, "too-many-servers", cli.ExitRefused, "remove one first; five voters tolerate two failures, and more only slow down commits"},
		{consensus.ErrAddressTaken, exists, "address-taken", cli.ExitConflict, "use a different raft address for each server"},
		{consensus.ErrNotStable, failed, "not-stable", cli.ExitRefused, "coordinator member health shows the reason; --wait waits until it is stable"},
		{consensus.ErrNotVoter, failed, "no-voter", cli.ExitRefused, "coordinator member promote gives it a vote first"},
		{consensus.ErrLastVoter, failed, "last-voter", cli.ExitRefused, "add and promote another server first"},
		{consensus.ErrLosesQuorum, failed, "loses-quorum", cli.ExitRefused, "restart the unreachable servers first, or remove them; coordinator member health names them"},
		{consensus.ErrLeads, failed, "leads", cli.ExitRefused, "run coordinator member transfer first"},
		{members.ErrNoAnswer, failed, "no-answer", cli.ExitRefused, "start it first, with an empty state_dir and join: in its configuration"},
		{members.ErrOtherServer, exists, "other-server", cli.ExitConflict, "compare the id and the addresses with its configuration"},
		{members.ErrHasLog, exists, "has-log", cli.ExitConflict, "stop it, move its state_dir aside, and start it with join: in its configuration"},
		{members.ErrRules, failed, "rules", cli.ExitRefused, "install the version of the other servers on it"},
		{ledger.ErrRules, failed, "old-rules", cli.ExitRefused, "upgrade the server of an older version, which coordinator member health names; the rules then follow automatically"},
	}
}
