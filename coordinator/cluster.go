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
	"headroom/coordinator/access"
	"headroom/coordinator/alarms"
	"headroom/coordinator/leading"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

// clusterService implements the operators' RPCs.
type clusterService struct{ *server }

// GetStatus implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) GetStatus(ctx context.Context, r *connect.Request[headroomv1.GetStatusRequest]) (*connect.Response[headroomv1.GetStatusResponse], error) {
	out := &headroomv1.GetStatusResponse{}
	var err error
	out.Meta, err = c.requests.read(ctx, r.Msg.GetStale(), func(st *ledger.State, k *leading.Known) {
		if l := st.Leases; l.Length > 0 {
			out.SettleMs, out.LeaseMs, out.LongestLeaseMs = new(l.Settle.Milliseconds()), new(l.Length.Milliseconds()), new(st.LongestLease().Milliseconds())
		}
		nodes := view.Nodes(st, k.Heard())
		for _, dom := range view.Domains(st, k.Heard(), nodes) {
			if dom.GetParent() == "" {
				out.Site = dom
			}
			if dom.GetRatingUw() == 0 {
				out.UnratedDomains = append(out.UnratedDomains, dom.GetName())
			}
		}
		for _, n := range nodes {
			switch n.GetState() {
			case view.StateOK:
				out.NodesOk++
			case view.StateLost:
				out.NodesLost++
			case view.StateUnknown:
				out.NodesUnknown++
			default:
				out.NodesOther++
			}
		}
		out.Alarms = alarms.Items(c.alarms(st, k, nodes))
	})
	if err != nil {
		return nil, err
	}
	out.Servers = c.members.List(ctx)
	out.Leader, _ = c.group.Leader()
	return connect.NewResponse(out), nil
}

// ListDomains implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListDomains(ctx context.Context, r *connect.Request[headroomv1.ListDomainsRequest]) (*connect.Response[headroomv1.ListDomainsResponse], error) {
	out := &headroomv1.ListDomainsResponse{}
	var err error
	node := access.CallerOf(ctx).Node()
	out.Meta, err = c.requests.read(ctx, r.Msg.GetStale(), func(st *ledger.State, k *leading.Known) {
		for _, dom := range view.Domains(st, k.Heard(), view.Nodes(st, k.Heard())) {
			if (r.Msg.GetDomain() == "" || r.Msg.GetDomain() == dom.GetName()) && (node == "" || above(st, node, dom.GetName())) {
				out.Domains = append(out.Domains, dom)
			}
		}
	})
	if err == nil && r.Msg.GetDomain() != "" && len(out.Domains) == 0 {
		err = unknownDomain(r.Msg.GetDomain())
	}
	return rpc.Respond(out, err)
}

// above reports whether a domain is a node's domain or an ancestor of it.
func above(st *ledger.State, node, domain string) bool {
	n, known := st.Nodes[node]
	tree := st.Tree()
	return known && tree != nil && slices.Contains(tree.Above(n.Domain), domain)
}

func unknownDomain(name string) error {
	return rpc.Refuse(connect.CodeNotFound, "unknown-domain", cli.ExitUsage, fmt.Sprintf("domain %q: unknown domain", name), "coordinator budget show lists the domains")
}

// ListNodes implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListNodes(ctx context.Context, r *connect.Request[headroomv1.ListNodesRequest]) (*connect.Response[headroomv1.ListNodesResponse], error) {
	if err := access.OwnRow(ctx, r.Msg.GetNode()); err != nil {
		return nil, err
	}
	out := &headroomv1.ListNodesResponse{}
	var err error
	known := false
	out.Meta, err = c.requests.read(ctx, r.Msg.GetStale(), func(st *ledger.State, k *leading.Known) {
		tree, heard := st.Tree(), k.Heard()
		known = r.Msg.GetDomain() == "" || tree != nil && tree.Has(r.Msg.GetDomain())
		for _, n := range st.NodesByName() {
			if (r.Msg.GetNode() == "" || r.Msg.GetNode() == n.Name) && (r.Msg.GetDomain() == "" || known && slices.Contains(tree.Above(n.Domain), r.Msg.GetDomain())) {
				out.Nodes = append(out.Nodes, view.Node(st, heard, n))
			}
		}
	})
	if err == nil && !known {
		err = unknownDomain(r.Msg.GetDomain())
	}
	if err == nil && r.Msg.GetNode() != "" && len(out.Nodes) == 0 {
		err = rpc.Refuse(connect.CodeNotFound, "unknown-node", cli.ExitUsage, fmt.Sprintf("node %q: unknown node", r.Msg.GetNode()),
			"coordinator node list lists the nodes")
	}
	return rpc.Respond(out, err)
}

