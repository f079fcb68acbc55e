package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/ledger"
)

// Reasons for refusing to take a server in.
var (
	errNoAnswer    = errors.New("it does not answer")
	errOtherServer = errors.New("another server answers there")
	errHasLog      = errors.New("it has a log of its own")
	errRules       = errors.New("it does not know the rules in force")
)

// memberRefusals are what operators meet when they change the group.
func memberRefusals() []refusalRule {
	const failed, exists, missing = connect.CodeFailedPrecondition, connect.CodeAlreadyExists, connect.CodeNotFound
	return []refusalRule{
		{consensus.ErrUnknownServer, missing, "unknown-server", cli.ExitUsage, "coordinator member list lists the servers"},
		{ledger.ErrUnknownServer, missing, "unknown-server", cli.ExitUsage, "coordinator member list lists the servers"},
		{ledger.ErrServer, connect.CodeInvalidArgument, "bad-server", cli.ExitUsage, "give its id and its RPC address: coordinator member add c4 --rpc HOST:PORT"},
		{consensus.ErrTooManyServers, failed, "too-many-servers", cli.ExitRefused, "remove one first: five that vote tolerate two failures, and more only slow every commit"},
		{consensus.ErrAddressTaken, exists, "address-taken", cli.ExitConflict, "give every server a raft address of its own"},
		{consensus.ErrNotStable, failed, "not-stable", cli.ExitRefused, "coordinator member health tells how it does; --wait waits until it is stable"},
		{consensus.ErrNotVoter, failed, "no-voter", cli.ExitRefused, "coordinator member promote gives it a vote first"},
		{consensus.ErrLastVoter, failed, "last-voter", cli.ExitRefused, "add and promote another server first"},
		{consensus.ErrLosesQuorum, failed, "loses-quorum", cli.ExitRefused, "bring the others back first, or remove the ones that are gone: coordinator member health names them"},
		{consensus.ErrLeads, failed, "leads", cli.ExitRefused, "coordinator member transfer hands the lead over first"},
		{errNoAnswer, failed, "no-answer", cli.ExitRefused, "start it first, with an empty state_dir and join: in its configuration"},
		{errOtherServer, exists, "other-server", cli.ExitConflict, "compare the id and the addresses with its configuration"},
		{errHasLog, exists, "has-log", cli.ExitConflict, "stop it, move its state_dir aside, and start it with join: in its configuration"},
		{errRules, failed, "rules", cli.ExitRefused, "install the version on it that the other servers run"},
		{ledger.ErrRules, failed, "old-rules", cli.ExitRefused, "a server of an older version is in the group; coordinator member health names it: upgrade it, and the rules follow by themselves"},
	}
}

// welcomes tells whether a server may be taken in: it answers, is the one that is
// meant, has no log of another group, and knows the rules in force.
func (s *server) welcomes(ctx context.Context, x ledger.Server) error {
	said, err := s.inquire(ctx, x.RPC)
	if err != nil {
		return fmt.Errorf("server %s at %s: %w", x.ID, x.RPC, errNoAnswer)
	}
	rules := s.machine.InForce()
	switch {
	case said.GetId() != x.ID:
		return fmt.Errorf("server %s at %s says that it is %s: %w", x.ID, x.RPC, said.GetId(), errOtherServer)
	case x.Raft != "" && said.GetRaftAddress() != x.Raft:
		return fmt.Errorf("server %s says that its raft address is %s, not %s: %w", x.ID, said.GetRaftAddress(), x.Raft, errOtherServer)
	case int(said.GetRulesNewest()) < rules || int(said.GetRulesOldest()) > rules:
		return fmt.Errorf("server %s, version %s, knows rules %d to %d, in force are %d: %w",
			x.ID, said.GetVersion(), said.GetRulesOldest(), said.GetRulesNewest(), rules, errRules)
	case said.GetRole() == roleWaiting, s.isMember(x.ID):
		return nil
	}
	return fmt.Errorf("server %s, %s in incarnation %d at entry %d: %w",
		x.ID, said.GetRole(), said.GetIncarnation(), said.GetLastIndex(), errHasLog)
}

func (s *server) isMember(id string) bool {
	return slices.ContainsFunc(s.group.Members(), func(m consensus.Member) bool { return m.ID == id })
}

// inquire asks one server what it says of itself.
func (s *server) inquire(ctx context.Context, addr string) (*headroomv1.ServerFacts, error) {
	ctx, cancel := context.WithTimeout(ctx, memberWait)
	defer cancel()
	sent := time.Now()
	r, err := s.member(addr).DescribeServer(ctx, connect.NewRequest(&headroomv1.DescribeServerRequest{}))
	if err != nil {
		return nil, err
	}
	s.note(r.Msg.GetServer(), sent)
	return r.Msg.GetServer(), nil
}

