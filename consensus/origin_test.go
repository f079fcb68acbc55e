// Claim: over a real network, a server hears nothing from another origin, nor from none: no
// heartbeat, entry, vote or order to stand for election, whatever term it names. The transport in
// memory cannot show it: it hands heartbeats over like every other message.
package consensus

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestStrangersAreNotHeardOverTheNetwork(t *testing.T) {
	t.Parallel()
	cfg := diskConfig(t, 1)[0]
	cfg.Timing = quick()
	g := mustOpen(t, cfg, &tape{})
	until(t, "it leads", func() bool { return leading(g) != nil })
	trans, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trans.Close() }()
	to := raft.ServerAddress(cfg.own().Address)
	term := g.raft.CurrentTerm()
	for name, origin := range map[string]string{"another origin": "#0123456789abcdef", "no origin": ""} {
		h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("c9"), Addr: []byte("127.0.0.1:9" + origin)}
		for message, send := range map[string]func() error{
			"heartbeat": func() error {
				return trans.AppendEntries("c1", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: 999}, &raft.AppendEntriesResponse{})
			},
			"entry": func() error {
				return trans.AppendEntries("c1", to, &raft.AppendEntriesRequest{
					RPCHeader: h, Term: 999, LeaderCommitIndex: 1, Entries: []*raft.Log{{Index: 1, Term: 999}},
				}, &raft.AppendEntriesResponse{})
			},
			"request for a vote": func() error {
				return trans.RequestVote("c1", to, &raft.RequestVoteRequest{RPCHeader: h, Term: 999, LastLogIndex: 1e6, LastLogTerm: 998}, &raft.RequestVoteResponse{})
			},
			"order to stand": func() error {
				return trans.TimeoutNow("c1", to, &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
			},
		} {
			if err := send(); err == nil || err.Error() != errForeignOrigin.Error() {
				t.Errorf("%s from %s: %v", message, name, err)
			}
		}
	}
	if got := g.raft.CurrentTerm(); got != term || leading(g) == nil {
		t.Errorf("in term %d after strangers spoke, was in %d", got, term)
	}
	// The same messages of its own origin are heard: it is the origin that decides.
	h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("c9"), Addr: []byte("127.0.0.1:9#" + g.trans.from())}
	if err := trans.AppendEntries("c1", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: 1}, &raft.AppendEntriesResponse{}); err != nil {
		t.Errorf("a heartbeat of its own origin: %v", err)
	}
}
