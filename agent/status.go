package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"headroom/agent/machine"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/capping"
	"headroom/internal/rpc"
	"headroom/lease"
)

// publish makes the node's state visible to other goroutines: what changes with
// each turn. What is costly to read is added when somebody asks.
func (n *node) publish(now lease.Instant) { n.status.Store(n.state(now)) }

// state is what the owner knows by itself.
func (n *node) state(now lease.Instant) *headroomv1.GetAgentStatusResponse {
	excess, known := n.excessWall()
	s := &headroomv1.GetAgentStatusResponse{
		Node: n.cfg.Node, Version: Version, Domain: n.cfg.Domain, UptimeMs: (now.Boot - n.began).Milliseconds(),
		Tree: status.Tree(n.cfg.Root), Rung: n.rung(), Enforce: n.cfg.Enforce, Holding: n.holdingOf(n.lease.Report(now, excess, known)), Health: n.health.List(),
		Ladder: ladderRows(n.ladderRows()), Sprint: n.sprintStatus(now.Boot), Rivals: n.rivals.units, Advertise: n.network.address(),
		CutOff: n.network.cutOff, Local: n.localStatus(now.Boot), LimitedBy: n.limitedBy(now.Boot), Counters: n.counters.wire(),
		Slices: n.sliceRows(), Brake: n.brakeStatus(), BrakeDrops: dropsMessage(n.network.brakeDrops()),
	}
	if l := n.streams.Leader(); l != nil {
		s.Leader = l.Name
	}
	if p, ok := n.meter.mean.value(); ok {
		s.PowerUw = (*int64)(&p)
	}
	if p, ok := n.demand.Watts(now.Boot, n.cfg.Power.Floor, n.cfg.Power.Max); ok {
		s.DemandUw = (*int64)(&p)
	}
	if r, ok := n.demand.LimitedRatio(now.Boot); ok {
		s.LimitedRatio = &r
	}
	if n.records.journal != nil {
		s.Saved, s.SavedUs = uint32(len(n.records.journal.Controls)), n.records.journal.SavedUs
	}
	other, learned := n.cfg.Power.Other, false
	if n.meter.learning() {
		other, learned = n.meter.learner.Other()
	}
	s.OtherUw, s.OtherFrom = (*int64)(&other), "configured"
	if learned {
		s.OtherFrom = "learned"
	}
	s.Zones = n.machine.ZoneRows(machine.Usage{Holding: n.mode == holding, Shadows: n.shadows(), Limited: n.law.Limited})
	return s
}

// details is the state with what has to be read for it.
func (n *node) details(now lease.Instant) *headroomv1.GetAgentStatusResponse {
	s := n.state(now)
	s.Sensors, s.Policies, s.Turbo = n.sensors(now.Boot), n.policies(), n.turboRow()
	n.status.Store(s)
	return s
}

func ladderRows(all []capping.RungInfo) []*headroomv1.RungStatus {
	rows := make([]*headroomv1.RungStatus, 0, len(all))
	for _, i := range all {
		rows = append(rows, &headroomv1.RungStatus{Rung: i.Rung.String(), State: i.State.String(), Text: i.Text})
	}
	return rows
}

// limitedBy is what holds the node back most, "" for nothing.
func (n *node) limitedBy(now time.Duration) string {
	_, state := n.lease.Cap()
	switch {
	case n.heat.slow(now):
		return "thermal"
	case !n.limited():
		return ""
	case n.lease.Local(now) > 0 || n.caps.ceiling.at(now) > 0:
		return "local"
	case state != lease.Held:
		return "fail-safe"
	case n.caps.running != "":
		return "sprint"
	}
	return "cap"
}

func (c counters) wire() *headroomv1.AgentCounters {
	return &headroomv1.AgentCounters{
		Renewals: c.renewals, Refusals: c.refusals, Expiries: c.expiries, Steps: c.steps, DeadlineMisses: c.misses,
		Drifts: c.drifts, WriteErrors: c.writeErrors, ThermalEvents: c.thermalEvents, Sprints: c.sprints,
		OverCapMs: uint64(c.overTime.Milliseconds()), OverCapUj: uint64(c.overEnergy),
	}
}

// front answers AgentService on the unix socket.
type front struct {
	headroomv1connect.UnimplementedAgentServiceHandler

	n *node
}

// freshWait bounds waiting for the owner: one that is stuck is a state to be seen too.
const freshWait = 500 * time.Millisecond

// GetAgentStatus is the state of this moment; of an owner that does not answer,
// the last one it told.
func (f front) GetAgentStatus(ctx context.Context, _ *connect.Request[headroomv1.GetAgentStatusRequest]) (
	*connect.Response[headroomv1.GetAgentStatusResponse], error,
) {
	short, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	_, err := owned(short, f.n, func(_ context.Context, answer chan<- reply[struct{}]) {
		f.n.details(instant())
		answer <- reply[struct{}]{}
	})
	if ctx.Err() != nil {
		return nil, err
	}
	return connect.NewResponse(f.n.snapshot()), nil
}

// snapshot is the state last published, with the times of now.
func (n *node) snapshot() *headroomv1.GetAgentStatusResponse {
	s := proto.CloneOf(n.status.Load())
	now := instant().Boot
	s.UptimeMs = (now - n.began).Milliseconds()
	if end := time.Duration(n.leaseEnd.Load()); end > now {
		s.LeaseMs = new((end - now).Milliseconds())
	}
	return s
}

// RestoreLimits hands the wish to the owner and waits for how it went.
func (f front) RestoreLimits(ctx context.Context, req *connect.Request[headroomv1.RestoreLimitsRequest]) (
	*connect.Response[headroomv1.RestoreLimitsResponse], error,
) {
	call := &restoreCall{force: req.Msg.GetForce(), change: req.Msg.GetChange(), reply: make(chan restoreReply, 1)}
	if call.change.GetRequestId() == "" {
		call.change = f.n.change("powerd limit restore")
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
	mux.Handle(headroomv1connect.NewAgentServiceHandler(front{n: n}, rpc.HandlerOptions()...))
	if err := rpc.Serve(ctx, l, mux); err != nil {
		n.log.Error("socket closed", slog.Any("error", err))
	}
}
