package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/agent/streams"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// askWait bounds the call to one server.
const askWait = 2 * time.Second

// request requests this node's release from the leader.
func (r *releaser) request(ctx context.Context, addrs []string, req *headroomv1.ReleaseRequest) error {
	peers, err := r.cfg.Peers() // read again: the loop owns its own
	if err != nil {
		return err
	}
	defer peers.Close()
	return askRelease(ctx, peers, addrs, req)
}

// askRelease requests the release of a node from the leader. It tries addrs in turn and
// follows redirects. The error is a *cli.Error with exit code 6: refused, with the leader's
// numbers, or no leader.
func askRelease(ctx context.Context, peers rpc.Peers, addrs []string, req *headroomv1.ReleaseRequest) error {
	tried := map[string]bool{}
	queue := slices.Clone(addrs)
	var last error
	for len(queue) > 0 && len(tried) < streams.Most {
		addr := queue[0]
		queue = queue[1:]
		if tried[addr] {
			continue
		}
		tried[addr] = true
		err := release(ctx, peers, addr, req)
		if err == nil {
			return nil
		}
		if leader, ok := rpc.LeaderOf(err); ok {
			if leader != "" {
				queue = slices.Insert(queue, 0, leader)
			}
			continue
		}
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return refusedRelease(err, addr)
		}
		last = err
	}
	return noLeader(last)
}

func release(ctx context.Context, peers rpc.Peers, addr string, req *headroomv1.ReleaseRequest) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	node := headroomv1connect.NewNodeServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
	_, err := node.Release(ctx, connect.NewRequest(req))
	return err
}

// KnownCoordinators returns the addresses of coordinators without a running powerd: those of
// the configuration, and those that powerd stored last.
func KnownCoordinators(cfg config.Config) []string {
	addrs := slices.Clone(cfg.Coordinators)
	if data, err := (statedir.OS{Dir: cfg.StateDir}).Read(statedir.CoordinatorsFile); err == nil {
		var c addressCache
		if json.Unmarshal(data, &c) == nil {
			addrs = append(addrs, c.Addresses...)
		}
	}
	return addrs[:min(len(addrs), streams.Most)]
}

func refusedRelease(err error, addr string) error {
	e := rpc.AsCLI(err, "release", addr)
	e.Exit = cli.ExitRefused
	if e.Hint == "" {
		e.Hint = "make room in the budget first, or put the controls back anyway: powerd limit restore --force"
	}
	return e
}

func noLeader(err error) error {
	return &cli.Error{
		Code: "no-leader", Exit: cli.ExitRefused, Err: errors.Join(errNoLeader, err),
		Message: "release failed: no leader reachable; the fail-safe cap stays written",
		Hint:    "retry when coordinator status shows a leader, or use powerd limit restore --force",
	}
}
