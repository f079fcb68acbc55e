package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/coordinator/leading"
	"headroom/coordinator/statemachine"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// requests hands what this server is asked for to the loop of its leadership, while it
// leads, and turns what comes of it into answers and refusals.
type requests struct {
	id      string
	machine *statemachine.Machine
	// leader is another server that leads, and its address; empty while that is not known.
	leader func() (id, address string)
	loop   atomic.Pointer[leading.Loop] // nil while this server does not lead
}

// leads reports whether this server leads the nodes.
func (q *requests) leads() bool { return q.loop.Load() != nil }

// hasten asks for an early tick, where this server leads.
func (q *requests) hasten(ctx context.Context) {
	if l := q.loop.Load(); l != nil {
		l.Hasten(ctx)
	}
}

// notLeader is the refusal of a server that does not lead, with the leader's address when it is known.
func (q *requests) notLeader() error {
	id, address := q.leader()
	return rpc.NotLeader(id, address)
}

// ask runs f on the loop, after this server has proven that it leads.
func (q *requests) ask(ctx context.Context, f func(*leading.Known)) error {
	l := q.loop.Load()
	if l == nil {
		return q.notLeader()
	}
	return q.unled(l.Ask(ctx, f))
}

// unled turns why a loop did not answer into a refusal: it may have lost the lead without knowing.
func (q *requests) unled(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, leading.ErrDeposed):
		return q.notLeader()
	default:
		return connect.NewError(connect.CodeDeadlineExceeded, err)
	}
}

// request has the leadership carry out a request, and gives what came of it. What is only
// tried out is told after this server has proven that it leads.
func (q *requests) request(ctx context.Context, r *leader.Request) (leader.Answer, error) {
	l := q.loop.Load()
	if l == nil {
		return leader.Answer{}, q.notLeader()
	}
	if r.DryRun {
		if err := q.unled(l.Ask(ctx, func(*leading.Known) {})); err != nil {
			return leader.Answer{}, err
		}
	}
	a, err := l.Request(ctx, r)
	return a, q.unled(err)
}

// change has one command carried out.
func (q *requests) change(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	return q.changeWith(ctx, c, nil)
}

// changeWith is change for a command that is completed on the loop.
func (q *requests) changeWith(ctx context.Context, c ledger.Command, build func(leader.View, *ledger.Command) error) (ledger.Result, error) {
	a, asked := q.request(ctx, &leader.Request{Command: c, Build: build, Quiet: true, Urgent: true})
	if asked != nil {
		return ledger.Result{}, asked
	}
	res, err := a.Result, a.Err
	if err != nil {
		return res, q.refuse(err)
	}
	return res, nil
}

// command is a command with the caller's actor, reason, key and revision. Who has
// shown who they are is the actor, whatever the message says.
func command(ctx context.Context, c *headroomv1.Change, fallback string) ledger.Command {
	out := ledger.Command{
		Actor: cmp.Or(access.CallerOf(ctx).Name, c.GetActor(), fallback), Reason: c.GetReason(), RequestID: c.GetRequestId(),
	}
	if c != nil {
		out.Check = c.CheckRevision
	}
	return out
}

// read lets f look at the state: the leader's, proven, with what
// it knows beside the log; or this server's own, with nothing, when stale is asked for.
func (q *requests) read(ctx context.Context, stale bool, f func(st *ledger.State, k *leading.Known)) (*headroomv1.Meta, error) {
	meta := &headroomv1.Meta{Server: q.id, Consistency: "linearizable"}
	look := func(k *leading.Known) {
		q.machine.View(func(st *ledger.State) {
			meta.Revision, meta.AsOfUs, meta.Epoch = st.Revision, time.Now().UnixMicro(), wire.EpochMessage(st.Epoch)
			f(st, k)
		})
	}
	if !stale {
		return meta, q.ask(ctx, look)
	}
	// A server that cannot prove its lead any more still answers from what it has.
	if q.loop.Load() != nil && q.ask(ctx, look) == nil {
		return meta, nil
	}
	meta.Consistency = "stale"
	if age := q.machine.Age(); age > 0 {
		meta.AgeMs = new(age.Milliseconds())
	}
	look(nil)
	return meta, nil
}

// tried has a change tried on a copy of the state, then carried out unless it is only
// asked about.
func (q *requests) tried(
	ctx context.Context, who *headroomv1.Change, dryRun bool, build func(leader.View, *ledger.Command) error, own ...refusalRule,
) (*headroomv1.ChangeResponse, error) {
	r := &leader.Request{Command: command(ctx, who, "operator"), Build: build, Trial: true, DryRun: dryRun}
	a, err := q.request(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.Err != nil {
		return nil, q.refuse(a.Err, own...)
	}
	t := r.Tried
	out := &headroomv1.ChangeResponse{
		Meta:    &headroomv1.Meta{Server: q.id, Consistency: "linearizable", Revision: t.Revision, Epoch: wire.EpochMessage(t.Command.Epoch), AsOfUs: t.Command.At},
		Already: t.Already || a.Result.Already, What: t.What,
	}
	if !dryRun {
		out.Meta.Revision = a.Result.Revision
	}
	out.Before, out.After = movedDomains(t.Before, t.After)
	return out, nil
}

// commit proposes one command through the loop, and returns the error as it is.
func (q *requests) commit(ctx context.Context, c ledger.Command) error {
	l := q.loop.Load()
	if l == nil {
		return consensus.ErrNotLeader
	}
	a, err := l.Request(ctx, &leader.Request{Command: c, Quiet: true})
	if err != nil {
		return fmt.Errorf("%w: %w", consensus.ErrNotLeader, err)
	}
	return a.Err
}
