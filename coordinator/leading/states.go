package leading

import (
	"maps"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

// driftCode is the code of a node's warning that a limit does not stay as it was written.
const driftCode = "limit-drift"

// nodeHistory remembers since when each node is in its state, and when a limit of it last
// drifted, as far as this leader has heard.
type nodeHistory struct {
	states         map[string]string
	since, drifted map[string]time.Time
}

func newNodeHistory() *nodeHistory {
	return &nodeHistory{states: map[string]string{}, since: map[string]time.Time{}, drifted: map[string]time.Time{}}
}

// look takes in the nodes as they are now, and forgets those that are gone.
func (h *nodeHistory) look(nodes []*headroomv1.Node, at time.Time) {
	here := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		name := n.GetName()
		here[name] = true
		if h.states[name] != n.GetState() {
			h.states[name], h.since[name] = n.GetState(), at
		}
		if slices.ContainsFunc(n.GetHealth(), func(i *headroomv1.HealthItem) bool { return i.GetCode() == driftCode }) {
			h.drifted[name] = at
		}
	}
	maps.DeleteFunc(h.states, func(name, _ string) bool { return !here[name] })
	maps.DeleteFunc(h.since, func(name string, _ time.Time) bool { return !here[name] })
	maps.DeleteFunc(h.drifted, func(name string, _ time.Time) bool { return !here[name] })
}
