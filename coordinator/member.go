package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ledger"
)

// memberService serves what concerns the servers of the group.
//
// Which servers there are to be stands in the ledger, with their addresses and
// whether they are to vote or to leave; raft has a list of its own, of those
// there are. The leader makes raft's list like the ledger's, one step at a time.
// So a change that has begun is finished by whoever leads next.
type memberService struct{ *server }

// Roles of a server in lists.
const (
	roleLeader   = "leader"
	roleFollower = "follower"
	roleWaiting  = "waiting"     // it has no log and waits to be added
	roleAway     = "unreachable" // it does not answer
)

const (
	// keepInterval is how often a server looks after the membership.
	keepInterval = 2 * time.Second
	// lostAfter is how long a server may hear no leader before it asks the others
	// whether it still belongs to the group. An election is over by then.
	lostAfter = 5 * time.Second
	// stepsAtOnce bounds the steps of one look.
	stepsAtOnce = 16
)

// keeper is what a server remembers of the others.
type keeper struct {
	kick chan struct{} // something is to be done now

	mu    sync.Mutex
	facts map[string]fact     // what each said of itself last
	words map[string]farewell // last words of those that ended
	stuck map[string]error    // steps that could not be taken, by server
	lost  time.Time           // since when no leader is known; zero while one is
	said  string              // what the log was told last about waiting
}

// fact is what a server said of itself.
type fact struct {
	said   *headroomv1.ServerFacts
	at     time.Time
	offset time.Duration // its wall clock less this server's
}

// farewell are the last words of a server that ended itself.
type farewell struct {
	text string
	at   time.Time
}

func newKeeper() *keeper {
	return &keeper{kick: make(chan struct{}, 1), facts: map[string]fact{}, words: map[string]farewell{}, stuck: map[string]error{}}
}

// hurry makes the keeper look at once.
func (k *keeper) hurry() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// seat is a server of the group, or one that is to be.
type seat struct {
	ServerConfig
	voter bool
	in    bool // raft has it
}