// begin proves that this server leads, and looks the server up.
func (m memberService) begin(ctx context.Context, id string) (meta *headroomv1.Meta, x ledger.Server, known bool, err error) {
	meta, err = m.read(ctx, false, func(st *ledger.State, _ *desk) { x, known = st.Servers[id] })
	return meta, x, known, err
}

// AddMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) AddMember(
	ctx context.Context, r *connect.Request[headroomv1.AddMemberRequest],
) (*connect.Response[headroomv1.AddMemberResponse], error) {
	id := r.Msg.GetId()
	meta, was, known, err := m.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	if id == "" || r.Msg.GetRpcAddress() == "" {
		return nil, m.refuse(fmt.Errorf("server %q at %q: %w", id, r.Msg.GetRpcAddress(), ledger.ErrServer))
	}
	want := ledger.Server{ID: id, RPC: r.Msg.GetRpcAddress()}
	if err := m.welcomes(ctx, want); err != nil {
		return nil, m.refuse(err)
	}
	want.Raft, want.Voter = m.factsSince(lately())[id].said.GetRaftAddress(), known && was.Voter && !was.Leaving
	out := &headroomv1.AddMemberResponse{Meta: meta, Already: known && was == want && m.isMember(id)}
	if !out.GetAlready() && !r.Msg.GetDryRun() {
		c := command(ctx, r.Msg.GetChange(), "operator")
		c.Server = &want
		res, err := m.change(ctx, c)
		if err != nil {
			return nil, err
		}
		meta.Revision = res.Revision
		if err := m.group.AddServer(ctx, consensus.Server{ID: id, Address: want.Raft}); err != nil {
			return nil, m.unfinished(err)
		}
	}
	out.Member = m.healthOf(id, want)
	return connect.NewResponse(out), nil
}

// unfinished is why a change that has begun did not end here. The leader, this
// one or the next, takes it up again; the same request may be sent again.
func (m memberService) unfinished(err error) error {
	m.keeper.hurry()
	return m.refuse(err)
}

// PromoteMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) PromoteMember(
	ctx context.Context, r *connect.Request[headroomv1.PromoteMemberRequest],
) (*connect.Response[headroomv1.PromoteMemberResponse], error) {
	id := r.Msg.GetId()
	meta, want, known, err := m.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := m.group.MayPromote(id); err != nil {
		return nil, m.refuse(err)
	}
	if !known {
		want = m.entry(id)
	}
	if want.Leaving {
		return nil, m.refuse(fmt.Errorf("server %s is to leave: %w", id, ledger.ErrUnknownServer))
	}
	out := &headroomv1.PromoteMemberResponse{Meta: meta, Already: want.Voter && m.votes(id)}
	if !out.GetAlready() && !r.Msg.GetDryRun() {
		c := command(ctx, r.Msg.GetChange(), "operator")
		want.Voter = true
		c.Server = &want
		res, err := m.change(ctx, c)
		if err != nil {
			return nil, err
		}
		meta.Revision = res.Revision
		if err := m.group.Promote(ctx, id); err != nil {
			return nil, m.unfinished(err)
		}
	}
	out.Member = m.healthOf(id, want)
	return connect.NewResponse(out), nil
}

func (s *server) votes(id string) bool {
	return slices.ContainsFunc(s.group.Members(), func(m consensus.Member) bool { return m.ID == id && m.Voter })
}

// RemoveMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) RemoveMember(
	ctx context.Context, r *connect.Request[headroomv1.RemoveMemberRequest],
) (*connect.Response[headroomv1.RemoveMemberResponse], error) {
	id := r.Msg.GetId()
	meta, want, known, err := m.begin(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &headroomv1.RemoveMemberResponse{Meta: meta, Member: m.healthOf(id, want)}
	if !known && !m.isMember(id) {
		if m.carriedOut(r.Msg.GetChange().GetRequestId()) {
			out.Already = true
			return connect.NewResponse(out), nil
		}
		return nil, m.refuse(fmt.Errorf("server %s: %w", id, ledger.ErrUnknownServer))
	}
	if err := m.group.MayRemove(id); err != nil && !errors.Is(err, consensus.ErrUnknownServer) {
		return nil, m.refuse(err)
	}
	if r.Msg.GetDryRun() {
		return connect.NewResponse(out), nil
	}
	if err := m.remove(ctx, r.Msg, want, meta); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// remove notes that the server is to leave, takes it out, and forgets it.
func (m memberService) remove(ctx context.Context, r *headroomv1.RemoveMemberRequest, want ledger.Server, meta *headroomv1.Meta) error {
	c := command(ctx, r.GetChange(), "operator")
	if want.ID == "" {
		want = m.entry(r.GetId())
	}
	want.Leaving = true
	c.Server = &want
	if _, err := m.change(ctx, c); err != nil {
		return err
	}
	if err := m.takeOut(ctx, want.ID); errors.Is(err, consensus.ErrNotLeader) {
		return m.nextLeader(ctx)
	} else if err != nil {
		return m.unfinished(err)
	}
	done := ledger.Command{RemoveServer: &ledger.Named{Name: want.ID}, Actor: c.Actor, Reason: c.Reason}
	res, err := m.change(ctx, done)
	if err != nil && !errors.Is(err, ledger.ErrUnknownServer) {
		return err
	}
	meta.Revision = res.Revision
	return nil
}

// entry is what the ledger is to say of a server that only raft has yet.
func (s *server) entry(id string) ledger.Server {
	at := s.address(id)
	return ledger.Server{ID: at.ID, RPC: cmp.Or(at.RPC, "unknown"), Raft: at.Raft, Voter: s.votes(id)}
}

// carriedOut tells whether a request was carried out before, and all of it.
func (s *server) carriedOut(request string) (done bool) {
	s.machine.View(func(st *ledger.State) {
		done = request != "" && slices.ContainsFunc(st.Requests, func(x ledger.Request) bool { return x.ID == request })
	})
	return done
}

// nextLeader waits until another server leads and refers the caller to it.
func (s *server) nextLeader(ctx context.Context) error {
	for range leaderLooks {
		if id, _ := s.group.Leader(); id != "" && id != s.cfg.ID {
			break
		}
		if !pause.For(ctx, leaderPoll) {
			break
		}
	}
	return s.notLeader()
}

// leaderLooks is how often a server that has handed its lead over looks who has it: three seconds.
const leaderLooks = 30

// TransferLead implements headroomv1connect.MemberServiceHandler.
func (m memberService) TransferLead(
	ctx context.Context, r *connect.Request[headroomv1.TransferLeadRequest],
) (*connect.Response[headroomv1.TransferLeadResponse], error) {
	meta, err := m.read(ctx, false, func(*ledger.State, *desk) {})
	if err != nil {
		return nil, err
	}
	out := &headroomv1.TransferLeadResponse{Meta: meta, From: m.cfg.ID, To: r.Msg.GetId(), Already: r.Msg.GetId() == m.cfg.ID}
	if out.GetTo() == "" {
		if out.To, err = m.heir(); err != nil {
			return nil, m.refuse(err)
		}
	}
	if err := m.mayLead(out.GetTo()); err != nil {
		return nil, m.refuse(err)
	}
	if out.GetAlready() || r.Msg.GetDryRun() {
		return connect.NewResponse(out), nil
	}
	if err := m.group.TransferTo(ctx, out.GetTo()); err != nil {
		return nil, m.refuse(fmt.Errorf("%w: %w", errTransfer, err))
	}
	_ = m.nextLeader(ctx)
	return connect.NewResponse(out), nil
}

// errTransfer means that a transfer did not come about: the leader leads on.
var errTransfer = errors.New("the lead was not handed over")

// heir is the healthy voter that is closest to the end of the log.
func (s *server) heir() (string, error) {
	all, err := s.group.Health()
	if err != nil {
		return "", err
	}
	best, most := "", uint64(0)
	for _, h := range all {
		if h.Voter && !h.Self && h.Healthy() && h.LastIndex >= most {
			best, most = h.ID, h.LastIndex
		}
	}
	if best == "" {
		return "", fmt.Errorf("no other server that votes is healthy: %w", consensus.ErrNotStable)
	}
	return best, nil
}

// mayLead says why a server cannot be handed the lead.
func (s *server) mayLead(id string) error {
	all, err := s.group.Health()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(h consensus.Health) bool { return h.ID == id })
	switch {
	case i < 0:
		return fmt.Errorf("server %s: %w", id, consensus.ErrUnknownServer)
	case !all[i].Voter:
		return fmt.Errorf("server %s: %w", id, consensus.ErrNotVoter)
	case !all[i].Healthy():
		return fmt.Errorf("server %s: %w: %w", id, consensus.ErrNotStable, all[i].Fault)
	}
	return nil
}
