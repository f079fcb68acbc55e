package members

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// Roles of a server in lists.
const (
	roleLeader   = "leader"
	roleFollower = "follower"
	roleWaiting  = "waiting"     // it has no log and waits to be added
	roleAway     = "unreachable" // it does not answer
)

const (
	// wait is the deadline of a server's answer about itself.
	wait = 700 * time.Millisecond
)

// Facts has what servers report about themselves. It is safe for concurrent use.
type Facts struct {
	roster *Roster
	peers  rpc.Peers
	wall   func() time.Time
	began  time.Time // when this process began
	// gossip adds the facts about gossip.
	gossip func(*headroomv1.ServerFacts)

	mu    sync.Mutex
	facts map[string]fact     // the last report of each
	words map[string]farewell // the reasons of those that exited
}

// fact is what a server reported about itself.
type fact struct {
	said   *headroomv1.ServerFacts
	at     time.Time
	offset time.Duration // its wall clock minus this server's
}

// farewell is the reason that a server sent before it exited.
type farewell struct {
	text string
	at   time.Time
}

// Self returns this server's own facts.
func (f *Facts) Self() *headroomv1.ServerFacts {
	self := f.roster.self
	disk := f.roster.group.Disk()
	out := &headroomv1.ServerFacts{
		Id: self.ID, RpcAddress: self.RPC, RaftAddress: self.Raft, Version: cli.Version, Role: f.roster.role(),
		RulesNewest: uint32(f.roster.machine.Rules), RulesOldest: ledger.OldestRules, ClockUs: f.wall().UnixMicro(),
		UptimeMs: max(1, time.Since(f.began).Milliseconds()), Members: f.roster.names(), DiskFreeBytes: disk.Free, SlowestWriteUs: disk.Slowest.Microseconds(), WriteDeadlineUs: disk.Deadline.Microseconds(),
	}
	f.gossip(out)
	f.roster.machine.View(func(st *ledger.State) {
		out.Incarnation, out.Term, out.Revision = max(1, st.Epoch.Incarnation), st.Epoch.Term, st.Revision
		if tree := st.Tree(); tree != nil {
			out.Cluster = tree.Root().Name
		}
	})
	for _, m := range f.roster.group.Members() {
		switch {
		case m.Self:
			out.LastIndex, out.Commit = m.LastIndex, m.CommitIndex
		case m.Leader && !m.Contact.IsZero():
			out.LeaderContactMs = new(time.Since(m.Contact).Milliseconds())
		}
	}
	return out
}

// KeepLastWords stores the reason that another server sent before it exited.
func (f *Facts) KeepLastWords(id, text string) (kept string) {
	kept = text[:min(len(text), longestWords)]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.words[id] = farewell{text: kept, at: time.Now()}
	return kept
}

// longestWords bounds the stored reason, in bytes.
const longestWords = 500

// LastWait bounds how long a server that exits tries to send the reason.
const LastWait = 300 * time.Millisecond

