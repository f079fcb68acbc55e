package coordinator

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/access"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// HoldScheduler implements headroomv1connect.JobServiceHandler. A renewal writes no entry: it is
// answered once this server has proven that it led after the renewal came.
func (j jobService) HoldScheduler(ctx context.Context, r *connect.Request[headroomv1.HoldSchedulerRequest]) (*connect.Response[headroomv1.HoldSchedulerResponse], error) {
	m := r.Msg
	c := ledger.Command{Actor: cmp.Or(access.CallerOf(ctx).Name, m.GetId())}
	if m.GetRelease() != 0 {
		c.Reason, c.ReleaseScheduler = "the scheduler stops", &ledger.ReleaseScheduler{Epoch: m.GetRelease()}
		if _, err := j.requests.change(ctx, c); err != nil {
			return nil, err
		}
		return connect.NewResponse(&headroomv1.HoldSchedulerResponse{}), nil
	}
	held, x, err := j.renewed(ctx, m.GetProcess())
	if err == nil && !held {
		h := ledger.SchedulerHolder{Name: c.Actor, ID: m.GetId(), Process: m.GetProcess(), Place: m.GetPlace(), Address: m.GetAddress()}
		a, asked := j.requests.request(ctx, &leader.Request{Command: c, Build: leader.HoldScheduler(h, m.GetKey()), Quiet: true})
		switch {
		case asked != nil:
			err = asked
		case errors.Is(a.Err, leader.ErrHeld):
		case a.Err != nil:
			err = j.requests.refuse(a.Err)
		default:
			held, x, err = j.renewed(ctx, m.GetProcess())
		}
	}
	return rpc.Respond(holdMessage(held, x), err)
}

func (j jobService) renewed(ctx context.Context, process string) (held bool, x ledger.Scheduler, err error) {
	l := j.requests.loop.Load()
	if l == nil {
		return false, x, j.requests.notLeader()
	}
	held, x, err = l.RenewScheduler(ctx, process)
	return held, x, j.requests.unled(err)
}

func holdMessage(held bool, x ledger.Scheduler) *headroomv1.HoldSchedulerResponse {
	out := &headroomv1.HoldSchedulerResponse{Held: held, Epoch: x.Epoch, Name: x.Name, Address: x.Address}
	if x.Released || held {
		out.Name, out.Address = "", ""
	}
	if held {
		out.LeaseMs, out.Key = ledger.SchedulerLease.Milliseconds(), x.Key
	}
	return out
}

// ofScheduler carries out a command of the scheduler whose request has the header, if it is the
// active one: another may have taken its place.
func (j jobService) ofScheduler(ctx context.Context, h http.Header, c ledger.Command, build func(leader.View, *ledger.Command) error) (ledger.Result, error) {
	c.SchedulerEpoch = rpc.SchedulerEpoch(h)
	return j.requests.changeWith(ctx, c, func(v leader.View, c *ledger.Command) error {
		if err := v.State.Outdated(rpc.SchedulerEpoch(h)); err != nil || build == nil {
			return err
		}
		return build(v, c)
	})
}
