// Claims: P4: what a node holds or draws above its ceiling is taken from the others, and from
// nobody once it is over; the node itself obeys cuts like every other, and is never raised to
// what it takes.
package ledger_test

import (
	"testing"

	"headroom/ledger"
	"headroom/units"
)

func TestExcessCutsTheOthers(t *testing.T) {
	t.Parallel()
	s := admitted(t, 400, "n01", "n02")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}, {Node: "n02", Cap: 200 * watt}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	seqs := map[string]uint64{"n01": 2, "n02": 2}
	turn := func(number uint64, n01, n02 units.Power) map[string]units.Power {
		t.Helper()
		table.Heard(heard("n01", number, seqs["n01"], n01), 0)
		table.Heard(heard("n02", number, seqs["n02"], n02), 0)
		k := ledger.Decide(s, table, 0)
		tick(t, s, k)
		got := map[string]units.Power{}
		for _, x := range k.Targets {
			got[x.Node] = x.Cap
			seqs[x.Node]++
		}
		return got
	}
	if got := turn(20, 240, 200); len(got) != 1 || got["n02"] != 160*watt {
		t.Errorf("40 W of excess: targets %v, want n02 lowered to 160 W", got)
	}
	if got := turn(21, 240, 160); len(got) != 0 || s.Totals()["site/lab"].Headroom() != 0 {
		t.Errorf("targets %v, headroom %v", got, s.Totals()["site/lab"].Headroom())
	}
	do(t, s, ledger.Command{Budget: set("site/lab", 340), RequestID: "cut"})
	if got := turn(22, 240, 160); got["n01"] != 170*watt || got["n02"] != 100*watt {
		t.Errorf("after a cut to 340 W: targets %v, want n01 at its share of 170 W and n02 at what is left, 100 W", got)
	}
	turn(23, 170, 100)
	if turn(24, 170, 100); s.Nodes["n01"].Target != 170*watt || s.Nodes["n02"].Target != 170*watt {
		t.Errorf("after the excess: targets %v and %v, want 170 W each", s.Nodes["n01"].Target, s.Nodes["n02"].Target)
	}
}
