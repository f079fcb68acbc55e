package members

import (
	"cmp"
	"maps"
	"slices"

	"headroom/consensus"
	"headroom/ledger"
)

// stepKind is one kind of step that a leader takes to finish a membership change.
type stepKind string

const (
	stepUpgrade stepKind = "upgrade" // raise the rules in force by one
	stepSeed    stepKind = "seed"    // add a server of raft's list to the ledger
	stepAdd     stepKind = "add"     // add a server of the ledger to raft's list
	stepPromote stepKind = "promote" // make it a voter
	stepRemove  stepKind = "remove"  // remove it from raft's list
	stepForget  stepKind = "forget"  // remove it from the ledger
)

// step is one step that is due, for one server.
type step struct {
	kind   stepKind
	server ledger.Server
}

// membership has all inputs of the next steps.
type membership struct {
	rules, newest int                      // in force, and supported by this server
	servers       map[string]ledger.Server // the wanted servers
	members       []consensus.Health       // the present servers
	facts         map[string]fact          // what each reports about itself
	configured    map[string]Server        // for addresses that are known nowhere else
}

// steps returns the steps that are due. They are independent: each may
// fail, and is decided again at the next check.
func (m membership) steps() []step {
	if m.rules < m.newest && m.allKnow(m.rules+1) {
		return []step{{kind: stepUpgrade}}
	}
	var out []step
	in := map[string]consensus.Health{}
	for _, h := range m.members {
		in[h.ID] = h
		if _, known := m.servers[h.ID]; !known {
			if x, ok := m.seed(h); ok {
				out = append(out, step{stepSeed, x})
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.servers)) {
		x := m.servers[id]
		h, is := in[id]
		switch {
		case x.Leaving && is:
			out = append(out, step{stepRemove, x})
		case x.Leaving:
			out = append(out, step{stepForget, x})
		case !is, h.Address != x.Raft:
			out = append(out, step{stepAdd, x})
		case x.Voter && !h.Voter:
			out = append(out, step{stepPromote, x})
		}
	}
	return out
}

// allKnow reports whether every server of the cluster has just reported that it supports the rules.
func (m membership) allKnow(rules int) bool {
	for _, h := range m.members {
		if f, ok := m.facts[h.ID]; !ok || int(f.said.GetRulesNewest()) < rules || int(f.said.GetRulesOldest()) > rules {
			return false
		}
	}
	return len(m.members) > 0
}

// seed returns the ledger's entry of a server that raft has, with the addresses that
// it reports itself or that are configured.
func (m membership) seed(h consensus.Health) (ledger.Server, bool) {
	addr := m.configured[h.ID].RPC
	if f, ok := m.facts[h.ID]; ok {
		addr = cmp.Or(f.said.GetRpcAddress(), addr)
	}
	return ledger.Server{ID: h.ID, RPC: addr, Raft: h.Address, Voter: h.Voter}, addr != ""
}
