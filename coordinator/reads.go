package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/leading"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/ledger"
)

// ListChanges implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListChanges(ctx context.Context, r *connect.Request[headroomv1.ListChangesRequest]) (*connect.Response[headroomv1.ListChangesResponse], error) {
	out := &headroomv1.ListChangesResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, k *leading.Known) {
		for _, x := range slices.Backward(s.Changes) {
			if limit := int(r.Msg.GetLimit()); limit > 0 && len(out.Changes) == limit {
				break
			}
			if r.Msg.GetDomain() == "" || r.Msg.GetDomain() == x.Domain {
				out.Changes = append(out.Changes, k.Change(x))
			}
		}
	})
}

// ListSchedules implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListSchedules(ctx context.Context, r *connect.Request[headroomv1.ListSchedulesRequest]) (*connect.Response[headroomv1.ListSchedulesResponse], error) {
	out := &headroomv1.ListSchedulesResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, _ *leading.Known) {
		totals := s.Totals()
		for _, x := range s.SchedulesByName() {
			m := &headroomv1.Schedule{
				Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, BudgetUw: int64(x.Budget), ShortUw: int64(max(0, totals[x.Domain].Floor-x.Budget)),
			}
			if next, ok := x.Next(time.Now()); ok {
				m.NextUs = new(next.UnixMicro())
			}
			m.LastUs = new(x.Last)
			out.Schedules = append(out.Schedules, m)
		}
	})
}

// ListSprints implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListSprints(ctx context.Context, r *connect.Request[headroomv1.ListSprintsRequest]) (*connect.Response[headroomv1.ListSprintsResponse], error) {
	out := &headroomv1.ListSprintsResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, k *leading.Known) {
		for _, p := range s.SprintsByTime() {
			if p.Open() || r.Msg.GetAll() {
				out.Sprints = append(out.Sprints, view.Sprint(s, p))
			}
		}
		for _, m := range view.Domains(s, k.Heard(), view.Nodes(s, k.Heard())) {
			if m.GetSprint() != nil {
				out.Domains = append(out.Domains, m)
			}
		}
	})
}

// ListPolicies implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListPolicies(ctx context.Context, r *connect.Request[headroomv1.ListPoliciesRequest]) (*connect.Response[headroomv1.ListPoliciesResponse], error) {
	out := &headroomv1.ListPoliciesResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, _ *leading.Known) {
		now, _ := budget.ParsePolicy(s.Policy)
		for _, p := range budget.Policies() {
			out.Policies = append(out.Policies, &headroomv1.Policy{Name: string(p), What: p.Sentence(), InForce: p == now, Divides: "watts"})
		}
		for _, name := range ledger.ContainerPolicies() {
			out.Policies = append(out.Policies, &headroomv1.Policy{
				Name: name, What: arbitration.PolicySentence(name), InForce: name == cmp.Or(s.ContainerPolicy, ledger.DefaultContainerPolicy), Divides: "containers",
			})
		}
	})
}

// ExplainNode implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ExplainNode(ctx context.Context, r *connect.Request[headroomv1.ExplainNodeRequest]) (*connect.Response[headroomv1.ExplainNodeResponse], error) {
	out := &headroomv1.ExplainNodeResponse{}
	var err error
	known := false
	out.Meta, err = c.requests.read(ctx, false, func(s *ledger.State, k *leading.Known) {
		var n ledger.Node
		if n, known = s.Nodes[r.Msg.GetNode()]; known {
			k.ExplainNode(out, s, n)
		}
	})
	if err == nil && !known {
		err = rpc.Refuse(connect.CodeNotFound, "unknown-node", cli.ExitUsage, fmt.Sprintf("node %q: unknown node", r.Msg.GetNode()),
			"coordinator node list lists the nodes")
	}
	return rpc.Respond(out, err)
}

// ListAlarms implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListAlarms(ctx context.Context, r *connect.Request[headroomv1.ListAlarmsRequest]) (*connect.Response[headroomv1.ListAlarmsResponse], error) {
	out := &headroomv1.ListAlarmsResponse{}
	return filled(ctx, c.requests, r.Msg.GetStale(), out, &out.Meta, func(s *ledger.State, k *leading.Known) {
		out.Alarms = k.AlarmMessages(s, c.alarms(s, k, view.Nodes(s, k.Heard())))
	})
}

// Rollback implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) Rollback(ctx context.Context, r *connect.Request[headroomv1.RollbackRequest]) (*connect.Response[headroomv1.SetBudgetResponse], error) {
	set := &headroomv1.SetBudgetRequest{Domain: r.Msg.GetDomain(), Force: r.Msg.GetForce(), DryRun: r.Msg.GetDryRun(), Change: r.Msg.GetChange(), ConfirmUw: r.Msg.GetConfirmUw()}
	return rpc.Respond(c.setBudget(ctx, set, func(s *ledger.State) error {
		if set.GetDomain() == "" {
			set.Domain = changedAt(s, r.Msg.GetRevision())
		}
		was, ok := s.BudgetAt(set.GetDomain(), r.Msg.GetRevision())
		if set.BudgetUw = int64(was); !ok {
			return rpc.Refuse(connect.CodeNotFound, "unknown-revision", cli.ExitUsage,
				fmt.Sprintf("the history has no budget of %s at revision %d", set.GetDomain(), r.Msg.GetRevision()),
				"coordinator budget history lists the changes")
		}
		return nil
	}))
}

// changedAt returns the domain whose budget the revision changed, or the next one that changed after it.
func changedAt(s *ledger.State, revision uint64) string {
	for _, x := range s.Changes {
		if x.Revision >= revision {
			return x.Domain
		}
	}
	return s.Tree().Root().Name
}
