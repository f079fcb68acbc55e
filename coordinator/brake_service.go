package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/brakes"
	"headroom/coordinator/leading"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// brakeService sets the brake without a leader and lifts it with one.
type brakeService struct{ *server }

// SetBrake implements headroomv1connect.BrakeServiceHandler. What it does is done
// whether or not the caller waits.
func (b brakeService) SetBrake(ctx context.Context, r *connect.Request[headroomv1.SetBrakeRequest]) (*connect.Response[headroomv1.SetBrakeResponse], error) {
	if !b.brakes.CanSet() {
		return nil, rpc.Refuse(connect.CodeFailedPrecondition, "no-brake-key", cli.ExitRefused, b.cfg.ID+": "+brakes.ErrNoKey.Error(),
			"use a server with brake.private_key_file; with a leader, coordinator budget set 1W --force also drives every node to its fail-safe cap")
	}
	if b.gossip.Load() == nil && !b.requests.leads() {
		return nil, b.requests.notLeader() // this server cannot announce it
	}
	out := &headroomv1.SetBrakeResponse{Server: b.cfg.ID}
	if b.gossip.Load() != nil {
		out.Members = uint32(max(0, len(b.gossip.Load().Members())-1))
	}
	inLog := b.braking.InLog()
	if r.Msg.GetDryRun() {
		out.Generation = b.brakes.Next(inLog)
		return connect.NewResponse(out), nil
	}
	c := command(ctx, r.Msg, "operator")
	s, already, err := b.brakes.Set(c.Actor, c.Reason, ownKey(c), inLog, time.Now())
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	out.Generation, out.Already = s.Generation, already
	out.NotStored = b.brakes.AwaitStored(s.Generation)
	if b.gossip.Load() != nil {
		b.gossip.Load().SetBrake(s)
	}
	b.requests.hasten(context.WithoutCancel(ctx))
	return connect.NewResponse(out), nil
}

// ownKey is the key of a request that no other caller can name; empty without one.
func ownKey(c ledger.Command) string {
	if c.RequestID == "" {
		return ""
	}
	return fmt.Sprintf("%q %q %q", c.Caller, c.User, c.RequestID)
}

// brakeWaitMost bounds one AwaitBrake.
const brakeWaitMost = 30 * time.Second

// AwaitBrake implements headroomv1connect.BrakeServiceHandler.
func (b brakeService) AwaitBrake(ctx context.Context, r *connect.Request[headroomv1.AwaitBrakeRequest]) (*connect.Response[headroomv1.AwaitBrakeResponse], error) {
	until := time.Now().Add(min(time.Duration(r.Msg.GetWaitMs())*time.Millisecond, brakeWaitMost))
	look := time.NewTicker(awaitPoll)
	defer look.Stop()
	for {
		out := &headroomv1.AwaitBrakeResponse{Generation: r.Msg.GetGeneration()}
		if b.gossip.Load() != nil {
			told := b.gossip.Load().Told()
			out.Generation = max(out.Generation, told.Generation)
			out.Heard = uint32(told.Heard)
			for _, m := range told.Silent {
				out.Silent = append(out.Silent, m.Name)
			}
		}
		out.InLog = b.braking.InLog() >= out.GetGeneration()
		if out.GetInLog() && len(out.GetSilent()) == 0 || !time.Now().Before(until) {
			return connect.NewResponse(out), nil
		}
		select {
		case <-ctx.Done():
			return nil, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		case <-look.C:
		}
	}
}

// GetBrake implements headroomv1connect.BrakeServiceHandler.
func (b brakeService) GetBrake(ctx context.Context, r *connect.Request[headroomv1.GetBrakeRequest]) (*connect.Response[headroomv1.GetBrakeResponse], error) {
	known := b.brakes.Known()
	out := &headroomv1.GetBrakeResponse{CanSet: b.brakes.CanSet(), Gossip: &headroomv1.BrakeRecord{
		Generation: known.Generation, Actor: known.Actor, Reason: known.Reason,
	}}
	if known.Generation > 0 {
		out.Gossip.AtUs = known.At.UnixMicro()
	}
	return filled(ctx, b.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, k *leading.Known) {
		out.Log = &headroomv1.BrakeRecord{Generation: s.Brake.Set, Actor: s.Brake.By, Reason: s.Brake.Reason, AtUs: s.Brake.At}
		out.Lifted = s.Brake.Lifted
		if k != nil {
			out.Nodes, out.Behind = k.Heard().BrakeStored(s, max(s.Brake.Set, known.Generation))
		}
	})
}

// errTold is returned for a generation that no node reports.
var errTold = errors.New("no connected node reports this generation without a proof")

// SkipBrake implements headroomv1connect.BrakeServiceHandler. A brake that was heard
// is committed first: one that is signed is never passed over.
func (b brakeService) SkipBrake(ctx context.Context, r *connect.Request[headroomv1.SkipBrakeRequest]) (*connect.Response[headroomv1.ChangeResponse], error) {
	return rpc.Respond(b.requests.tried(ctx, r.Msg, r.Msg.GetDryRun(), func(v leader.View, c *ledger.Command) error {
		if g := r.Msg.GetGeneration(); g > v.State.Brake.Set && !b.brakes.Tells(g) {
			return rpc.Refuse(connect.CodeFailedPrecondition, "not-told", cli.ExitRefused, fmt.Sprintf("generation %d: %v", g, errTold),
				"coordinator alarm list shows the node and the generation that it reports")
		}
		c.SkipBrake = &ledger.SkipBrake{Generation: r.Msg.GetGeneration()}
		return nil
	}, conflict("a brake that somebody has set is lifted: coordinator brake show, coordinator brake lift")))
}

// LiftBrake implements headroomv1connect.BrakeServiceHandler. A brake that was
// heard and is not in the log yet is committed first, so that nobody lifts what
// they have not seen.
func (b brakeService) LiftBrake(ctx context.Context, r *connect.Request[headroomv1.LiftBrakeRequest]) (*connect.Response[headroomv1.ChangeResponse], error) {
	return rpc.Respond(b.requests.tried(ctx, r.Msg, r.Msg.GetDryRun(), func(_ leader.View, c *ledger.Command) error {
		c.LiftBrake = &ledger.LiftBrake{Generation: r.Msg.GetGeneration()}
		return nil
	}, conflict("coordinator brake show shows the brake in force, who set it and why")))
}

// conflict returns the refusal of a brake change after another change.
func conflict(hint string) refusalRule {
	return refusalRule{ledger.ErrConflict, connect.CodeAborted, "conflict", cli.ExitConflict, hint}
}
