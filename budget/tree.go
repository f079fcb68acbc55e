package budget

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"headroom/units"
)

// Domain is one place in the power tree.
type Domain struct {
	// Name is the full name, e.g. "site/lab" or "rack/r1".
	Name string `json:"name"`
	// Parent is the name of the domain above; empty for the root.
	Parent string `json:"parent,omitempty"`
	// Budget is what the domain may draw, everything below it included.
	Budget units.Power `json:"budget_uw"`
	// Unmanaged is drawn in this domain by what no powerd controls.
	Unmanaged units.Power `json:"unmanaged_uw,omitempty"`
}

// Errors of a power tree.
var (
	// ErrNoRoot: every domain names a parent.
	ErrNoRoot = errors.New("no domain without a parent: the power tree needs one root")
	// ErrManyRoots: more than one domain has no parent.
	ErrManyRoots = errors.New("more than one domain without a parent: the power tree needs one root")
	// ErrUnknownParent: a domain names a parent that does not exist.
	ErrUnknownParent = errors.New("its parent does not exist")
	// ErrCycle: a domain lies below itself.
	ErrCycle = errors.New("it is its own ancestor")
	// ErrDuplicate: two domains share a name.
	ErrDuplicate = errors.New("the name is used twice")
	// ErrPolicy: there is no policy of this name.
	ErrPolicy = errors.New("unknown policy")
	// ErrAmount: a budget that is not positive, or negative unmanaged watts.
	ErrAmount = errors.New("its budget must be above 0 W and its unmanaged watts at least 0 W")
)

// Tree is a power tree of any depth: site > feeder > rack.
//
// Invariant: one root; every parent exists and stands before its children in
// order; names are unique.
type Tree struct {
	order []Domain       // parents before children
	at    map[string]int // name -> place in order
	up    []int          // place of the parent, -1 for the root
}

// NewTree checks the domains and orders them. The order they are given in does not matter.
func NewTree(domains []Domain) (*Tree, error) {
	byName := make(map[string]Domain, len(domains))
	for _, d := range domains {
		if _, twice := byName[d.Name]; twice {
			return nil, fmt.Errorf("budget: domain %s: %w", d.Name, ErrDuplicate)
		}
		if d.Budget <= 0 || d.Unmanaged < 0 {
			return nil, fmt.Errorf("budget: domain %s: %w", d.Name, ErrAmount)
		}
		byName[d.Name] = d
	}
	depths := make(map[string]int, len(domains))
	roots := 0
	for _, d := range domains {
		depth, err := depthOf(d, byName)
		if err != nil {
			return nil, fmt.Errorf("budget: domain %s: %w", d.Name, err)
		}
		depths[d.Name] = depth
		if depth == 0 {
			roots++
		}
	}
	if err := oneRoot(roots); err != nil {
		return nil, err
	}
	order := slices.Clone(domains)
	slices.SortFunc(order, func(a, b Domain) int {
		return cmp.Or(cmp.Compare(depths[a.Name], depths[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	return link(order), nil
}

func oneRoot(roots int) error {
	switch roots {
	case 0:
		return ErrNoRoot
	case 1:
		return nil
	}
	return ErrManyRoots
}

func depthOf(d Domain, byName map[string]Domain) (int, error) {
	depth := 0
	for d.Parent != "" {
		up, ok := byName[d.Parent]
		if !ok {
			return 0, fmt.Errorf("parent %s: %w", d.Parent, ErrUnknownParent)
		}
		if depth++; depth > len(byName) {
			return 0, ErrCycle
		}
		d = up
	}
	return depth, nil
}

func link(order []Domain) *Tree {
	t := &Tree{order: order, at: make(map[string]int, len(order)), up: make([]int, len(order))}
	for i, d := range order {
		t.at[d.Name], t.up[i] = i, -1
		if d.Parent != "" {
			t.up[i] = t.at[d.Parent]
		}
	}
	return t
}

// Root is the domain without a parent.
func (t *Tree) Root() Domain { return t.order[0] }

// Domains are all domains, parents before children.
func (t *Tree) Domains() []Domain { return slices.Clone(t.order) }

// Has reports whether the tree has a domain of this name.
func (t *Tree) Has(name string) bool {
	_, ok := t.at[name]
	return ok
}

// Above are the names of the domain and of all domains above it, the root last.
func (t *Tree) Above(name string) []string {
	var names []string
	i, ok := t.at[name]
	for ok && i >= 0 {
		names = append(names, t.order[i].Name)
		i = t.up[i]
	}
	return names
}

// rollUp adds every domain's own amount to all domains above it.
func (t *Tree) rollUp(own []units.Power) []units.Power {
	sum := slices.Clone(own)
	for i := len(sum) - 1; i > 0; i-- {
		sum[t.up[i]] += sum[i]
	}
	return sum
}

// Totals sums an amount that each place draws (a node's charge, keyed by the
// domain it stands in) over the tree: the result is keyed by domain and counts
// everything below it. Unknown domains are left out.
func (t *Tree) Totals(own map[string]units.Power) map[string]units.Power {
	list := make([]units.Power, len(t.order))
	for name, p := range own {
		if i, ok := t.at[name]; ok {
			list[i] += p
		}
	}
	sums := t.rollUp(list)
	out := make(map[string]units.Power, len(sums))
	for i, p := range sums {
		out[t.order[i].Name] = p
	}
	return out
}

// Unmanaged is, for every domain, the unmanaged watts in it and below it.
func (t *Tree) Unmanaged() map[string]units.Power {
	own := make(map[string]units.Power, len(t.order))
	for _, d := range t.order {
		own[d.Name] = d.Unmanaged
	}
	return t.Totals(own)
}
