package streams

import (
	"cmp"
	"net"
	"slices"
	"time"

	"headroom/gossip"
)

const (
	// trialsMost is how many unproven addresses are tried at a time.
	trialsMost = 16
	// trialTime is how long one of them has to answer as a coordinator while others wait.
	trialTime = 5 * time.Second
	// triedMost bounds how many addresses are remembered as tried.
	triedMost = 4096
	// perSource bounds the addresses that the gossip brings from one machine.
	perSource = 8
)

// trials selects the addresses to open streams to. Configured addresses
// always qualify. An address that others name, any holder of the gossip key included, is on trial
// until a coordinator has answered there, and displaces no other address before that. The zero
// value is empty. It belongs to the owner goroutine.
type trials struct {
	proven map[string]bool          // a coordinator has answered there
	since  map[string]time.Duration // on trial since, on the boot clock
	tried  map[string]time.Duration // when the last trial ended
}

// prove notes that a coordinator has answered at an address.
func (t *trials) prove(addr string) {
	if t.proven == nil {
		t.proven = map[string]bool{}
	}
	if len(t.proven) < Most {
		t.proven[addr] = true
	}
	delete(t.since, addr)
}

// choose divides what is named: settled are the configured addresses and those that
// are proven, on trial are at most trialsMost others, the one that has waited
// longest next.
func (t *trials) choose(configured, named []string, now time.Duration) (settled, onTrial []string) {
	if t.since == nil {
		t.since, t.tried = map[string]time.Duration{}, map[string]time.Duration{}
	}
	settled = sortedOnce(configured)
	var rest []string
	for _, a := range sortedOnce(named) {
		switch {
		case slices.Contains(settled, a):
		case t.proven[a]:
			settled = append(settled, a)
		default:
			rest = append(rest, a)
		}
	}
	for a := range t.proven {
		if !slices.Contains(named, a) {
			delete(t.proven, a) // no longer named: it must be proven again
		}
	}
	for a, since := range t.since {
		if over := len(rest) > trialsMost && now-since >= trialTime; over || !slices.Contains(rest, a) {
			delete(t.since, a)
			if len(t.tried) >= triedMost {
				clear(t.tried)
			}
			t.tried[a] = now
		}
	}
	slices.SortStableFunc(rest, func(a, b string) int { return cmp.Compare(t.tried[a], t.tried[b]) })
	for _, a := range rest {
		if len(t.since) >= trialsMost {
			break
		}
		if _, already := t.since[a]; !already {
			t.since[a] = now
		}
	}
	for _, a := range rest {
		if _, on := t.since[a]; on {
			onTrial = append(onTrial, a)
		}
	}
	slices.Sort(onTrial)
	return settled, onTrial
}

// sortedOnce are the addresses that are none twice and not empty, sorted.
func sortedOnce(addrs []string) []string {
	out := slices.Clone(addrs)
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(a string) bool { return a == "" })
}

// Gossiped are the addresses of coordinators that members of the gossip name, at
// most perSource for one machine: a holder of the key can pose as any number of members.
func Gossiped(members []gossip.Member) []string {
	var out []string
	from := map[string]int{}
	for _, m := range members {
		host, _, err := net.SplitHostPort(m.Addr)
		if err != nil {
			host = m.Addr
		}
		if from[host]++; from[host] <= perSource {
			out = append(out, m.RPC)
		}
	}
	return out
}
