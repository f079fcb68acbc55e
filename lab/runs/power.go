package runs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

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

	// Reason is the reason of the changes in the coordinators' log.
	Reason string
}

// Hold goes from one budget of the site to the next, and bounds what each node may hold; caps are in the order of the nodes.
// The budget never comes below the caps on the way.
func (p Power) Hold(ctx context.Context, was, next float64, caps ...float64) error {
	if next > was {
		return errors.Join(p.budget(ctx, next), p.cap(ctx, caps))
	}
	return errors.Join(p.cap(ctx, caps), p.budget(ctx, next))
}

// budget sets the budget of the site.
func (p Power) budget(ctx context.Context, part float64) error {
	to := units.FromWatts(math.Round(p.Site.Full().Watts() * part))
	err := p.Leader(ctx, func(ctx context.Context, base string) error {
		_, err := p.Operators(base).SetBudget(ctx, connect.NewRequest(&headroomv1.SetBudgetRequest{Domain: cluster.Domain, BudgetUw: int64(to), ConfirmUw: int64(to), Change: p.Signed(p.Reason)}))
		return err
	})
	if err != nil {
		return fmt.Errorf("runs: set the budget: %w", err)
	}
	return nil
}

// cap bounds what each node of the site may hold.
func (p Power) cap(ctx context.Context, parts []float64) error {
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

// The joules for sprints, alike for all variants: at first what all nodes draw in potFor at what they are rated; they come
// back at refill of that.
const (
	potFor = 20 * time.Second
	refill = 0.1
)

// Pot is the capacity of the sprint budget of a site that is rated so, and by how much it refills.
func Pot(rated units.Power) (units.Energy, units.Power) {
	return rated.For(potFor), units.FromWatts(rated.Watts() * refill)
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
