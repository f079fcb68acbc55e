package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/access"
	"headroom/coordinator/leading"
	"headroom/coordinator/members"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/internal/rpc"
	"headroom/internal/secure"
	"headroom/ledger"
)

// memberService serves the requests about the servers of the cluster (package members).
type memberService struct{ *server }

// DescribeServer implements headroomv1connect.MemberServiceHandler.
func (m memberService) DescribeServer(
	ctx context.Context, r *connect.Request[headroomv1.DescribeServerRequest],
) (*connect.Response[headroomv1.DescribeServerResponse], error) {
	out := &headroomv1.DescribeServerResponse{Server: m.members.Facts.Self()}
	if about := r.Msg.GetAbout(); about != "" && m.requests.leads() && m.group.Verify(ctx) == nil {
		out.Standing = m.members.Roster.Standing(about)
	}
	return connect.NewResponse(out), nil
}

// LastWords implements headroomv1connect.MemberServiceHandler.
func (m memberService) LastWords(
	ctx context.Context, r *connect.Request[headroomv1.LastWordsRequest],
) (*connect.Response[headroomv1.LastWordsResponse], error) {
	id := r.Msg.GetId()
	if who := access.CallerOf(ctx); who.Server && who.Name != (secure.Identity{Role: secure.Server, Name: id}).String() {
		return nil, rpc.Refuse(connect.CodePermissionDenied, "denied", cli.ExitDenied, fmt.Sprintf("%s speaks for server %s", who.Name, id),
			"a server may report only its own end")
	}
	if slices.ContainsFunc(m.members.Roster.Seats(), func(x members.Seat) bool { return x.ID == id }) {
		m.logger.Warn("server exited", slog.String("server", id), slog.String("why", m.members.Facts.KeepLastWords(id, r.Msg.GetText())))
	}
	return connect.NewResponse(&headroomv1.LastWordsResponse{}), nil
}

// GetMemberHealth implements headroomv1connect.MemberServiceHandler.
func (m memberService) GetMemberHealth(
	ctx context.Context, _ *connect.Request[headroomv1.GetMemberHealthRequest],
) (*connect.Response[headroomv1.GetMemberHealthResponse], error) {
	out := &headroomv1.GetMemberHealthResponse{}
	meta, err := m.requests.read(ctx, false, func(st *ledger.State, _ *leading.Known) { out.Rules = uint32(st.Rules) })
	if err != nil {
		return nil, err
	}
	h, err := m.members.HealthNow(ctx)
	if err != nil {
		return nil, m.requests.notLeader()
	}
	out.Meta, out.Members, out.Tolerates, out.Health = meta, h.Members, h.Tolerates, h.Group
	return connect.NewResponse(out), nil
}

// begin proves that this server leads, and looks up the server.
// It refuses a key that its caller has used for another request.
func (m memberService) begin(ctx context.Context, id string, r changing) (meta *headroomv1.Meta, x ledger.Server, known bool, err error) {
	meta, err = m.requests.read(ctx, false, func(st *ledger.State, _ *leading.Known) { x, known = st.Servers[id] })
	if err == nil {
		_, err = m.requests.asked(command(ctx, r, "operator"))
	}
	return meta, x, known, err
}

// AddMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) AddMember(
	ctx context.Context, r *connect.Request[headroomv1.AddMemberRequest],
) (*connect.Response[headroomv1.AddMemberResponse], error) {
	id := r.Msg.GetId()
	meta, was, known, err := m.begin(ctx, id, r.Msg)
	if err != nil {
		return nil, err
	}
	if id == "" || r.Msg.GetRpcAddress() == "" {
		return nil, m.requests.refuse(fmt.Errorf("server %q at %q: %w", id, r.Msg.GetRpcAddress(), ledger.ErrServer))
	}
	want := ledger.Server{ID: id, RPC: r.Msg.GetRpcAddress()}
	raft, err := m.members.Admissible(ctx, want)
	if err != nil {
		return nil, m.requests.refuse(err)
	}
	want.Raft, want.Voter = raft, known && was.Voter && !was.Leaving
	out := &headroomv1.AddMemberResponse{Meta: meta, Already: known && was == want && m.members.Roster.Has(id)}
	if !out.GetAlready() && !r.Msg.GetDryRun() {
		c := command(ctx, r.Msg, "operator")
		c.Server = &want
		res, err := m.requests.change(ctx, c)
		if err != nil {
			return nil, err
		}
		meta.Revision = res.Revision
		if err := m.group.AddServer(ctx, consensus.Server{ID: id, Address: want.Raft}); err != nil {
			return nil, m.unfinished(err)
		}
	}
	out.Member = m.members.HealthOf(id, want)
	return connect.NewResponse(out), nil
}

// unfinished returns why a change that has begun is not finished. The leader, this
// one or the next, continues it; the same request may be sent again.
func (m memberService) unfinished(err error) error {
	m.members.Hurry()
	return m.requests.refuse(err)
}

// PromoteMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) PromoteMember(
	ctx context.Context, r *connect.Request[headroomv1.PromoteMemberRequest],
) (*connect.Response[headroomv1.PromoteMemberResponse], error) {
	id := r.Msg.GetId()
	meta, want, known, err := m.begin(ctx, id, r.Msg)
	if err != nil {
		return nil, err
	}
	if err := m.group.MayPromote(id); err != nil {
		return nil, m.requests.refuse(err)
	}
	if !known {
		want = m.members.Roster.Entry(id)
	}
	if want.Leaving {
		return nil, m.requests.refuse(fmt.Errorf("server %s is being removed: %w", id, ledger.ErrUnknownServer))
	}
	out := &headroomv1.PromoteMemberResponse{Meta: meta, Already: want.Voter && m.members.Roster.Votes(id)}
	if !out.GetAlready() && !r.Msg.GetDryRun() {
		c := command(ctx, r.Msg, "operator")
		want.Voter = true
		c.Server = &want
		res, err := m.requests.change(ctx, c)
		if err != nil {
			return nil, err
		}
		meta.Revision = res.Revision
		if err := m.group.Promote(ctx, id); err != nil {
			return nil, m.unfinished(err)
		}
	}
	out.Member = m.members.HealthOf(id, want)
	return connect.NewResponse(out), nil
}

// RemoveMember implements headroomv1connect.MemberServiceHandler.
func (m memberService) RemoveMember(
	ctx context.Context, r *connect.Request[headroomv1.RemoveMemberRequest],
) (*connect.Response[headroomv1.RemoveMemberResponse], error) {
	id := r.Msg.GetId()
	meta, want, known, err := m.begin(ctx, id, r.Msg)
	if err != nil {
		return nil, err
	}
	out := &headroomv1.RemoveMemberResponse{Meta: meta, Member: m.members.HealthOf(id, want)}
	if !known && !m.members.Roster.Has(id) {
		if was, err := m.requests.asked(command(ctx, r.Msg, "operator")); err == nil && was.Already {
			out.Already, meta.Revision = true, was.Revision
			return connect.NewResponse(out), nil
		}
		return nil, m.requests.refuse(fmt.Errorf("server %s: %w", id, ledger.ErrUnknownServer))
	}
	if err := m.group.MayRemove(id); err != nil && !errors.Is(err, consensus.ErrUnknownServer) {
		return nil, m.requests.refuse(err)
	}
	if r.Msg.GetDryRun() {
		return connect.NewResponse(out), nil
	}
	return rpc.Respond(out, m.remove(ctx, r.Msg, want, meta))
}

// remove commits that the server is to leave, removes it from raft's list, and then from the ledger.
func (m memberService) remove(ctx context.Context, r *headroomv1.RemoveMemberRequest, want ledger.Server, meta *headroomv1.Meta) error {
	c := command(ctx, r, "operator")
	if want.ID == "" {
		want = m.members.Roster.Entry(r.GetId())
	}
	want.Leaving = true
	c.Server = &want
	if _, err := m.requests.change(ctx, c); err != nil {
		return err
	}
	if err := m.members.TakeOut(ctx, want.ID); errors.Is(err, consensus.ErrNotLeader) {
		return m.nextLeader(ctx)
	} else if err != nil {
		return m.unfinished(err)
	}
	done := ledger.Command{RemoveServer: &ledger.Named{Name: want.ID}, Actor: c.Actor, Reason: c.Reason}
	res, err := m.requests.change(ctx, done)
	if err != nil && !errors.Is(err, ledger.ErrUnknownServer) {
		return err
	}
	meta.Revision = res.Revision
	return nil
}

// nextLeader waits until another server leads and refers the caller to it.
func (m memberService) nextLeader(ctx context.Context) error {
	for range leaderLooks {
		if id, _ := m.group.Leader(); id != "" && id != m.cfg.ID {
			break
		}
		if !pause.For(ctx, leaderPoll) {
			break
		}
	}
	return m.requests.notLeader()
}

// leaderLooks is how many times a server that has transferred leadership checks who leads: three seconds in all.
const leaderLooks = 30

// TransferLead implements headroomv1connect.MemberServiceHandler.
func (m memberService) TransferLead(
	ctx context.Context, r *connect.Request[headroomv1.TransferLeadRequest],
) (*connect.Response[headroomv1.TransferLeadResponse], error) {
	meta, _, _, err := m.begin(ctx, r.Msg.GetId(), r.Msg)
	if err != nil {
		return nil, err
	}
	out := &headroomv1.TransferLeadResponse{Meta: meta, From: m.cfg.ID, To: r.Msg.GetId(), Already: r.Msg.GetId() == m.cfg.ID}
	if out.GetTo() == "" {
		if out.To, err = m.members.Roster.Heir(); err != nil {
			return nil, m.requests.refuse(err)
		}
	}
	if err := m.members.Roster.MayLead(out.GetTo()); err != nil {
		return nil, m.requests.refuse(err)
	}
	if out.GetAlready() || r.Msg.GetDryRun() {
		return connect.NewResponse(out), nil
	}
	if err := m.group.TransferTo(ctx, out.GetTo()); err != nil {
		return nil, m.requests.refuse(fmt.Errorf("%w: %w", errTransfer, err))
	}
	_ = m.nextLeader(ctx)
	return connect.NewResponse(out), nil
}

// errTransfer is returned if a transfer failed: this server still leads.
var errTransfer = errors.New("leadership was not transferred")
