package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/access"
	"headroom/coordinator/leading"
	"headroom/coordinator/streams"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/units"
)

// nodeService serves the powerd of every node.
type nodeService struct{ *server }

type exchange = connect.BidiStream[headroomv1.NodeMessage, headroomv1.CoordinatorMessage]

// Exchange implements headroomv1connect.NodeServiceHandler: one stream of one node.
func (n nodeService) Exchange(ctx context.Context, x *exchange) error {
	first, err := x.Receive()
	if err != nil {
		return ended(err)
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.Refuse(connect.CodeInvalidArgument, "no-hello", cli.ExitUsage, "the first message of a node must be Hello", "use a powerd of this version")
	}
	if err := access.OwnNode(ctx, hello.GetNode()); err != nil {
		return err
	}
	s, err := n.welcome(hello, rpc.CallerOf(ctx).Ends)
	if err != nil {
		return err
	}
	defer n.streams.Nodes.Close(s)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer cancel()
		deliver(ctx, x, s, n.guard.Revoked)
	}()
	err = n.receive(ctx, x, hello, s)
	cancel()
	<-sent
	return err
}

// welcome opens the stream of a node whose certificate ends at that time, or returns why it is refused.
func (n nodeService) welcome(hello *headroomv1.Hello, ends time.Time) (*streams.Node, error) {
	who := sightingOf(hello)
	if err := n.refusal(who); err != nil {
		return nil, err
	}
	s, by := n.streams.Nodes.Open(streams.Origin{Node: who.Node, Machine: who.MachineID, Boot: hello.GetBootId(), Process: who.Process, CertificateEnds: ends})
	if s == nil {
		n.logger.Warn("node refused", slog.String("node", who.Node), slog.String("machine", who.MachineID), slog.String("name_used_by", by))
		return nil, nameTaken(who.Node, by)
	}
	return s, nil
}

// deliver sends the queued messages, and the denials on request, until the stream or the context ends.
func deliver(ctx context.Context, x interface {
	Send(m *headroomv1.CoordinatorMessage) error
}, s *streams.Node, revoked *secure.Denials,
) {
	for {
		var out []*headroomv1.CoordinatorMessage
		select {
		case <-ctx.Done():
			return
		case m := <-s.Box():
			out = append(out, m)
		case <-s.Denied():
			for _, part := range rpc.DenialMessages(revoked.All(), secure.Server) {
				out = append(out, &headroomv1.CoordinatorMessage{Message: &headroomv1.CoordinatorMessage_Denied{Denied: part}})
			}
		}
		for _, m := range out {
			if x.Send(m) != nil {
				return
			}
		}
	}
}

// receive handles the heartbeats of one stream until it ends.
func (n nodeService) receive(ctx context.Context, x *exchange, hello *headroomv1.Hello, s *streams.Node) error {
	for {
		m, err := x.Receive()
		if err != nil {
			return ended(err)
		}
		if err := n.heartbeat(ctx, s, hello, m.GetHeartbeat()); err != nil {
			return ended(err)
		}
	}
}

// heartbeat passes one heartbeat to the loop; a follower drops it.
func (n nodeService) heartbeat(ctx context.Context, s *streams.Node, hello *headroomv1.Hello, hb *headroomv1.Heartbeat) error {
	if !n.streams.Nodes.Touch(s) {
		return rpc.Refuse(connect.CodeAborted, "replaced", cli.ExitConflict, "another powerd process of node "+hello.GetNode()+" has connected since",
			"one powerd runs on a node")
	}
	if i := hb.GetHighest().GetEpoch().GetIncarnation(); i > ledger.MaxIncarnation { // a restored cluster could never choose a higher one
		return rpc.Refuse(connect.CodeInvalidArgument, "bad-report", cli.ExitUsage,
			fmt.Sprintf("node %s reports a grant of incarnation %d, which is impossible", hello.GetNode(), i), "the file in its state directory is damaged; stop powerd, move the file aside, start powerd")
	}
	l := n.requests.loop.Load()
	if hb == nil || l == nil {
		return nil
	}
	r := reportOf(sightingOf(hello), hb)
	r.Brake = n.braking.Told(ctx, r.Node, hb)
	r.Rung, r.Version, r.Boot = hello.GetRung(), hello.GetVersion(), hello.GetBootId()
	if err := l.Hear(ctx, r); err != nil && !errors.Is(err, leading.ErrDeposed) {
		return err
	}
	return nil
}

// ended maps the normal ends of a stream to no error.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || connect.CodeOf(err) == connect.CodeCanceled {
		return nil
	}
	return err
}

