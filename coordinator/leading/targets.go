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

const (
	// changesShown is how many changes of the audit log node explain names.
	changesShown = 3
	// changeMoves is for how long a move of a cap is put down to a change before it: a raise
	// waits for the read-backs of the lowers that pay for it.
	changeMoves = 15 * time.Second
)

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
			list := append([]target{{at, s.PowerRevision, was, n.Target, movedBy(s, n, was, at)}}, h.moves[name]...)
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
func movedBy(s *ledger.State, n ledger.Node, was units.Power, at time.Time) string {
	switch {
	case s.Brake.Active() && n.Target < was:
		return fmt.Sprintf("brake %d", s.Brake.Set)
	case n.Drained && n.Target < was:
		return "drained"
	}
	if e := ledger.Moved(s, n.Name, 1); len(e) > 0 && at.Sub(time.UnixMicro(e[0].At)) <= changeMoves {
		return e[0].What + " by " + e[0].Actor
	}
	return "plan by policy " + cmp.Or(s.Policy, string(budget.Weighted))
}

func (h *targetHistory) of(node string) []target { return h.moves[node] }
