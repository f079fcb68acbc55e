package master

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/rpc"
	"headroom/jobs/dispatch"
	"headroom/units"
)

const (
	// capsEvery is how often the caps are read from the coordinators, capsWait the deadline of each read.
	capsEvery = time.Second
	capsWait  = 3 * time.Second
)

// every does something at once and each so long after, until ctx ends.
func every(ctx context.Context, d time.Duration, do func()) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// askPeer asks the group's other master who is active, until ctx ends.
func (m *Master) askPeer(ctx context.Context) error {
	peer := headroomv1connect.NewMasterServiceClient(m.cfg.Peers.HTTP(), m.cfg.Peers.URL(m.cfg.Peer), m.cfg.Peers.Options()...)
	answers := true
	return every(ctx, askEvery, func() {
		wait, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		r, err := peer.GetGroup(wait, connect.NewRequest(&headroomv1.GetGroupRequest{}))
		if err == nil && r.Msg.GetState().GetGroup() != m.cfg.Group {
			err = fmt.Errorf("%s is the master of %q", m.cfg.Peer, r.Msg.GetState().GetGroup())
		}
		if err == nil && r.Msg.GetState().GetMaster() == m.cfg.Name {
			err = fmt.Errorf("%s also has the name %s; give each master a unique name", m.cfg.Peer, m.cfg.Name)
		}
		if answers != (err == nil) && ctx.Err() == nil {
			answers = err == nil
			m.cfg.Logger.Info("peer master changed state", slog.String("peer", m.cfg.Peer), slog.Bool("answers", answers), slog.Any("error", err))
		}
		if err != nil {
			return
		}
		word := wordOf(r.Msg)
		_ = m.post(ctx, func(g *group) { g.hearPeer(time.Now(), word) }) // it ends with ctx
	})
}

func wordOf(v *headroomv1.GetGroupResponse) peerWord {
	s := v.GetState()
	word := peerWord{name: s.GetMaster(), active: s.GetActive(), activeFor: time.Duration(s.GetActiveMs()) * time.Millisecond}
	for _, w := range v.GetWorkers() {
		word.nodes = append(word.nodes, w.GetNode())
	}
	return word
}

// learnCaps reads the caps of the group's nodes from the coordinators, until ctx ends.
func (m *Master) learnCaps(ctx context.Context) error {
	failed := false
	at := slices.Clone(m.cfg.Coordinators)
	return every(ctx, capsEvery, func() {
		wait, cancel := context.WithTimeout(ctx, capsWait)
		defer cancel()
		var caps map[string]dispatch.Cap
		address, err := rpc.Search{Addrs: at, Patience: capsWait, Refused: rpc.RefusedWait, Probe: m.cfg.Peers.Probe}.ToLeader(wait, func(addr string) error {
			var err error
			caps, err = m.capsAt(wait, addr)
			return err
		})
		if err != nil {
			if !failed && ctx.Err() == nil {
				m.cfg.Logger.Warn("caps not updated; keeping the last known ones", slog.Any("error", rpc.AsCLI(err, "list nodes", address)))
			}
			failed = true
			at = append(at[1:], at[0]) // another one, next time
			return
		}
		failed = false
		at = append([]string{address}, m.cfg.Coordinators...)         // the leader is asked first
		_ = m.post(ctx, func(g *group) { g.learn(time.Now(), caps) }) // it ends with ctx
	})
}

func (m *Master) capsAt(ctx context.Context, addr string) (map[string]dispatch.Cap, error) {
	c := headroomv1connect.NewClusterServiceClient(m.cfg.Peers.HTTP(), m.cfg.Peers.URL(addr), m.cfg.Peers.Options()...)
	r, err := c.ListNodes(ctx, connect.NewRequest(&headroomv1.ListNodesRequest{Domain: m.cfg.Group}))
	if err != nil {
		return nil, err
	}
	caps := make(map[string]dispatch.Cap, len(r.Msg.GetNodes()))
	for _, n := range r.Msg.GetNodes() {
		caps[n.GetName()] = dispatch.Cap{Cap: units.Power(n.GetTargetUw()), Floor: units.Power(n.GetFloorUw()), Max: units.Power(n.GetMaxUw())}
	}
	return caps, nil
}
