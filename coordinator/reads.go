package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"headroom/coordinator/alarms"
	"headroom/coordinator/view"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/jobs/containers"
	"headroom/ledger"
	"headroom/units"
)

// ListChanges implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListChanges(ctx context.Context, r *connect.Request[headroomv1.ListChangesRequest]) (*connect.Response[headroomv1.ListChangesResponse], error) {
	out := &headroomv1.ListChangesResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(s *ledger.State, d *desk) {
		for _, x := range slices.Backward(s.Changes) {
			if limit := int(r.Msg.GetLimit()); limit > 0 && len(out.Changes) == limit {
				break
			}
			if r.Msg.GetDomain() == "" || r.Msg.GetDomain() == x.Domain {
				out.Changes = append(out.Changes, changeMessage(x, d))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func changeMessage(x ledger.BudgetChange, d *desk) *headroomv1.BudgetChange {
	m := &headroomv1.BudgetChange{
		Revision: x.Revision, AtUs: x.At, Actor: x.Actor, Domain: x.Domain, FromUw: int64(x.From), ToUw: int64(x.To), Reason: x.Reason, UntilUs: x.Until,
	}
	if d == nil {
		return m
	}
	if nodes, ok := d.lead.Confirmations(x.Revision); ok {
		lowered, done, slowest := uint32(len(nodes)), uint32(0), 0.0
		for _, a := range nodes {
			if a.After > 0 {
				done++
				slowest = max(slowest, float64(a.After)/float64(time.Millisecond))
			}
		}
		m.Lowered, m.Confirmed = &lowered, &done
		if done > 0 {
			m.ConfirmedMs = &slowest
		}
	}
	return m
}

// ListSchedules implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListSchedules(ctx context.Context, r *connect.Request[headroomv1.ListSchedulesRequest]) (*connect.Response[headroomv1.ListSchedulesResponse], error) {
	out := &headroomv1.ListSchedulesResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(s *ledger.State, _ *desk) {
		for _, x := range s.SchedulesByName() {
			m := &headroomv1.Schedule{Name: x.Name, Domain: x.Domain, Cron: x.Cron, Zone: x.Zone, BudgetUw: int64(x.Budget)}
			if next, ok := x.Next(time.Now()); ok {
				us := next.UnixMicro()
				m.NextUs = &us
			}
			last := x.Last
			m.LastUs = &last
			out.Schedules = append(out.Schedules, m)
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// ListSprints implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListSprints(ctx context.Context, r *connect.Request[headroomv1.ListSprintsRequest]) (*connect.Response[headroomv1.ListSprintsResponse], error) {
	out := &headroomv1.ListSprintsResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(s *ledger.State, d *desk) {
		for _, p := range s.SprintsByTime() {
			if p.Open() || r.Msg.GetAll() {
				out.Sprints = append(out.Sprints, view.Sprint(s, p))
			}
		}
		for _, m := range view.Domains(s, d.heard(), view.Nodes(s, d.heard())) {
			if m.GetSprint() != nil {
				out.Domains = append(out.Domains, m)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// ListPolicies implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListPolicies(ctx context.Context, r *connect.Request[headroomv1.ListPoliciesRequest]) (*connect.Response[headroomv1.ListPoliciesResponse], error) {
	out := &headroomv1.ListPoliciesResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(s *ledger.State, _ *desk) {
		now, _ := budget.ParsePolicy(s.Policy)
		for _, p := range budget.Policies() {
			out.Policies = append(out.Policies, &headroomv1.Policy{Name: string(p), What: p.Sentence(), InForce: p == now, Divides: "watts"})
		}
		for _, name := range ledger.ContainerPolicies() {
			out.Policies = append(out.Policies, &headroomv1.Policy{
				Name: name, What: containers.Policy(name).Sentence(), InForce: name == cmp.Or(s.ContainerPolicy, ledger.DefaultContainerPolicy), Divides: "containers",
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// ExplainNode implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ExplainNode(ctx context.Context, r *connect.Request[headroomv1.ExplainNodeRequest]) (*connect.Response[headroomv1.ExplainNodeResponse], error) {
	out := &headroomv1.ExplainNodeResponse{}
	var err error
	known := false
	out.Meta, err = c.read(ctx, false, func(s *ledger.State, d *desk) {
		var n ledger.Node
		if n, known = s.Nodes[r.Msg.GetNode()]; known {
			explain(out, s, d, n)
		}
	})
	if err == nil && !known {
		err = rpc.Refuse(connect.CodeNotFound, "unknown-node", cli.ExitUsage, fmt.Sprintf("node %q: unknown node", r.Msg.GetNode()),
			"coordinator node list lists the nodes")
	}
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// explain fills in why the node has its cap.
func explain(out *headroomv1.ExplainNodeResponse, s *ledger.State, d *desk, n ledger.Node) {
	for _, m := range view.Nodes(s, d.heard()) {
		if m.GetName() == n.Name {
			out.Node = m
		}
	}
	policy, _ := budget.ParsePolicy(s.Policy)
	out.Policy = string(policy)
	why := ledger.Explain(s, d.lead.Table(), d.now(), n.Name)
	out.BoundBy, out.BoundDomain, out.Why = why.By, why.Domain, why.Words
	if p := why.Planned; p != nil {
		out.PlannedUw = new(int64(*p))
	}
	for _, name := range s.Tree().Above(n.Domain) {
		out.Spare = append(out.Spare, &headroomv1.DomainSpare{Domain: name, SpareUw: int64(why.Spare[name])})
	}
	for _, m := range d.moves.of(n.Name) {
		out.Last = append(out.Last, &headroomv1.Event{
			Revision: m.revision, AtUs: m.at.UnixMicro(), Actor: "coordinator/" + d.server,
			What: fmt.Sprintf("%v -> %v", m.from, m.to), Reason: m.why,
		})
	}
}

// keptMoves is how many targets of a node are remembered for policy explain.
const keptMoves = 8

// moveBook remembers the newest targets of each node in this leadership. It is the desk's.
type moveBook struct {
	moves map[string][]move
	last  map[string]units.Power
}

type move struct {
	at       time.Time
	revision uint64
	from, to units.Power
	why      string
}

func newMoveBook() *moveBook {
	return &moveBook{moves: map[string][]move{}, last: map[string]units.Power{}}
}

// look takes in the targets as committed now.
func (b *moveBook) look(s *ledger.State, at time.Time) {
	for name, n := range s.Nodes {
		if was, known := b.last[name]; known && was != n.Target {
			list := append([]move{{at, s.PowerRevision, was, n.Target, movedBy(s, n, was)}}, b.moves[name]...)
			b.moves[name] = list[:min(len(list), keptMoves)]
		}
		b.last[name] = n.Target
	}
	for name := range b.last {
		if _, ok := s.Nodes[name]; !ok {
			delete(b.last, name)
			delete(b.moves, name)
		}
	}
}

// movedBy is why a node's target is another now.
func movedBy(s *ledger.State, n ledger.Node, was units.Power) string {
	switch {
	case s.Brake.Active() && n.Target < was:
		return fmt.Sprintf("brake %d", s.Brake.Set)
	case n.Drained && n.Target < was:
		return "drained"
	}
	return "plan by policy " + cmp.Or(s.Policy, string(budget.Weighted))
}

func (b *moveBook) of(node string) []move { return b.moves[node] }

// ListAlarms implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) ListAlarms(ctx context.Context, r *connect.Request[headroomv1.ListAlarmsRequest]) (*connect.Response[headroomv1.ListAlarmsResponse], error) {
	out := &headroomv1.ListAlarmsResponse{}
	var err error
	out.Meta, err = c.read(ctx, r.Msg.GetStale(), func(s *ledger.State, d *desk) {
		now := append(c.brakeAlarms(s), d.allAlarms(s, view.Nodes(s, d.heard()))...)
		if d != nil {
			d.alarms.Look(now, time.Now())
		}
		out.Alarms = alarms.Messages(s, d.alarmLog(), now)
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// Rollback implements headroomv1connect.ClusterServiceHandler.
func (c clusterService) Rollback(ctx context.Context, r *connect.Request[headroomv1.RollbackRequest]) (*connect.Response[headroomv1.SetBudgetResponse], error) {
	set := &headroomv1.SetBudgetRequest{Domain: r.Msg.GetDomain(), Force: r.Msg.GetForce(), DryRun: r.Msg.GetDryRun(), Change: r.Msg.GetChange()}
	out, err := c.setBudget(ctx, set, func(s *ledger.State) error {
		if set.GetDomain() == "" {
			set.Domain = changedAt(s, r.Msg.GetRevision())
		}
		was, ok := s.BudgetAt(set.GetDomain(), r.Msg.GetRevision())
		if set.BudgetUw = int64(was); !ok {
			return rpc.Refuse(connect.CodeNotFound, "unknown-revision", cli.ExitUsage,
				fmt.Sprintf("the history does not tell the budget of %s at revision %d", set.GetDomain(), r.Msg.GetRevision()),
				"coordinator budget history lists the changes")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// changedAt is the domain whose budget the revision changed, or the next one that was changed after it.
func changedAt(s *ledger.State, revision uint64) string {
	for _, x := range s.Changes {
		if x.Revision >= revision {
			return x.Domain
		}
	}
	return s.Tree().Root().Name
}
