// Claims: a command finds the leader once, however many requests it makes; without one it says that it waits,
// and then names every server with its reason, and for a cut the brake, which needs no leader.
package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// standIn answers a status, or that it does not lead, and counts.
type standIn struct {
	headroomv1connect.UnimplementedClusterServiceHandler
	leads   bool
	asked   *atomic.Int64
	members []*headroomv1.Member
}

func (s standIn) ListMembers(context.Context, *connect.Request[headroomv1.ListMembersRequest]) (*connect.Response[headroomv1.ListMembersResponse], error) {
	return connect.NewResponse(&headroomv1.ListMembersResponse{Members: s.members}), nil
}

func (s standIn) GetStatus(context.Context, *connect.Request[headroomv1.GetStatusRequest]) (*connect.Response[headroomv1.GetStatusResponse], error) {
	s.asked.Add(1)
	if !s.leads {
		return nil, rpc.NotLeader("", "")
	}
	return connect.NewResponse(&headroomv1.GetStatusResponse{}), nil
}

// stand answers at the returned address until the test ends.
func stand(t *testing.T, s standIn) (addr string) {
	t.Helper()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, h := headroomv1connect.NewClusterServiceHandler(s)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, l, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// A server that is away costs seconds; a budget that is cut makes three requests.
func TestLeaderIsFoundOnce(t *testing.T) {
	t.Parallel()
	var follower, leader atomic.Int64
	o := &operator{patience: time.Minute, addr: stand(t, standIn{asked: &follower}) + "," + stand(t, standIn{leads: true, asked: &leader})}
	for range 3 {
		if _, err := call(t.Context(), o, "status", &headroomv1.GetStatusRequest{}, headroomv1connect.ClusterServiceClient.GetStatus); err != nil {
			t.Fatal(err)
		}
	}
	if follower.Load() != 1 || leader.Load() != 3 {
		t.Errorf("the follower was asked %d times and the leader %d times, want 1 and 3", follower.Load(), leader.Load())
	}
	o.peers.HTTP().(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

func TestNoLeaderNamesTheServers(t *testing.T) {
	t.Parallel()
	l, err := rpc.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	var notes bytes.Buffer
	o := &operator{patience: time.Second, stderr: func() io.Writer { return &notes }, addr: stand(t, standIn{asked: &asked, members: []*headroomv1.Member{
		{Id: "c1", Role: "follower"}, {Id: "c2", Role: roleAway, RpcAddress: dead}, {Id: "c3", Role: roleAway, RpcAddress: dead},
	}})}
	for doing, brake := range map[string]bool{"status": false, "budget set": true, "node drain": true, "sprint cancel": true, "brake lift": false, "node resume": false} {
		x := &operator{addr: o.addr}
		_, err = call(t.Context(), x, doing, &headroomv1.GetStatusRequest{}, headroomv1connect.ClusterServiceClient.GetStatus)
		if e, ok := errors.AsType[*cli.Error](err); !ok || strings.Contains(e.Hint, "coordinator brake set") != brake {
			t.Errorf("%s: %v, hint %q", doing, err, e.Hint)
		}
		x.peers.HTTP().(interface{ CloseIdleConnections() }).CloseIdleConnections()
	}
	_, err = call(t.Context(), o, "status", &headroomv1.GetStatusRequest{}, headroomv1connect.ClusterServiceClient.GetStatus)
	e, ok := errors.AsType[*cli.Error](err)
	if want := "status: no leader: c1 follower; c2 " + dead + ", c3 " + dead + " connection refused"; !ok || e.Message != want || e.Exit != cli.ExitUnreachable {
		t.Errorf("got %v, want %s", err, want)
	}
	if want := "status: no leader, waiting up to 1s for an election\n"; notes.String() != want {
		t.Errorf("noted %q, want %q", notes.String(), want)
	}
	o.peers.HTTP().(interface{ CloseIdleConnections() }).CloseIdleConnections()
}
