package consensus

import (
	"time"

	"github.com/hashicorp/raft"
)

// Member is one server as this one sees it.
type Member struct {
	// ID and Address are as configured.
	ID, Address string
	// Voter is whether it counts towards the quorum.
	Voter bool
	// Leader is whether it leads, by what this server knows.
	Leader bool
	// Self marks this server.
	Self bool
	// Contact is when it was last heard: on the leader every server's last
	// answer, on a follower the leader's last message. Zero is unknown, and for
	// this server itself.
	Contact time.Time
	// LastIndex is the last entry of its log, as far as known here; 0 is unknown.
	LastIndex uint64
	// CommitIndex and AppliedIndex are known of this server only; else 0.
	CommitIndex, AppliedIndex uint64
}

// Leader names the server that leads, by what this one knows; both are empty
// while it knows none.
func (g *Group) Leader() (id, address string) {
	a, i := g.raft.LeaderWithID()
	return string(i), string(a)
}

// Members lists the servers in the order of the log's configuration.
func (g *Group) Members() []Member {
	f := g.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	leader, _ := g.Leader()
	leading := leader == g.cfg.ID
	var out []Member
	for _, s := range f.Configuration().Servers {
		m := Member{
			ID: string(s.ID), Address: string(s.Address),
			Voter: s.Suffrage == raft.Voter, Leader: string(s.ID) == leader, Self: string(s.ID) == g.cfg.ID,
		}
		switch {
		case m.Self:
			m.LastIndex, m.CommitIndex, m.AppliedIndex = g.raft.LastIndex(), g.raft.CommitIndex(), g.raft.AppliedIndex()
		case leading:
			m.Contact, m.LastIndex = g.trans.seen(m.ID)
		case m.Leader:
			m.Contact = g.raft.LastContact()
		}
		out = append(out, m)
	}
	return out
}
