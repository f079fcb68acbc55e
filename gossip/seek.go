package gossip

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// seekFirst is the pause after the first look that found nobody.
	seekFirst = 250 * time.Millisecond
	// seekMost is the longest pause between two looks while alone.
	seekMost = 10 * time.Second
	// healInterval is how often an address that is not among the members is
	// tried, for two halves of a cluster that have forgotten each other.
	healInterval = 30 * time.Second
	// maxKnown bounds the coordinators' addresses that are remembered beside
	// the configured ones.
	maxKnown = 8
)

// seek looks for others until ctx ends: often while it misses them, now and then
// otherwise.
func (g *Gossip) seek(ctx context.Context) {
	var known []string // coordinators seen, newest last
	pause, told := seekFirst, false
	for ctx.Err() == nil {
		known = g.remember(known)
		lost := g.lost()
		g.visit(g.worthATry(known, lost), lost)
		wait := jitter(healInterval)
		switch {
		case !g.lost():
			if told {
				g.log.Info("other members found")
			}
			pause, told = seekFirst, false
		case len(g.cfg.Join)+len(known) > 0:
			if !told {
				g.log.Warn("no gossip member found, retrying", slog.Any("join", g.cfg.Join))
			}
			told = true
			wait = jitter(pause)
			pause = min(2*pause, seekMost)
		}
		g.rest(ctx, wait)
	}
}

// lost is whether this member misses the others: it is alone, or it is a node
// that sees no coordinator.
func (g *Gossip) lost() bool {
	return g.roster.alone() || (g.cfg.Role == RoleNode && len(g.Coordinators()) == 0)
}

// visit joins through the addresses: while lost through each, else through one.
// What does not answer is tried again, so the error is only logged by
// memberlist, as debug.
func (g *Gossip) visit(addrs []string, lost bool) {
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	for _, a := range addrs {
		_, _ = g.list.Join([]string{a})
		if !lost || !g.lost() {
			return
		}
	}
}

// rest waits, or until the last other member has gone.
func (g *Gossip) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-g.roster.lonely:
	}
}

// remember adds the coordinators that live to those once seen: they are worth a
// try when every configured address has gone.
func (g *Gossip) remember(known []string) []string {
	for _, c := range g.Coordinators() {
		if c.Addr != g.addr {
			known = slices.DeleteFunc(known, func(a string) bool { return a == c.Addr })
			known = append(known, c.Addr)
		}
	}
	if len(known) > maxKnown {
		known = slices.Clone(known[len(known)-maxKnown:])
	}
	return known
}

// worthATry are the addresses to ask who is there: those that are not members
// now, and while lost the configured members too, because news of a coordinator
// may have passed this member by.
func (g *Gossip) worthATry(known []string, lost bool) []string {
	here := map[string]bool{g.addr: true}
	for _, m := range g.Members() {
		here[m.Addr] = true
	}
	var out []string
	for _, a := range g.cfg.Join {
		if a != g.addr && (lost || !here[a]) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range known {
		if !here[a] && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// jitter spreads d by a quarter either way, so that a cluster that starts at
// once does not look at once.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
