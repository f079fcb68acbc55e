package members

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/rpc"
)

// silentWait is how long a server may take to answer that has not answered lately.
const silentWait = 250 * time.Millisecond

// List asks every server about itself, concurrently; a server that does not answer is unreachable.
func (m *Members) List(ctx context.Context) []*headroomv1.Member {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	all, lately := m.Roster.Seats(), m.Facts.since(Lately())
	out := make([]*headroomv1.Member, len(all))
	var wg sync.WaitGroup
	for i, peer := range all {
		if peer.ID == m.Roster.self.ID {
			out[i] = m.Myself()
			continue
		}
		wg.Go(func() {
			ctx := ctx
			if _, fresh := lately[peer.ID]; !fresh && m.leads() {
				short, cancel := context.WithTimeout(ctx, silentWait)
				defer cancel()
				ctx = short
			}
			out[i] = ask(ctx, m.Facts.peers, peer.Server)
			out[i].Voter = peer.Voter
		})
	}
	wg.Wait()
	return out
}

func ask(ctx context.Context, via rpc.Peers, peer Server) *headroomv1.Member {
	client := headroomv1connect.NewClusterServiceClient(via.HTTP(), via.URL(peer.RPC), via.Options()...)
	r, err := client.ListMembers(ctx, connect.NewRequest(&headroomv1.ListMembersRequest{Self: true}))
	if err != nil || len(r.Msg.GetMembers()) != 1 {
		return &headroomv1.Member{Id: peer.ID, RaftAddress: peer.Raft, RpcAddress: peer.RPC, Role: roleAway}
	}
	return r.Msg.GetMembers()[0]
}

// Myself returns this server's own row of the list.
func (m *Members) Myself() *headroomv1.Member {
	self := m.Roster.self
	clock := m.Facts.wall().UnixMicro()
	out := &headroomv1.Member{ClockUs: &clock, Id: self.ID, RaftAddress: self.Raft, RpcAddress: self.RPC, Role: m.Roster.role(), Version: cli.Version}
	for _, peer := range m.Roster.group.Members() {
		switch {
		case peer.Self:
			out.Commit, out.Voter = &peer.CommitIndex, peer.Voter
		case peer.Leader && !peer.Contact.IsZero():
			out.LastContactMs = new(time.Since(peer.Contact).Milliseconds())
		}
	}
	return out
}