// ListEvents implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListEvents(ctx context.Context, r *connect.Request[headroomv1.ListEventsRequest]) (*connect.Response[headroomv1.ListEventsResponse], error) {
	out := &headroomv1.ListEventsResponse{}
	var err error
	out.Meta, err = c.requests.read(ctx, r.Msg.GetStale(), func(st *ledger.State, k *leading.Known) {
		for _, e := range st.Events {
			if e.Revision > r.Msg.GetSinceRevision() {
				out.Events = append(out.Events, view.Event(e))
			}
		}
		for _, e := range k.Events() {
			if e.GetRevision() > r.Msg.GetSinceRevision() {
				out.Events = append(out.Events, e)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out.Events, func(a, b *headroomv1.Event) int { return cmp.Compare(a.GetRevision(), b.GetRevision()) })
	if limit := int(r.Msg.GetLimit()); limit > 0 && len(out.Events) > limit {
		out.Events = out.Events[len(out.Events)-limit:]
	}
	return connect.NewResponse(out), nil
}

// ListMembers implements headroomv1connect.ClusterServiceHandler. It needs no
// leader: it is what an operator looks at when there is none.
func (c clusterService) ListMembers(ctx context.Context, r *connect.Request[headroomv1.ListMembersRequest]) (*connect.Response[headroomv1.ListMembersResponse], error) {
	out := &headroomv1.ListMembersResponse{Meta: &headroomv1.Meta{Server: c.cfg.ID, Consistency: "stale", AsOfUs: time.Now().UnixMicro()}}
	c.machine.View(func(st *ledger.State) { out.Meta.Revision, out.Meta.Epoch = st.Revision, wire.EpochMessage(st.Epoch) })
	if r.Msg.GetSelf() {
		out.Members = []*headroomv1.Member{c.members.Myself()}
	} else {
		out.Members = c.members.List(ctx)
	}
	return connect.NewResponse(out), nil
}

// SetBudget implements headroomv1connect.ClusterServiceHandler. Lowers are in
// the same entry as the budget and go out as soon as it has committed.
func (c clusterService) SetBudget(ctx context.Context, r *connect.Request[headroomv1.SetBudgetRequest]) (*connect.Response[headroomv1.SetBudgetResponse], error) {
	return rpc.Respond(c.setBudget(ctx, r.Msg, nil))
}

// setBudget changes a budget; first, if not nil, completes the request from the present state.
func (c clusterService) setBudget(ctx context.Context, r *headroomv1.SetBudgetRequest, first func(*ledger.State) error) (*headroomv1.SetBudgetResponse, error) {
	q, b := budgetRequest(ctx, r, first)
	a, err := c.requests.request(ctx, q)
	if err != nil {
		return nil, err
	}
	if a.Err != nil {
		return nil, c.requests.refuse(a.Err)
	}
	out := budgetResponse(q, b, a)
	out.Meta.Server = c.cfg.ID
	c.machine.View(func(st *ledger.State) { out.Meta.Epoch = wire.EpochMessage(st.Epoch) })
	return out, nil
}

// budgetRequest returns the leader's request for a budget change, and where its plan will be.
func budgetRequest(ctx context.Context, r *headroomv1.SetBudgetRequest, first func(*ledger.State) error) (*leader.Request, *leader.Budget) {
	b := &leader.Budget{}
	return &leader.Request{
		Command: command(ctx, r, "operator"), DryRun: r.GetDryRun(),
		Build: func(v leader.View, c *ledger.Command) error {
			if first != nil {
				if err := first(v.State); err != nil {
					return err
				}
			}
			*b = leader.Budget{Domain: r.GetDomain(), To: units.Power(r.GetBudgetUw()), Force: r.GetForce(), Until: r.GetUntilUs()}
			if err := b.Build(v, c); err != nil || r.GetDryRun() {
				return err
			}
			return confirmed(v.State, b.Domain, b.To, units.Power(r.GetConfirmUw()))
		},
	}, b
}

// errUnconfirmed is returned for a raise of a budget without a confirmation of the value.
var errUnconfirmed = errors.New("confirmation required")

// confirmed refuses a budget above the present one, unless the request repeats it: a mistyped
// digit must not become the budget.
func confirmed(s *ledger.State, domain string, to, confirm units.Power) error {
	d, ok := s.Domains[domain]
	switch {
	case !ok || to <= d.Budget || confirm == to:
		return nil
	case d.Highest > 0 && to > d.Highest:
		return fmt.Errorf("%w: %v for %s is above its highest earlier budget, %v", errUnconfirmed, to, domain, d.Highest)
	}
	return fmt.Errorf("%w: %v for %s is above its budget, %v", errUnconfirmed, to, domain, d.Budget)
}

// budgetResponse returns what a budget change does, or would do.
func budgetResponse(q *leader.Request, b *leader.Budget, a leader.Answer) *headroomv1.SetBudgetResponse {
	out := &headroomv1.SetBudgetResponse{
		Meta:    &headroomv1.Meta{Consistency: "linearizable", Revision: a.Result.Revision, AsOfUs: time.Now().UnixMicro()},
		Already: a.Result.Already, Before: view.Totals(b.Domain, b.Plan.Before[b.Domain]), After: view.Totals(b.Domain, b.Plan.After[b.Domain]),
	}
	if q.DryRun && !out.GetAlready() {
		out.Meta.Revision = q.Tried.Revision
	}
	out.Before.HighestUw = cli.Known(int64(b.Highest), b.Highest > 0)
	out.Moves = moveMessages(b.Plan.Moves)
	for _, name := range b.Plan.StuckNames() {
		out.Shortfall = append(out.Shortfall, fmt.Sprintf("%s cannot be lowered now, charged at %v", name, b.Plan.Stuck[name]))
	}
	return out
}

func moveMessages(moves []ledger.Move) []*headroomv1.TargetMove {
	out := make([]*headroomv1.TargetMove, 0, len(moves))
	for _, m := range moves {
		out = append(out, &headroomv1.TargetMove{Node: m.Node, FromUw: int64(m.From), ToUw: int64(m.To)})
	}
	return out
}

// awaitPoll is the interval of AwaitBudget's checks.
const awaitPoll = 20 * time.Millisecond

// AwaitBudget implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) AwaitBudget(ctx context.Context, r *connect.Request[headroomv1.AwaitBudgetRequest]) (*connect.Response[headroomv1.AwaitBudgetResponse], error) {
	until := time.Now().Add(min(time.Duration(r.Msg.GetWaitMs())*time.Millisecond, time.Minute))
	var l *leading.Loop // no other one follows this change
	if err := c.requests.ask(ctx, func(*leading.Known) { l = c.requests.loop.Load() }); err != nil {
		return nil, err
	}
	if l == nil {
		return nil, c.requests.notLeader()
	}
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	for {
		var nodes []leader.Awaited
		known := false
		if err := c.requests.unled(l.Look(ctx, func(k *leading.Known) { nodes, known = k.Confirmations(r.Msg.GetRevision()) })); err != nil {
			return nil, err
		}
		if !known {
			return nil, rpc.Refuse(connect.CodeNotFound, "not-followed", cli.ExitDegraded,
				fmt.Sprintf("revision %d is not followed by this leader: the leader changed, or it is long ago", r.Msg.GetRevision()),
				"coordinator node list shows what every node holds now")
		}
		open := slices.ContainsFunc(nodes, func(a leader.Awaited) bool { return a.After == 0 })
		if !open || !time.Now().Before(until) {
			return connect.NewResponse(&headroomv1.AwaitBudgetResponse{Confirmations: confirmationMessages(nodes)}), nil
		}
		select {
		case <-ctx.Done():
			return nil, connect.NewError(connect.CodeDeadlineExceeded, ctx.Err())
		case <-tick.C:
		}
	}
}

func confirmationMessages(nodes []leader.Awaited) []*headroomv1.Confirmation {
	out := make([]*headroomv1.Confirmation, 0, len(nodes))
	for _, a := range nodes {
		m := &headroomv1.Confirmation{Node: a.Node}
		if a.After > 0 {
			m.AfterMs = new(float64(a.After) / float64(time.Millisecond))
		}
		out = append(out, m)
	}
	return out
}
