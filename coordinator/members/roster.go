package members

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/consensus"
	"headroom/coordinator/statemachine"
	"headroom/internal/each"
	"headroom/ledger"
)

// Server is a server of the cluster and its addresses.
type Server struct {
	ID, RPC, Raft string
}

// Seat is a server of the group, or one that is to be.
type Seat struct {
	Server

	// Voter reports whether it votes.
	Voter bool
}

// Roster lists the servers and their addresses: from raft's list, from the
// ledger, and from the configuration for servers that the ledger does not have yet.
type Roster struct {
	self       Server
	configured []Server
	group      *consensus.Group
	machine    *statemachine.Machine
}

// Seats returns the servers of the cluster and those that are to join it, by id. The
// addresses come from the ledger, or from the configuration if the ledger does not have them yet.
func (r *Roster) Seats() []Seat {
	members := r.group.Members()
	if len(members) == 0 { // this server waits to be added
		return []Seat{{Server: r.self}}
	}
	known := map[string]ledger.Server{}
	r.machine.View(func(st *ledger.State) { maps.Copy(known, st.Servers) })
	var out []Seat
	for _, m := range members {
		x := Seat{Server: Server{ID: m.ID, Raft: m.Address}, Voter: m.Voter}
		x.RPC = cmp.Or(known[m.ID].RPC, r.configuredRPC(m.ID))
		out = append(out, x)
		delete(known, m.ID)
	}
	for _, x := range known {
		if !x.Leaving {
			out = append(out, Seat{Server: Server{ID: x.ID, RPC: x.RPC, Raft: x.Raft}})
		}
	}
	slices.SortFunc(out, func(a, b Seat) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Address returns a server's RPC address, empty while unknown.
func (r *Roster) Address(id string) Server {
	for _, x := range r.Seats() {
		if x.ID == id && id != "" {
			return x.Server
		}
	}
	return Server{}
}

// role returns this server's present role.
func (r *Roster) role() string {
	members := r.group.Members()
	if len(members) == 0 {
		return roleWaiting
	}
	if i := slices.IndexFunc(members, func(m consensus.Member) bool { return m.Self && m.Leader }); i >= 0 {
		return roleLeader
	}
	return roleFollower
}

func (r *Roster) configuredRPC(id string) string {
	for _, x := range r.configured {
		if x.ID == id {
			return x.RPC
		}
	}
	return ""
}

// others returns the RPC addresses of the other servers.
func (r *Roster) others() []string {
	var out []string
	for _, x := range r.Seats() {
		if x.ID != r.self.ID && x.RPC != "" {
			out = append(out, x.RPC)
		}
	}
	return out
}

// names returns the members by this server's own log:
// the servers in raft's list, and those that are to join.
func (r *Roster) names() []string {
	out := each.Of(r.group.Members(), func(m consensus.Member) string { return m.ID })
	r.machine.View(func(st *ledger.State) {
		for id, x := range st.Servers {
			if !x.Leaving && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	})
	slices.Sort(out)
	return out
}

// Has reports whether raft's list has a server.
func (r *Roster) Has(id string) bool {
	return slices.ContainsFunc(r.group.Members(), func(m consensus.Member) bool { return m.ID == id })
}

// Votes reports whether a server is a voter.
func (r *Roster) Votes(id string) bool {
	return slices.ContainsFunc(r.group.Members(), func(m consensus.Member) bool { return m.ID == id && m.Voter })
}

// Entry returns the ledger entry for a server that so far only raft has.
func (r *Roster) Entry(id string) ledger.Server {
	at := r.Address(id)
	return ledger.Server{ID: at.ID, RPC: cmp.Or(at.RPC, "unknown"), Raft: at.Raft, Voter: r.Votes(id)}
}

// Standing returns whether a server is a member, as this leader sees it.
func (r *Roster) Standing(id string) *headroomv1.Standing {
	if slices.ContainsFunc(r.group.Members(), func(m consensus.Member) bool { return m.ID == id }) {
		return &headroomv1.Standing{Member: true}
	}
	why := fmt.Sprintf("server %s is not a member of the group", id)
	r.machine.View(func(st *ledger.State) {
		if x, ok := st.Servers[id]; ok && !x.Leaving {
			why = fmt.Sprintf("server %s is to join the group without a log of its own", id)
			return
		}
		for _, e := range slices.Backward(st.Events) {
			if e.What == "server "+id+" removed" {
				why = fmt.Sprintf("server %s was removed at revision %d by %s", id, e.Revision, e.Actor)
				if e.Reason != "" {
					why += fmt.Sprintf(": %q", e.Reason)
				}
				return
			}
		}
	})
	return &headroomv1.Standing{Why: why}
}

// Heir returns the healthy voter that is closest to the end of the log.
func (r *Roster) Heir() (string, error) {
	all, err := r.group.Health()
	if err != nil {
		return "", err
	}
	best, most := "", uint64(0)
	for _, h := range all {
		if h.Voter && !h.Self && h.Healthy() && h.LastIndex >= most {
			best, most = h.ID, h.LastIndex
		}
	}
	if best == "" {
		return "", fmt.Errorf("no other voter is healthy: %w", consensus.ErrNotStable)
	}
	return best, nil
}

// MayLead returns why leadership cannot be transferred to a server, or nil.
func (r *Roster) MayLead(id string) error {
	all, err := r.group.Health()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(h consensus.Health) bool { return h.ID == id })
	switch {
	case i < 0:
		return fmt.Errorf("server %s: %w", id, consensus.ErrUnknownServer)
	case !all[i].Voter:
		return fmt.Errorf("server %s: %w", id, consensus.ErrNotVoter)
	case !all[i].Healthy():
		return fmt.Errorf("server %s: %w: %w", id, consensus.ErrNotStable, all[i].Fault)
	}
	return nil
}

// Incarnation returns the cluster's incarnation by this server's log; 1 while it has none.
func (r *Roster) Incarnation() uint64 {
	n := uint64(1)
	r.machine.View(func(st *ledger.State) { n = max(n, st.Epoch.Incarnation) })
	return n
}
