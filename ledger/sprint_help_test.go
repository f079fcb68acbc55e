package ledger_test

import (
	"testing"

	"headroom/ledger"
	"headroom/units"
)

// sprinting is a site of 2 kW with n01 and n02 in sprint s1 from 90 W to 200 W for
// 10 s, paid by the site, which had 6 kJ: 1.1 kJ of escrow each. n03 does not sprint.
func sprinting(t testing.TB) *ledger.State {
	t.Helper()
	s := full(t)
	do(t, s, sprint("s1", "n01", "n02"))
	return s
}

// full is that site before the sprint.
func full(t testing.TB) *ledger.State {
	t.Helper()
	s := admitted(t, 2000, "n01", "n02", "n03")
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: 6 * units.Kilojoule, Refill: 1000 * watt}})
	tick(t, s, ledger.Tick{Elapsed: 10 * second})
	return s
}

// sprint takes the nodes to 200 W for 10 s.
func sprint(id string, nodes ...string) ledger.Command {
	x := &ledger.GrantSprint{ID: id, Domain: "site/lab", Duration: 10 * second}
	for _, n := range nodes {
		x.Caps = append(x.Caps, ledger.Target{Node: n, Cap: 200 * watt})
	}
	return ledger.Command{Sprint: x}
}

// balance is what is left in the site's one pot.
func balance(s *ledger.State) units.Energy { return s.Domains["site/lab"].Sprint.Balances[""] }

func wantBalance(t testing.TB, s *ledger.State, joules units.Energy, why string) {
	t.Helper()
	if got := balance(s); got != joules*units.Joule {
		t.Errorf("%v left, want %v: %s", got, joules*units.Joule, why)
	}
}

// ended is a read-back that says what a sprint has spent; negative joules: not measured.
func ended(node string, number, seq uint64, watts units.Power, id string, joules units.Energy) ledger.Tick {
	k := reads(node, number, seq, watts)
	e := ledger.SprintSpent{ID: id}
	if joules >= 0 {
		e.Spent = new(joules * units.Joule)
	}
	k.Acks[0].Ended = []ledger.SprintSpent{e}
	return k
}
