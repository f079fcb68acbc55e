package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	headroomv1 "headroom/api/headroom/v1"

	"connectrpc.com/connect"

	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/units"
)

// agentService answers AgentService on the unix socket.
type agentService struct {
	headroomv1connect.UnimplementedAgentServiceHandler

	n *node
}

// freshWait bounds the wait for the owner: the status must be readable while it is stuck.
const freshWait = 500 * time.Millisecond

// GetAgentStatus returns the current status, or the last published one if the owner does
// not answer.
func (f agentService) GetAgentStatus(ctx context.Context, _ *connect.Request[headroomv1.GetAgentStatusRequest]) (
	*connect.Response[headroomv1.GetAgentStatusResponse], error,
) {
	short, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	_, err := onLoop(short, f.n, func(_ context.Context, answer chan<- reply[struct{}]) {
		f.n.report.details(instant())
		answer <- reply[struct{}]{}
	})
	if ctx.Err() != nil {
		return nil, err
	}
	return connect.NewResponse(f.n.report.snapshot()), nil
}

// RestoreLimits passes the request to the owner and waits for the result.
func (f agentService) RestoreLimits(ctx context.Context, req *connect.Request[headroomv1.RestoreLimitsRequest]) (
	*connect.Response[headroomv1.RestoreLimitsResponse], error,
) {
	call := &restoreCall{force: req.Msg.GetForce(), change: req.Msg.GetChange(), reply: make(chan restoreReply, 1)}
	if call.change.GetRequestId() == "" {
		call.change = f.n.release.change("powerd limit restore")
	}
	select {
	case f.n.restores <- call:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-call.reply:
		if r.err != nil {
			return nil, refusalOf(r.err)
		}
		return connect.NewResponse(&headroomv1.RestoreLimitsResponse{Restored: r.out.Restored, Kept: r.out.Kept}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refusalOf carries a two-line error to the command line.
func refusalOf(err error) *connect.Error {
	e := rpc.AsCLI(err, "release", "the leader")
	return rpc.Refuse(connect.CodeFailedPrecondition, e.Code, e.Exit, e.Error(), e.Hint)
}

// serveSocket answers on the unix socket until ctx ends.
func (n *node) serveSocket(ctx context.Context, l net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(headroomv1connect.NewAgentServiceHandler(agentService{n: n}, rpc.HandlerOptions()...))
	if err := rpc.Serve(ctx, l, mux); err != nil {
		n.log.Error("socket closed", slog.Any("error", err))
	}
}

// reply is a value or an error.
type reply[T any] struct {
	value T
	err   error
}

// onLoop runs do on the owner goroutine and waits for its answer.
func onLoop[T any](ctx context.Context, n *node, do func(context.Context, chan<- reply[T])) (T, error) {
	answer := make(chan reply[T], 1)
	var none T
	select {
	case n.calls <- func(inner context.Context) { do(inner, answer) }:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// SetLocalLimit sets a cap below that of the lease for a limited time.
func (f agentService) SetLocalLimit(ctx context.Context, req *connect.Request[headroomv1.SetLocalLimitRequest]) (
	*connect.Response[headroomv1.SetLocalLimitResponse], error,
) {
	length, err := lengthOf(req.Msg.GetDurationMs())
	if err != nil {
		return nil, err
	}
	if req.Msg.GetCapUw() <= 0 {
		return nil, badLocal("limit must be above 0 W", "powerd limit clear removes a local limit")
	}
	now, err := onLoop(ctx, f.n, func(_ context.Context, answer chan<- reply[units.Power]) {
		p, err := f.n.locals.setCap(units.Power(req.Msg.GetCapUw()), length, req.Msg.GetChange())
		answer <- reply[units.Power]{p, err}
	})
	return rpc.Respond(&headroomv1.SetLocalLimitResponse{CapUw: int64(now)}, err)
}

// ClearLocalLimit removes the local limit.
func (f agentService) ClearLocalLimit(ctx context.Context, req *connect.Request[headroomv1.ClearLocalLimitRequest]) (
	*connect.Response[headroomv1.ClearLocalLimitResponse], error,
) {
	was, err := onLoop(ctx, f.n, func(_ context.Context, answer chan<- reply[bool]) {
		answer <- reply[bool]{value: f.n.locals.clearCap(req.Msg.GetChange())}
	})
	return rpc.Respond(&headroomv1.ClearLocalLimitResponse{WasSet: was}, err)
}

// SetLocalCeiling sets a frequency ceiling for a limited time; 0 removes it.
func (f agentService) SetLocalCeiling(ctx context.Context, req *connect.Request[headroomv1.SetLocalCeilingRequest]) (
	*connect.Response[headroomv1.SetLocalCeilingResponse], error,
) {
	call := &ceilingCall{freq: units.Freq(req.Msg.GetCeilingKhz()), change: req.Msg.GetChange(), answer: make(chan reply[[]int64], 1)}
	if call.freq < 0 {
		return nil, badLocal("frequency must not be below 0", "0 removes the limit")
	}
	if call.freq > 0 {
		var err error
		if call.length, err = lengthOf(req.Msg.GetDurationMs()); err != nil {
			return nil, err
		}
	}
	select {
	case f.n.calls <- func(context.Context) { f.n.locals.setCeiling(call) }:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-call.answer:
		if r.err != nil {
			return nil, r.err
		}
		return connect.NewResponse(&headroomv1.SetLocalCeilingResponse{EffectiveKhz: r.value}), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// RenewLease sends a heartbeat at once and returns the lease after the answer.
func (f agentService) RenewLease(ctx context.Context, _ *connect.Request[headroomv1.RenewLeaseRequest]) (
	*connect.Response[headroomv1.RenewLeaseResponse], error,
) {
	if _, err := onLoop(ctx, f.n, func(_ context.Context, answer chan<- reply[struct{}]) { f.n.exchange.renew(answer) }); err != nil {
		return nil, err
	}
	s := f.n.report.snapshot()
	return connect.NewResponse(&headroomv1.RenewLeaseResponse{LeaseMs: s.LeaseMs, Leader: s.GetLeader()}), nil
}
