package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"headroom/consensus"
	"headroom/ledger"
	"headroom/ledger/leader"
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
	configured    map[string]ServerConfig  // for addresses that nobody else knows
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

// allKnow tells whether every server of the group has just said that it knows the rules.
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

// membershipNow is what the next steps are decided from, with what servers have
// said of themselves since a moment.
func (s *server) membershipNow(moment time.Time) (membership, error) {
	members, err := s.group.Health()
	if err != nil {
		return membership{}, err
	}
	m := membership{members: members, newest: int(s.machine.Rules), facts: s.factsSince(moment), configured: map[string]ServerConfig{}}
	for _, c := range s.cfg.Servers {
		m.configured[c.ID] = c
	}
	s.machine.View(func(st *ledger.State) { m.rules, m.servers = st.Rules, maps.Clone(st.Servers) })
	return m, nil
}

// carryOn takes the steps that are due, while this server leads.
func (s *server) carryOn(ctx context.Context) {
	m, err := s.membershipNow(lately())
	if err != nil || m.rules == 0 {
		return
	}
	stuck := map[string]error{}
	for _, x := range m.steps()[:min(len(m.steps()), stepsAtOnce)] {
		err := s.take(ctx, x)
		switch {
		case err == nil:
			s.logger.Info("membership step taken", slog.String("step", string(x.kind)), slog.String("server", x.server.ID))
		case errors.Is(err, consensus.ErrNotLeader):
			return // the next leader carries on
		default:
			stuck[x.server.ID] = err
			s.logger.Debug("membership step not taken", slog.String("step", string(x.kind)), slog.String("server", x.server.ID), slog.Any("error", err))
		}
	}
	s.keeper.mu.Lock()
	s.keeper.stuck = stuck
	s.keeper.mu.Unlock()
}

// take takes one step.
func (s *server) take(ctx context.Context, x step) error {
	switch x.kind {
	case stepUpgrade:
		return s.commit(ctx, ledger.Command{Upgrade: &ledger.Upgrade{Rules: s.machine.InForce() + 1}, Reason: "every server knows them"})
	case stepSeed:
		return s.commit(ctx, ledger.Command{Server: &x.server})
	case stepAdd:
		if err := s.welcomes(ctx, x.server); err != nil {
			return err
		}
		return s.group.AddServer(ctx, consensus.Server{ID: x.server.ID, Address: x.server.Raft})
	case stepPromote:
		return s.group.Promote(ctx, x.server.ID)
	case stepRemove:
		return s.takeOut(ctx, x.server.ID)
	case stepForget:
		return s.commit(ctx, s.forgetting(x.server.ID))
	}
	return fmt.Errorf("coordinator: step %q is not known", x.kind)
}

// takeOut removes a server from raft's list. A leader hands its lead over first,
// and leaves the rest to the next one.
func (s *server) takeOut(ctx context.Context, id string) error {
	if err := s.group.MayRemove(id); errors.Is(err, consensus.ErrUnknownServer) {
		return nil
	} else if err != nil {
		return err
	}
	if id != s.cfg.ID {
		return s.group.RemoveServer(ctx, id)
	}
	if err := s.group.Transfer(ctx); err != nil {
		return err
	}
	return consensus.ErrNotLeader
}

// forgetting is the command that ends a removal; it carries on who asked for it and why.
func (s *server) forgetting(id string) ledger.Command {
	c := ledger.Command{RemoveServer: &ledger.Named{Name: id}}
	s.machine.View(func(st *ledger.State) {
		for _, e := range slices.Backward(st.Events) {
			if x, ok := st.Servers[id]; ok && e.What == x.Words() {
				c.Actor, c.Reason = e.Actor, e.Reason
				return
			}
		}
	})
	return c
}

// commit proposes one command through the desk, and returns the error as it is.
func (s *server) commit(ctx context.Context, c ledger.Command) error {
	d := s.leading.Load()
	if d == nil {
		return consensus.ErrNotLeader
	}
	a, err := d.request(ctx, &leader.Request{Command: c, Quiet: true})
	if err != nil {
		return fmt.Errorf("%w: %w", consensus.ErrNotLeader, err)
	}
	return a.Err
}
