package consensus

import "context"

// Propose appends data to the log, in the present lead of this server, and
// returns what Machine.Apply made of it here. See ProposeIn.
func (g *Group) Propose(ctx context.Context, data []byte) (any, error) {
	r := g.leading.Load()
	if r == nil {
		return nil, g.propose(ErrNotLeader)
	}
	return g.ProposeIn(ctx, r.term, data)
}
