// Claim: P4: a node whose limits read back well and bind nothing is charged what it draws
// within 10 s, by the state machines that powerd and the leader run, and the others are cut
// to what the budget leaves; when they bind again, it is charged its cap again.
package simulation

import (
	"testing"
	"time"

	"headroom/ledger"
	"headroom/units"
)

func TestUnboundLimitCutsTheOthers(t *testing.T) {
	t.Parallel()
	cut := 0
	for i := range 12 {
		w := newWorld(Schedule{Seed: seedOf(91, i), SpanMS: 140_000, Only: []string{}}, nil)
		bad := w.nodes[0]
		if !bad.spec.Controlled {
			continue
		}
		others := func() (sum units.Power) {
			for _, n := range w.judge.state.NodesByName() {
				if n.Name != bad.name {
					sum += n.Charge()
				}
			}
			return sum
		}
		var before, after units.Power
		var stuck []string
		var capped, charged ledger.Node
		w.add(50*time.Second, func() {
			before, capped = others(), w.judge.state.Nodes[bad.name]
			bad.integrate()
			bad.hw.unbound = true
		})
		w.add(60*time.Second, func() { charged = w.judge.state.Nodes[bad.name] })
		w.add(75*time.Second, func() {
			after = others()
			for _, n := range w.judge.state.NodesByName() { // while watts are short, no node is above the least
				if n.Grantable() && n.Name != bad.name && n.Charge() > n.Least()+units.Watt && w.judge.state.Totals()[n.Domain].Headroom() < 0 {
					stuck = append(stuck, n.Name)
				}
			}
			bad.integrate()
			bad.hw.unbound = false
		})
		w.run()
		if !capped.Grantable() || capped.Charge() > bad.spec.Rated-20*units.Watt {
			continue // it has no cap that matters
		}
		end := w.judge.state.Nodes[bad.name]
		if charged.Excess < bad.spec.Rated*99/100 || charged.Charge() < charged.Excess {
			t.Errorf("seed %d: 10 s after its limits bound nothing %s is charged %v, excess %v; it draws %v", w.schedule.Seed, bad.name, charged.Charge(), charged.Excess, bad.spec.Rated)
		}
		if end.Excess != 0 {
			t.Errorf("seed %d: a minute after they bound again %s has an excess of %v", w.schedule.Seed, bad.name, end.Excess)
		}
		if len(stuck) > 0 {
			t.Errorf("seed %d: %v above their least caps, and watts are short", w.schedule.Seed, stuck)
		}
		if after < before {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no other node was ever cut")
	}
}
