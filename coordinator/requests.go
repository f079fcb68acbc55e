package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// requests passes requests to the loop while this server is the leader, and converts the
// results to answers and refusals.
type requests struct {
	id      string
	machine *statemachine.Machine
	// leader returns the leader if it is another server, and its address; empty while unknown.
	leader func() (id, address string)
	loop   atomic.Pointer[leading.Loop] // nil on a follower
}

// leads reports whether this server is the leader and runs its loop.
func (q *requests) leads() bool { return q.loop.Load() != nil }

// hasten requests an early tick on the leader.
func (q *requests) hasten(ctx context.Context) {
	if l := q.loop.Load(); l != nil {
		l.Hasten(ctx)
	}
}

// notLeader returns the refusal of a follower, with the leader's address if it is known.
func (q *requests) notLeader() error {
	id, address := q.leader()
	return rpc.NotLeader(id, address)
}

// ask runs f on the loop, after this server has proved that it is the leader.
func (q *requests) ask(ctx context.Context, f func(*leading.Known)) error {
	l := q.loop.Load()
	if l == nil {
		return q.notLeader()
	}
	return q.unled(l.Ask(ctx, f))
}

// unled converts a loop's error to a refusal: it may have lost leadership unnoticed.
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

// request makes the leader carry out a request and returns the result. A dry run is answered
// only after this server has proved that it is the leader.
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

// change carries out one command.
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

// changing is a request that changes something.
type changing interface {
	proto.Message
	GetChange() *headroomv1.Change
}

// command returns a command with the caller's actor, reason, key and revision. An
// authenticated caller is the actor, whatever the message has, and its key is its own.
func command(ctx context.Context, m changing, fallback string) ledger.Command {
	c, who := m.GetChange(), access.CallerOf(ctx)
	out := ledger.Command{Actor: cmp.Or(who.Name, c.GetActor(), fallback), Reason: c.GetReason(), RequestID: c.GetRequestId(), Content: content(m)}
	out.Requester = ledger.Requester{Caller: string(who.Role) + "/" + out.Actor, User: c.GetOnBehalfOf()}
	out.Actor = cmp.Or(who.Actor(c.GetOnBehalfOf()), out.Actor)
	if c != nil {
		out.Check = c.CheckRevision
	}
	return out
}

// read calls f with the state: the leader's, proved, with its Known; or with stale this
// server's own and a nil Known.
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
	// A server that can no longer prove its leadership still answers from its own state.
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

// filled returns the response that f fills in from the state, see read.
func filled[T any](
	ctx context.Context, q *requests, stale bool, out *T, meta **headroomv1.Meta, f func(st *ledger.State, k *leading.Known),
) (_ *connect.Response[T], err error) {
	*meta, err = q.read(ctx, stale, f)
	return rpc.Respond(out, err)
}

// tried tries a change on a copy of the state, and then carries it out unless it is a dry run.
func (q *requests) tried(
	ctx context.Context, m changing, dryRun bool, build func(leader.View, *ledger.Command) error, own ...refusalRule,
) (*headroomv1.ChangeResponse, error) {
	r := &leader.Request{Command: command(ctx, m, "operator"), Build: build, Trial: true, DryRun: dryRun}
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
	if !dryRun || a.Result.Already {
		out.Meta.Revision = a.Result.Revision
	}
	out.Before, out.After = movedDomains(t.Before, t.After)
	out.Moves = moveMessages(t.Moves)
	for _, name := range slices.Sorted(maps.Keys(t.Missing)) {
		out.Shortfall = append(out.Shortfall, fmt.Sprintf("%s would be %v over its budget", name, t.Missing[name]))
	}
	return out, nil
}

// asked returns the first result of a request that was carried out before, or the refusal
// of a key that was used for another one.
func (q *requests) asked(c ledger.Command) (res ledger.Result, err error) {
	q.machine.View(func(st *ledger.State) { res, err = st.Asked(c) })
	if err != nil {
		err = q.refuse(err)
	}
	return res, err
}

// content is a digest of what a request asks for, without its author and reason, and
// without what differs when the same is asked again: a confirmation, and what a program measured.
func content(m changing) string {
	var what proto.Message
	switch x := m.(type) {
	case *headroomv1.CommitJobRequest:
		what = &headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: x.GetJob().GetId()}}
		if j := x.GetJob(); x.GetChange().GetOnBehalfOf() != "" {
			what = &headroomv1.CommitJobRequest{Job: &headroomv1.Job{Id: j.GetId(), Class: j.GetClass(), Spec: j.GetSpec()}}
		}
	case *headroomv1.FinishJobRequest:
		what = &headroomv1.FinishJobRequest{Id: x.GetId(), State: x.GetState()}
	case *headroomv1.DeflateJobRequest:
		what = &headroomv1.DeflateJobRequest{Id: x.GetId(), Theta: x.GetTheta(), Seed: x.GetSeed()}
	default:
		what = proto.Clone(m)
		unframed(what.ProtoReflect())
	}
	// The same request has the same bytes on every server of a version: after an upgrade a repeated one may be refused.
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(what)
	if err != nil {
		return "" // what cannot be encoded was not received either
	}
	sum := sha256.Sum256(append([]byte(what.ProtoReflect().Descriptor().FullName()+"\n"), data...))
	return hex.EncodeToString(sum[:16])
}

// unframed clears what says who asks and how, here and in the parts of a request.
func unframed(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch name := f.Name(); {
		case name == "change", name == "dry_run", name == "confirm_uw":
			m.Clear(f)
		case f.Message() != nil && !f.IsList() && !f.IsMap():
			unframed(v.Message())
		}
		return true
	})
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
