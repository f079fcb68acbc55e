package members

import (
	"cmp"
	"maps"
	"slices"

	"headroom/consensus"
	"headroom/ledger"
)

// stepKind is one thing that a leader does to finish a change of the group.
type stepKind string

const (
	stepUpgrade stepKind = "upgrade" // raise the rules in force by one
	stepSeed    stepKind = "seed"    // tell the ledger of a server that raft has
	stepAdd     stepKind = "add"     // tell raft of a server that the ledger has
	stepPromote stepKind = "promote" // give it its vote
	stepRemove  stepKind = "remove"  // take it out of raft's list
	stepForget  stepKind = "forget"  // take it out of the ledger
)

// step is what to do next, about one server.
type step struct {
	kind   stepKind
	server ledger.Server
}

// membership is all that the next steps are decided from.
type membership struct {
	rules, newest int                      // in force, and known to this server
	servers       map[string]ledger.Server // what is to be
	members       []consensus.Health       // what is
	facts         map[string]fact          // what each says of itself now
	configured    map[string]Server        // for addresses that nobody else knows
}

// steps are what there is to do now. None of them depends on another: each may
// fail, and is decided anew at the next look.
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

// allKnow reports whether every server of the group has just said that it knows the rules.
func (m membership) allKnow(rules int) bool {
	for _, h := range m.members {
		f, ok := m.facts[h.ID]
		if !ok || int(f.said.GetRulesNewest()) < rules || int(f.said.GetRulesOldest()) > rules {
			return false
		}
	}
	return len(m.members) > 0
}

// seed is the ledger's entry of a server that raft has, with the addresses that
// it says itself or that are configured.
func (m membership) seed(h consensus.Health) (ledger.Server, bool) {
	addr := m.configured[h.ID].RPC
	if f, ok := m.facts[h.ID]; ok {
		addr = cmp.Or(f.said.GetRpcAddress(), addr)
	}
	return ledger.Server{ID: h.ID, RPC: addr, Raft: h.Address, Voter: h.Voter}, addr != ""
}