// refusal checks a node's declaration against the committed state.
func (n nodeService) refusal(x ledger.Sighting) error {
	if err := x.Validate(); err != nil {
		return rpc.Refuse(connect.CodeInvalidArgument, "bad-declaration", cli.ExitUsage, strings.TrimPrefix(err.Error(), "ledger: "),
			"correct the power section of this node's powerd.yaml")
	}
	var err error
	n.machine.View(func(s *ledger.State) {
		known, ok := s.Nodes[x.Node]
		switch {
		case ok && known.MachineID != x.MachineID:
			err = nameTaken(x.Node, "machine "+known.MachineID)
		case !ok && len(s.Domains) > 0 && !hasDomain(s, x.Domain):
			err = rpc.Refuse(connect.CodeInvalidArgument, "unknown-domain", cli.ExitUsage,
				fmt.Sprintf("node %s: domain %q is not in the power tree", x.Node, x.Domain),
				"domain in powerd.yaml must be one of "+strings.Join(slices.Sorted(maps.Keys(s.Domains)), ", "))
		}
	})
	return err
}

func hasDomain(s *ledger.State, name string) bool {
	_, ok := s.Domains[name]
	return ok
}

func nameTaken(node, by string) error {
	return rpc.Refuse(connect.CodeAlreadyExists, "name-taken", cli.ExitConflict,
		fmt.Sprintf("node name %s is used by %s", node, by),
		"use another node name in powerd.yaml; a machine that replaces the other one must keep its /etc/machine-id")
}

func sightingOf(h *headroomv1.Hello) ledger.Sighting {
	return ledger.Sighting{
		Node: h.GetNode(), MachineID: h.GetMachineId(), Process: h.GetProcessId(), Domain: h.GetDomain(),
		Rated: units.Power(h.GetRatedUw()), Floor: units.Power(h.GetFloorUw()), Max: units.Power(h.GetMaxUw()),
		FailSafe: units.Power(h.GetFailSafeUw()), Weight: h.GetWeight(), Controlled: h.GetControlled(),
	}
}

func reportOf(who ledger.Sighting, hb *headroomv1.Heartbeat) ledger.Report {
	h := hb.GetHolding()
	r := ledger.Report{
		Sighting: who, Number: hb.GetNumber(), Highest: wire.Stamp(hb.GetHighest()),
		Stored: units.Power(h.GetFailSafeUw()), Power: power(hb.PowerUw), Demand: power(hb.DemandUw), Limited: hb.LimitedRatio,
	}
	r.Energy, r.EnergyTime, r.EnergyFrom = energyOf(hb.EnergyUj), milliseconds(hb.GetEnergyMs()), sourceOf(hb.GetEnergyFrom())
	r.Sprint = h.GetSprintId()
	for _, e := range h.GetEnded() {
		r.Ended = append(r.Ended, ledger.SprintSpent{ID: e.GetId(), Spent: energyOf(e.SpentUj)})
	}
	if h != nil && h.EffectiveUw != nil && *h.EffectiveUw > 0 {
		r.Effective, r.EffectiveKnown = units.Power(*h.EffectiveUw), true
	}
	for _, i := range hb.GetHealth() {
		r.Health = append(r.Health, ledger.Health{Code: i.GetCode(), Severity: i.GetSeverity(), Text: i.GetText(), Hint: i.GetHint()})
	}
	return r
}

// Power returns an optional power of a message: nil is unknown, and so is an impossible value.
func power(uw *int64) *units.Power {
	if uw == nil || *uw < 0 {
		return nil
	}
	return new(units.Power(*uw))
}

// energyOf returns an optional energy of a message: nil is unknown, and so is an impossible value.
func energyOf(uj *int64) *units.Energy {
	if uj == nil || *uj < 0 {
		return nil
	}
	return new(units.Energy(*uj))
}

// Release implements headroomv1connect.NodeServiceHandler.
func (n nodeService) Release(ctx context.Context, r *connect.Request[headroomv1.ReleaseRequest]) (*connect.Response[headroomv1.ReleaseResponse], error) {
	if err := access.OwnNode(ctx, r.Msg.GetNode()); err != nil {
		return nil, err
	}
	c := command(ctx, r.Msg, "powerd/"+r.Msg.GetNode())
	c.Release = &ledger.Release{Node: r.Msg.GetNode(), MachineID: r.Msg.GetMachineId()}
	res, err := n.requests.change(ctx, c)
	if err != nil {
		return nil, err
	}
	var charge units.Power
	n.machine.View(func(s *ledger.State) { charge = s.Nodes[r.Msg.GetNode()].Charge() })
	return connect.NewResponse(&headroomv1.ReleaseResponse{Revision: res.Revision, ChargeUw: int64(charge)}), nil
}

// milliseconds returns a time of a message; an impossible value is 0.
func milliseconds(ms int64) time.Duration {
	const most = int64(100 * 365 * 24 * time.Hour / time.Millisecond)
	return time.Duration(min(max(0, ms), most)) * time.Millisecond
}

// sourceOf returns a node's energy source, "" if it is not a known one.
func sourceOf(from string) string {
	if from == "packages" || from == "bmc" {
		return from
	}
	return ""
}
