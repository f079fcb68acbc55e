package arbiter

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/units"
)

// Hold limits a node to less than its plan, so that others get the power. It ends by itself.
type Hold struct {
	Node string
	// Most is its maximum power.
	Most units.Power
	For  time.Duration
	// Reason is why, with the numbers.
	Reason string
}

const (
	// holdRatio is how many times as much a watt must be worth on the gaining node as on the giving one, and keepRatio
	// how much for a hold to continue.
	holdRatio, keepRatio = 3, 1.5
	// holdPart is the fraction of its target that a held node keeps.
	holdPart = 0.75
	// holdFor is the duration of a hold: three decisions.
	holdFor = 15 * time.Second
	// holdPatience is for how long it must have been worthwhile.
	holdPatience = 5 * time.Second
	// roomLeast is the minimum power that a node must lack to count as gaining.
	roomLeast = 2 * units.Watt
	// slackLeast is by how much the remaining time of a job may grow within its deadline for its nodes to give power:
	// the jobs of a held node take at most this many times as long.
	slackLeast = 1 / holdPart
)

// holds decides which nodes give power to others. The value of a watt on a node is the worth of a second of its jobs,
// divided by its power: the speed of a node follows its power by about one exponent everywhere.
func (m *Movers) holds(now time.Duration, rows []*row, values map[string]float64, nodes []Node, out *Moves) (gains watts) {
	nodes = slices.SortedStableFunc(slices.Values(nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	nodes = slices.CompactFunc(nodes, func(a, b Node) bool { return a.Name == b.Name })
	best, gainer := 0.0, ""
	for i := range nodes {
		n := &nodes[i]
		if v := n.value(values); v > best && n.Most-n.Target >= roomLeast && !n.Sprints {
			best, gainer = v, n.Name
		}
	}
	gains.gainer = gainer
	since, hurried := map[string]time.Duration{}, hurriedNodes(rows)
	for i := range nodes {
		n := &nodes[i]
		ratio := float64(holdRatio)
		if n.Held > 0 {
			ratio = keepRatio
		}
		v := n.value(values)
		most := n.Held
		if most <= 0 {
			most = max(n.Floor, units.Power(holdPart*float64(n.Target)))
		}
		worth := max(0, n.Target-most).Watts() * max(0, best-v) * holdFor.Seconds()
		if v <= 0 || best < ratio*v || n.Sprints || n.Held <= 0 && n.Target <= max(n.Floor, 0) || hurried[n.Name] {
			if v > 0 && n.Name != gainer {
				gains.refuse(worth, refusedHold{n, best / v, hurried[n.Name]})
			}
			continue
		}
		began, known := m.holdSince[n.Name]
		if !known {
			began = now
		}
		since[n.Name] = began
		if n.Held <= 0 && now-began < holdPatience {
			gains.refuse(worth, refusedHold{n, best / v, false})
			continue
		}
		gains.worth, gains.count = gains.worth+worth, gains.count+1
		out.Holds = append(out.Holds, Hold{Node: n.Name, Most: most, For: holdFor, Reason: fmt.Sprintf(
			"a watt on %s is worth %.1f times as much as on %s, whose jobs have slack: held at %v for %.0f s", gainer, best/v, n.Name, most, holdFor.Seconds())})
	}
	maps.DeleteFunc(m.holdSince, func(string, time.Duration) bool { return true })
	maps.Copy(m.holdSince, since)
	return gains
}

// refusedHold is a node that gives no power, how many times as much a watt is worth elsewhere, and whether a deadline
// would be missed by it.
type refusedHold struct {
	*Node

	ratio   float64
	hurried bool
}

// why explains it.
func (h refusedHold) why() string {
	switch {
	case h.Node == nil:
		return "no other node has spare power"
	case h.hurried:
		return "jobs on " + h.Name + " would miss their deadlines at a lower cap"
	case h.Sprints:
		return h.Name + " sprints"
	case h.ratio < holdRatio:
		return fmt.Sprintf("a watt is worth %.1f times as much here as on %s; a hold requires %d times", h.ratio, h.Name, holdRatio)
	case h.Target <= max(h.Floor, 0):
		return h.Name + " has no spare power"
	}
	return fmt.Sprintf("%s is held after this has been worthwhile for %.0f s", h.Name, holdPatience.Seconds())
}

// value returns what a watt is worth on the node, from the worth of a second of its jobs.
func (n *Node) value(values map[string]float64) float64 {
	return values[n.Name] / max(1, n.Target.Watts())
}

// hurriedNodes returns the nodes with a job that would miss its deadline if the node gave power.
func hurriedNodes(rows []*row) map[string]bool {
	out := map[string]bool{}
	for _, r := range rows {
		if due, has := r.dueIn(); has && r.left*slackLeast > due {
			for _, p := range r.on {
				out[p.node] = true
			}
		}
	}
	return out
}
