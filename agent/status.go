package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/rapl"
	"headroom/units"
)

// treeWords is what kind of tree a node stands on: the emulated ones are told
// from the kernel's by their root.
func (n *node) treeWords() string {
	if n.cfg.Root == "/" {
		return "kernel"
	}
	return "files below " + n.cfg.Root
}

// publish makes the node's state visible to other goroutines.
func (n *node) publish(now lease.Instant) {
	s := &headroomv1.GetAgentStatusResponse{
		Node: n.cfg.Node, Version: version, Domain: n.cfg.Domain, UptimeMs: (now.Boot - n.began).Milliseconds(),
		Tree: n.treeWords(), Rung: n.machine.rung, Enforce: n.cfg.Enforce, Holding: n.holdingNow(), Health: n.health.list(),
	}
	if l := n.leader(); l != nil {
		s.Leader = l.name
	}
	if p, ok := n.wall.value(); ok {
		s.PowerUw = (*int64)(&p)
	}
	if p, ok := n.demand.Watts(now.Boot, n.cfg.Power.Floor, n.cfg.Power.Max); ok {
		s.DemandUw = (*int64)(&p)
	}
	if r, ok := n.demand.LimitedRatio(now.Boot); ok {
		s.LimitedRatio = &r
	}
	if n.journal != nil {
		s.Saved, s.SavedUs = uint32(len(n.journal.Controls)), n.journal.SavedUs
	}
	s.Zones = n.zones()
	n.status.Store(s)
}

// zones are the rows of status: packages with their limits, then what is only read.
func (n *node) zones() []*headroomv1.ZoneStatus {
	if n.machine.tree == nil {
		return nil
	}
	rows := make([]*headroomv1.ZoneStatus, 0, len(n.machine.tree.Zones()))
	for _, z := range n.machine.tree.Zones() {
		row := &headroomv1.ZoneStatus{Zone: z.Label, Kind: z.Kind.String(), State: "read-only"}
		for _, s := range n.machine.sockets {
			if s.zone == z {
				n.socketRow(row, s)
			}
		}
		for _, d := range n.machine.drams {
			if d.zone == z && d.power.Known {
				row.PowerUw = new(int64(d.power.Power))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (n *node) socketRow(row *headroomv1.ZoneStatus, s *socket) {
	if s.power.Known {
		row.PowerUw = new(int64(s.power.Power))
	}
	if s.readable {
		row.EffectiveUw = new(int64(s.effective.long))
	}
	if s.limiter == nil || n.mode != holding {
		return
	}
	row.RequestedUw, row.WrittenUw = new(int64(s.requested.long)), new(int64(s.written.long))
	if w, err := s.limiter.Window(rapl.LongTerm); err == nil {
		row.WindowUs = new(w.Microseconds())
	}
	switch {
	case !s.readable:
		row.State = "unknown"
	case s.drifted:
		row.State = "drift"
	case n.law.Limited:
		row.State = "limited"
	default:
		row.State = "ok"
	}
}

// front answers AgentService on the unix socket.
type front struct {
	headroomv1connect.UnimplementedAgentServiceHandler

	n *node
}

// GetAgentStatus is the state as of the last heartbeat or change.
func (f front) GetAgentStatus(context.Context, *connect.Request[headroomv1.GetAgentStatusRequest]) (
	*connect.Response[headroomv1.GetAgentStatusResponse], error,
) {
	s := proto.CloneOf(f.n.status.Load())
	now := instant().Boot
	s.UptimeMs = (now - f.n.began).Milliseconds()
	if end := time.Duration(f.n.leaseEnd.Load()); end > now {
		s.LeaseMs = new((end - now).Milliseconds())
	}
	return connect.NewResponse(s), nil
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
		return connect.NewResponse(&headroomv1.RestoreLimitsResponse{Restored: r.out.restored, Kept: r.out.kept}), nil
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

// watts is an optional power on a screen.
func watts(uw *int64) string {
	return cli.Opt(uw, func(v int64) string { return cli.Watts(units.Power(v)) })
}