// SayLastWords sends the other servers the reason why this server exits. The network may work
// although the disk does not.
func (f *Facts) SayLastWords(why error) {
	ctx, cancel := context.WithTimeout(context.Background(), LastWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, x := range f.roster.Seats() {
		if x.ID != f.roster.self.ID && x.RPC != "" {
			wg.Go(func() {
				_, _ = f.client(x.RPC).LastWords(ctx, connect.NewRequest(&headroomv1.LastWordsRequest{Id: f.roster.self.ID, Text: view.Plain(why)}))
			})
		}
	}
	wg.Wait()
}

// client returns a client of another server's MemberService.
func (f *Facts) client(addr string) headroomv1connect.MemberServiceClient {
	return clientOf(f.peers, addr)
}

func clientOf(peers rpc.Peers, addr string) headroomv1connect.MemberServiceClient {
	return headroomv1connect.NewMemberServiceClient(peers.HTTP(), peers.URL(addr), peers.Options()...)
}

// Gather asks every other server at addrs about itself and about this
// one. A server that does not answer within wait is missing.
func (f *Facts) Gather(ctx context.Context, addrs []string) []*headroomv1.DescribeServerResponse {
	return askAll(ctx, f.peers, f.roster.self.ID, addrs, f.note)
}

// askAll asks the servers at addrs about themselves and about one server; each answer is noted.
func askAll(
	ctx context.Context, peers rpc.Peers, about string, addrs []string, note func(said *headroomv1.ServerFacts, sent time.Time),
) []*headroomv1.DescribeServerResponse {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answers := make([]*headroomv1.DescribeServerResponse, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			sent := time.Now()
			r, err := clientOf(peers, addr).DescribeServer(ctx, connect.NewRequest(&headroomv1.DescribeServerRequest{About: about}))
			if err != nil {
				return
			}
			answers[i] = r.Msg
			note(r.Msg.GetServer(), sent)
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(a *headroomv1.DescribeServerResponse) bool { return a == nil })
}

// note stores a server's report, and its clock offset from the middle of the call.
func (f *Facts) note(said *headroomv1.ServerFacts, sent time.Time) {
	now := time.Now()
	middle := f.wall().Add(-now.Sub(sent) / 2)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.facts[said.GetId()] = fact{said: said, at: now, offset: time.UnixMicro(said.GetClockUs()).Sub(middle)}
	if said.GetRole() != roleWaiting {
		delete(f.words, said.GetId())
	}
}

// freshFor is how long a server's report about itself is valid.
const freshFor = 2*keepInterval + wait

// Lately returns the time since which reports are still valid.
func Lately() time.Time { return time.Now().Add(-freshFor) }

// since returns the reports since a moment of the other servers, and of this
// server itself.
func (f *Facts) since(moment time.Time) map[string]fact {
	out := map[string]fact{f.roster.self.ID: {said: f.Self(), at: time.Now()}}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, x := range f.facts {
		if !x.at.Before(moment) && id != f.roster.self.ID {
			out[id] = x
		}
	}
	return out
}

// inquire requests the facts of one server.
func (f *Facts) inquire(ctx context.Context, addr string) (*headroomv1.ServerFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	sent := time.Now()
	r, err := f.client(addr).DescribeServer(ctx, connect.NewRequest(&headroomv1.DescribeServerRequest{}))
	if err != nil {
		return nil, err
	}
	f.note(r.Msg.GetServer(), sent)
	return r.Msg.GetServer(), nil
}

// Belongs reports whether a server is a member. A server that waits to be
// added knows no members and accepts every server with a certificate. One that was away
// may not know the newest members, and one of them may be the leader: then it relies on the
// members that it knows.
func (f *Facts) Belongs(id string) bool {
	if len(f.roster.group.Members()) == 0 {
		return true
	}
	own := f.roster.names()
	if slices.Contains(own, id) {
		return true
	}
	return f.vouched(id, own, f.roster.Incarnation())
}

// vouched reports whether one of the known servers has reported that another is a member, in this
// incarnation or a later one.
func (f *Facts) vouched(id string, known []string, incarnation uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(known, func(by string) bool {
		x, ok := f.facts[by]
		return ok && slices.Contains(x.said.GetMembers(), id) && x.said.GetIncarnation() >= incarnation
	})
}

// FoundedElsewhere reports whether a server at one of addrs belongs to a founded cluster.
func FoundedElsewhere(ctx context.Context, peers rpc.Peers, about string, addrs []string) bool {
	answers := askAll(ctx, peers, about, addrs, func(*headroomv1.ServerFacts, time.Time) {})
	return slices.ContainsFunc(answers, func(a *headroomv1.DescribeServerResponse) bool { return a.GetServer().GetCluster() != "" })
}

// lastWords returns the reasons of the servers that exited.
func (f *Facts) lastWords() map[string]farewell {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.words)
}
