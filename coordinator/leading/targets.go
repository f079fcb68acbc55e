package leading

import (
	"cmp"
	"fmt"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// targetsKept is how many targets of a node are remembered for node explain.
const targetsKept = 8

// targetHistory remembers the newest targets of each node in this leadership.
type targetHistory struct {
	moves map[string][]target
	last  map[string]units.Power
}

type target struct {
	at       time.Time
	revision uint64
	from, to units.Power
	why      string
}

func newTargetHistory() *targetHistory {
	return &targetHistory{moves: map[string][]target{}, last: map[string]units.Power{}}
}

// look takes in the targets as committed now.
func (h *targetHistory) look(s *ledger.State, at time.Time) {
	for name, n := range s.Nodes {
		if was, known := h.last[name]; known && was != n.Target {
			list := append([]target{{at, s.PowerRevision, was, n.Target, movedBy(s, n, was)}}, h.moves[name]...)
			h.moves[name] = list[:min(len(list), targetsKept)]
		}
		h.last[name] = n.Target
	}
	for name := range h.last {
		if _, ok := s.Nodes[name]; !ok {
			delete(h.last, name)
			delete(h.moves, name)
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

func (h *targetHistory) of(node string) []target { return h.moves[node] }
