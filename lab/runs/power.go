package runs

import (
	"context"
	"fmt"
	"math"
	"slices"

	"connectrpc.com/connect"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lab/cluster"
	"headroom/lab/papers"
	"headroom/units"
)

// settled is how near a node's cap must come to what it is to hold.
const settled = 0.02

// Power changes the power of a real run's site. Parts are of what a node, or the whole site, is rated.
type Power struct {
	*papers.Real

	// Reason is what the coordinators' log says of the changes.
	Reason string
}

// Budget sets the budget of the site.
func (p Power) Budget(ctx context.Context, part float64) error {
	to := units.FromWatts(math.Round(p.Site.Full().Watts() * part))
	err := p.Leader(ctx, func(ctx context.Context, base string) error {
		_, err := p.Operators(base).SetBudget(ctx, connect.NewRequest(&headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: int64(to), Change: p.Signed(p.Reason)}))
		return err
	})
	if err != nil {
		return fmt.Errorf("runs: set the budget: %w", err)
	}
	return nil
}

// Cap bounds what each node of the site may hold; parts are in the order of the nodes.
func (p Power) Cap(ctx context.Context, parts ...float64) error {
	for i, name := range p.Site.Nodes() {
		most := int64(units.FromWatts(math.Round(cluster.Rated().Watts() * parts[i])))
		if err := p.Change(ctx, p.Reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetNode{
			SetNode: &headroomv1.SetNode{Node: name, Settings: &headroomv1.NodeSettings{MaxUw: &most}},
		}}); err != nil {
			return fmt.Errorf("runs: cap %s: %w", name, err)
		}
	}
	return nil
}

// Sprints sets the sprint budget of the site.
func (p Power) Sprints(ctx context.Context, capacity units.Energy, refill units.Power) error {
	return p.Change(ctx, p.Reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetSprintBudget{
		SetSprintBudget: &headroomv1.SetSprintBudget{Domain: cluster.Domain, CapacityUj: int64(capacity), RefillUw: int64(refill)},
	}})
}

// Containers sets the policy by which the coordinators divide containers.
func (p Power) Containers(ctx context.Context, policy string) error {
	return p.Change(ctx, p.Reason, &headroomv1.ChangeRequest{What: &headroomv1.ChangeRequest_SetContainerPolicy{SetContainerPolicy: policy}})
}

// Held reports whether every node of the site holds its part.
func (p Power) Held(ctx context.Context, parts ...float64) bool {
	held := 0
	for _, n := range p.Nodes(ctx) {
		i := slices.Index(p.Site.Nodes(), n.GetName())
		if i < 0 || n.EffectiveUw == nil {
			continue
		}
		effective, rated := float64(n.GetEffectiveUw()), float64(n.GetRatedUw())
		if math.Abs(min(effective, rated)/rated/parts[i]-1) < settled {
			held++
		}
	}
	return held == len(p.Site.Nodes())
}