// roster are the servers of the group and those that are to join it, by id. The
// ledger knows their addresses; before it does, the configuration.
func (s *server) roster() []seat {
	members := s.group.Members()
	if len(members) == 0 { // this server waits to be added
		self, _ := s.cfg.Self()
		return []seat{{ServerConfig: self}}
	}
	known := map[string]ledger.Server{}
	s.machine.View(func(st *ledger.State) { maps.Copy(known, st.Servers) })
	var out []seat
	for _, m := range members {
		x := seat{ServerConfig: ServerConfig{ID: m.ID, Raft: m.Address}, voter: m.Voter, in: true}
		configured, _ := s.cfg.server(m.ID)
		x.RPC = cmp.Or(known[m.ID].RPC, configured.RPC)
		out = append(out, x)
		delete(known, m.ID)
	}
	for _, x := range known {
		if !x.Leaving {
			out = append(out, seat{ServerConfig: ServerConfig{ID: x.ID, RPC: x.RPC, Raft: x.Raft}})
		}
	}
	slices.SortFunc(out, func(a, b seat) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// address is where a server is reached; empty where that is not known.
func (s *server) address(id string) ServerConfig {
	for _, x := range s.roster() {
		if x.ID == id && id != "" {
			return x.ServerConfig
		}
	}
	return ServerConfig{}
}

// role is what this server is now.
func (s *server) role() string {
	members := s.group.Members()
	if len(members) == 0 {
		return roleWaiting
	}
	if i := slices.IndexFunc(members, func(m consensus.Member) bool { return m.Self && m.Leader }); i >= 0 {
		return roleLeader
	}
	return roleFollower
}

// describe is what this server says of itself.
func (s *server) describe() *headroomv1.ServerFacts {
	self, _ := s.cfg.Self()
	disk := s.group.Disk()
	out := &headroomv1.ServerFacts{
		Id: self.ID, RpcAddress: self.RPC, RaftAddress: self.Raft, Version: Version, Role: s.role(),
		RulesNewest: uint32(s.machine.Rules), RulesOldest: ledger.OldestRules, ClockUs: s.wall().UnixMicro(),
		Members: s.memberNames(), DiskFreeBytes: disk.Free, SlowestWriteUs: disk.Slowest.Microseconds(), WriteDeadlineUs: disk.Deadline.Microseconds(),
	}
	s.describeGossip(out)
	s.machine.View(func(st *ledger.State) {
		out.Incarnation, out.Term, out.Revision = max(1, st.Epoch.Incarnation), st.Epoch.Term, st.Revision
		if tree := st.Tree(); tree != nil {
			out.Cluster = tree.Root().Name
		}
	})
	for _, m := range s.group.Members() {
		switch {
		case m.Self:
			out.LastIndex, out.Commit = m.LastIndex, m.CommitIndex
		case m.Leader && !m.Contact.IsZero():
			ms := time.Since(m.Contact).Milliseconds()
			out.LeaderContactMs = &ms
		}
	}
	return out
}

// DescribeServer implements headroomv1connect.MemberServiceHandler.
func (m memberService) DescribeServer(
	ctx context.Context, r *connect.Request[headroomv1.DescribeServerRequest],
) (*connect.Response[headroomv1.DescribeServerResponse], error) {
	out := &headroomv1.DescribeServerResponse{Server: m.describe()}
	if about := r.Msg.GetAbout(); about != "" && m.leading.Load() != nil && m.group.Verify(ctx) == nil {
		out.Standing = m.standing(about)
	}
	return connect.NewResponse(out), nil
}

// standing is whether a server belongs to the group, by this leader's word.
func (s *server) standing(id string) *headroomv1.Standing {
	if slices.ContainsFunc(s.group.Members(), func(m consensus.Member) bool { return m.ID == id }) {
		return &headroomv1.Standing{Member: true}
	}
	why := fmt.Sprintf("server %s is not a member of the group", id)
	s.machine.View(func(st *ledger.State) {
		if x, ok := st.Servers[id]; ok && !x.Leaving {
			why = fmt.Sprintf("server %s is to join the group without a log of its own", id)
			return
		}
		for _, e := range slices.Backward(st.Events) {
			if e.What == "server "+id+" removed" {
				why = fmt.Sprintf("server %s was removed at revision %d by %s", id, e.Revision, e.Actor)
				if e.Reason != "" {
					why += fmt.Sprintf(": %q", e.Reason)
				}
				return
			}
		}
	})
	return &headroomv1.Standing{Why: why}
}

// LastWords implements headroomv1connect.MemberServiceHandler.
func (m memberService) LastWords(
	ctx context.Context, r *connect.Request[headroomv1.LastWordsRequest],
) (*connect.Response[headroomv1.LastWordsResponse], error) {
	id := r.Msg.GetId()
	if who := access.CallerOf(ctx); who.Server && who.Name != (secure.Identity{Role: secure.Server, Name: id}).String() {
		return nil, rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied, fmt.Sprintf("%s speaks for server %s", who.Name, id),
			"a server tells its own end only")
	}
	if slices.ContainsFunc(m.roster(), func(x seat) bool { return x.ID == id }) {
		text := r.Msg.GetText()
		m.keeper.mu.Lock()
		m.keeper.words[id] = farewell{text: text[:min(len(text), longestWords)], at: time.Now()}
		m.keeper.mu.Unlock()
		m.logger.Warn("server ended itself", slog.String("server", id), slog.String("why", text[:min(len(text), longestWords)]))
	}
	return connect.NewResponse(&headroomv1.LastWordsResponse{}), nil
}

// longestWords bounds what is kept of another server's last words, bytes.
const longestWords = 500

// lastWait is how long a server that ends itself tries to say why.
const lastWait = 300 * time.Millisecond

// lastWords tells the others why this server ends. The network may work where the disk does not.
func (s *server) lastWords(why error) {
	if s.group == nil {
		return // it ends while it opens its log: nobody has heard of it yet
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, x := range s.roster() {
		if x.ID != s.cfg.ID && x.RPC != "" {
			wg.Go(func() {
				_, _ = s.member(x.RPC).LastWords(ctx, connect.NewRequest(&headroomv1.LastWordsRequest{Id: s.cfg.ID, Text: plain(why)}))
			})
		}
	}
	wg.Wait()
}

// member is a client of another server's MemberService.
func (s *server) member(addr string) headroomv1connect.MemberServiceClient {
	return headroomv1connect.NewMemberServiceClient(s.peers.HTTP(), s.peers.URL(addr), s.peers.Options()...)
}

// gather asks every other server at addrs what it says of itself, and of this
// one. Who does not answer in memberWait is missing.
func (s *server) gather(ctx context.Context, addrs []string) []*headroomv1.DescribeServerResponse {
	ctx, cancel := context.WithTimeout(ctx, memberWait)
	defer cancel()
	answers := make([]*headroomv1.DescribeServerResponse, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			sent := time.Now()
			r, err := s.member(addr).DescribeServer(ctx, connect.NewRequest(&headroomv1.DescribeServerRequest{About: s.cfg.ID}))
			if err != nil {
				return
			}
			answers[i] = r.Msg
			s.note(r.Msg.GetServer(), sent)
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(a *headroomv1.DescribeServerResponse) bool { return a == nil })
}

// note keeps what a server said, and how its clock stood against the middle of the call.
func (s *server) note(said *headroomv1.ServerFacts, sent time.Time) {
	now := time.Now()
	middle := s.wall().Add(-now.Sub(sent) / 2)
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.keeper.facts[said.GetId()] = fact{said: said, at: now, offset: time.UnixMicro(said.GetClockUs()).Sub(middle)}
	if said.GetRole() != roleWaiting {
		delete(s.keeper.words, said.GetId())
	}
}

// freshFor is how long what a server said of itself is taken for true.
const freshFor = 2*keepInterval + memberWait

// lately is since when that is.
func lately() time.Time { return time.Now().Add(-freshFor) }

// factsSince is what the others have said of themselves since a moment, and this
// server itself.
func (s *server) factsSince(moment time.Time) map[string]fact {
	out := map[string]fact{s.cfg.ID: {said: s.describe(), at: time.Now()}}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	for id, f := range s.keeper.facts {
		if !f.at.Before(moment) && id != s.cfg.ID {
			out[id] = f
		}
	}
	return out
}

// others are the RPC addresses of the other servers.
func (s *server) others() []string {
	var out []string
	for _, x := range s.roster() {
		if x.ID != s.cfg.ID && x.RPC != "" {
			out = append(out, x.RPC)
		}
	}
	return out
}

// keepMembers looks after the membership until ctx ends: a leader carries on what
// is not finished, a server that hears no leader finds out whether it still
// belongs to the group, and one without a log says that it waits. It returns an
// error when this server has no place in the group any more.
func (s *server) keepMembers(ctx context.Context) error {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		if err := s.keepOnce(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.keeper.kick:
		}
	}
}

func (s *server) keepOnce(ctx context.Context) error {
	switch {
	case s.role() == roleWaiting:
		s.waitForGroup(ctx)
		return nil
	case s.leading.Load() != nil:
		s.denyAgain(ctx)
		if err := s.expelled(s.gather(ctx, s.others())); err != nil {
			return err
		}
		s.carryOn(ctx)
	case s.lost():
		return s.expelled(s.gather(ctx, append(s.others(), s.cfg.Join...)))
	}
	return nil
}

// lost tells whether this server has heard of no leader for lostAfter.
func (s *server) lost() bool {
	id, _ := s.group.Leader()
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	switch {
	case id != "":
		s.keeper.lost = time.Time{}
	case s.keeper.lost.IsZero():
		s.keeper.lost = time.Now()
	}
	return id == "" && time.Since(s.keeper.lost) >= lostAfter
}

// waitForGroup says once what this server waits for.
func (s *server) waitForGroup(ctx context.Context) {
	self, _ := s.cfg.Self()
	text := fmt.Sprintf("coordinator member add %s --rpc %s takes this server into its group", self.ID, self.RPC)
	if len(s.gather(ctx, s.cfg.Join)) == 0 {
		text = "no server of the group answers at " + strings.Join(s.cfg.Join, ", ")
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if s.keeper.said != text {
		s.keeper.said = text
		s.logger.Info("waiting to be added", slog.String("hint", text))
	}
}

// errExpelled means that the group goes on without this server.
var errExpelled = errors.New("the group goes on without this server")

// foundedElsewhere tells whether this server has no log in dir while another that
// is configured with it has founded a group: then it takes the group's log and
// does not found a second one. It has lost its folder, or is late for the first
// start.
func (s *server) foundedElsewhere(dir string) bool {
	if dir == "" || hasLog(dir) || len(s.cfg.Servers) == 1 {
		return false
	}
	var addrs []string
	for _, x := range s.cfg.Servers {
		if x.ID != s.cfg.ID {
			addrs = append(addrs, x.RPC)
		}
	}
	return slices.ContainsFunc(s.gather(context.Background(), addrs), func(a *headroomv1.DescribeServerResponse) bool {
		return a.GetServer().GetCluster() != ""
	})
}

// expelled says that this server has no place in the group any more, where a
// leader of it has said so: one of the same site, in the same incarnation or a
// later one.
func (s *server) expelled(answers []*headroomv1.DescribeServerResponse) error {
	own := s.describe()
	for _, a := range answers {
		from := a.GetServer()
		same := own.GetCluster() == "" || own.GetCluster() == from.GetCluster()
		if !same || a.GetStanding() == nil || a.GetStanding().GetMember() || from.GetIncarnation() < own.GetIncarnation() {
			continue
		}
		e := &cli.Error{
			Code: "expelled", Exit: cli.ExitRefused, Message: a.GetStanding().GetWhy() + ", says " + from.GetId() + ", which leads",
			Hint: fmt.Sprintf("to bring it back: move %s aside, name a server of the group in join:, start it, and coordinator member add %s --rpc %s",
				s.cfg.StateDir, own.GetId(), own.GetRpcAddress()),
			Err: errExpelled,
		}
		switch {
		case from.GetIncarnation() > own.GetIncarnation():
			e.Message = fmt.Sprintf("%s leads incarnation %d of the group, begun without this server, which is still in incarnation %d",
				from.GetId(), from.GetIncarnation(), own.GetIncarnation())
		case own.GetRole() == roleLeader:
			e.Message = fmt.Sprintf("%s leads another group of the same incarnation %d: it was restored on two servers", from.GetId(), own.GetIncarnation())
			e.Hint = "decide for one of them; on the other, move the state_dir aside and start it with join:"
		}
		s.logger.Error("this server has no place in the group", slog.String("why", e.Message), slog.String("hint", e.Hint))
		return e
	}
	return nil
}
