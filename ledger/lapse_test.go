// Claim (P4): where its domain says so, a lost node is charged its fail-safe cap
// once it can hold no lease any more; nowhere else, never earlier, and never a
// node that was granted anything since. No report from before undoes it or
// profits by it.
package ledger_test

import (
	"testing"
	"time"

	"headroom/ledger"
)

// lost is a site that lowers the charge of lost nodes, with n01 at 200 W (seq 2),
// and the table of a leader that heard n01 last at zero and grants n01's lease then.
func lost(t testing.TB) (*ledger.State, *ledger.Table) {
	t.Helper()
	s := admitted(t, 800, "n01", "n02")
	do(t, s, setDomain("site/lab", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostFailSafe) }))
	tick(t, s, target(200))
	tick(t, s, ack(20, 2, 200))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 2, 200), 0)
	table.Mark()
	if got := table.Grants(s, 0); len(got) != 1 {
		t.Fatalf("granted %v", got)
	}
	return s, table
}

// gone is when a node that was granted its last lease at zero has lapsed: 10 s and 30 s, with 1 % twice.
func gone() time.Duration { return ledger.DefaultTiming().Fallen() }

// It lapses once, when its time is over, and stays lapsed although the leader
// remembers its last report of 200 W.
func TestLapse(t *testing.T) {
	t.Parallel()
	s, table := lost(t)
	if k := ledger.Decide(s, table, gone()-1); len(k.Lapsed) != 0 {
		t.Errorf("too early: %+v", k.Lapsed)
	}
	k := ledger.Decide(s, table, gone())
	if len(k.Lapsed) != 1 || k.Lapsed[0] != (ledger.Lapse{Node: "n01", Seq: 2}) {
		t.Fatalf("lapsed %+v", k.Lapsed)
	}
	tick(t, s, k)
	wantCharge(t, s, 90, "its fail-safe cap")
	for i := range 5 {
		if k := ledger.Decide(s, table, gone()+time.Duration(i)*second); !quiet(k) || len(k.Lapsed) != 0 {
			t.Errorf("decided again: %+v", k)
		}
	}
	next(t, s)
	fresh := ledger.NewTable(ledger.DefaultTiming(), 0)
	if k := ledger.Decide(s, fresh, time.Hour); len(k.Lapsed) != 0 {
		t.Errorf("the next leader: %+v", k.Lapsed)
	}
}

// A new leader waits from its own beginning for those it never heard.
func TestLapseWaitsForTheLeader(t *testing.T) {
	t.Parallel()
	s, _ := lost(t)
	table := ledger.NewTable(ledger.DefaultTiming(), time.Minute)
	if k := ledger.Decide(s, table, time.Minute+gone()-1); len(k.Lapsed) != 0 {
		t.Errorf("too early: %+v", k.Lapsed)
	}
	if k := ledger.Decide(s, table, time.Minute+gone()); len(k.Lapsed) != 1 {
		t.Errorf("%+v", k.Lapsed)
	}
}

// A lapse is void for a node that was aimed anew since the leader began to wait,
// for one with nothing to lower, and where the domain keeps the charge.
func TestLapseIsVoid(t *testing.T) {
	t.Parallel()
	lapse := func(seq uint64) ledger.Command {
		return ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: seq}}}}
	}
	s, _ := lost(t)
	tick(t, s, target(210)) // seq 3
	before := snapshot(t, s)
	do(t, s, lapse(2))
	if snapshot(t, s) != before {
		t.Error("a node that was granted more since has lapsed")
	}
	do(t, s, lapse(3))
	before = snapshot(t, s)
	do(t, s, lapse(s.Nodes["n01"].Seq))
	if snapshot(t, s) != before {
		t.Error("a node at its fail-safe cap lapsed again")
	}
	refused(t, s, ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n09"}}}}, ledger.ErrUnknownNode)
}

// While a node moves, both domains must say so.
func TestLapseOfMovingNode(t *testing.T) {
	t.Parallel()
	s, table := lost(t)
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) {
		x.Parent, x.Budget, x.LostCharge = "site/lab", 800*watt, new(ledger.LostKeep)
	}))
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	if k := ledger.Decide(s, table, gone()); len(k.Lapsed) != 0 {
		t.Errorf("%+v: rack/r2 keeps the charge", k.Lapsed)
	}
	refused(t, s, ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: 3}}}}, ledger.ErrLostCharge)
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostInherit) }))
	do(t, s, setDomain("rack/r1", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostKeep) }))
	if k := ledger.Decide(s, table, gone()); len(k.Lapsed) != 0 {
		t.Errorf("%+v: rack/r1, which it leaves, keeps the charge", k.Lapsed)
	}
	refused(t, s, ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: 3}}}}, ledger.ErrLostCharge)
	do(t, s, setDomain("rack/r1", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostInherit) }))
	if k := ledger.Decide(s, table, gone()); len(k.Lapsed) != 1 {
		t.Errorf("%+v", k.Lapsed)
	}
}

// After a restored snapshot nobody knows what a lost node was granted last: it does not lapse.
func TestUnprovenNodeDoesNotLapse(t *testing.T) {
	t.Parallel()
	s, _ := lost(t)
	s = recover1(t, s, 800)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	if k := ledger.Decide(s, table, time.Hour); len(k.Lapsed) != 0 {
		t.Errorf("%+v", k.Lapsed)
	}
	do(t, s, ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: s.Nodes["n01"].Seq}}}})
	wantCharge(t, s, 250, "its rated watts")
}

// A read-back that was under way when the node lapsed lowers nothing below what
// it may take up again, and what is worse than was believed counts.
func TestReadBackAfterLapse(t *testing.T) {
	t.Parallel()
	s, table := lost(t)
	tick(t, s, ledger.Decide(s, table, gone())) // seq 3, 90 W
	tick(t, s, target(150))                     // seq 4: it may be granted before it is heard
	tick(t, s, ack(21, 2, 90))
	wantCharge(t, s, 150, "it names a number from before the lapse")
	tick(t, s, ack(22, 2, 205))
	wantCharge(t, s, 205, "it did not fall to its fail-safe cap: that counts")
	tick(t, s, ack(23, 4, 150))
	wantCharge(t, s, 150, "it took what was granted since")
}

// An excess that was read back before the node was lost is not forgiven, and does
// not make it lapse each second for ever.
func TestLapseKeepsExcess(t *testing.T) {
	t.Parallel()
	s, table := lost(t)
	tick(t, s, ack(21, 2, 230))
	tick(t, s, ledger.Decide(s, table, gone()))
	wantCharge(t, s, 230, "its hardware did not follow")
	tick(t, s, ack(22, 2, 90))
	wantCharge(t, s, 230, "said before it was lost, perhaps")
	if k := ledger.Decide(s, table, gone()+second); len(k.Lapsed) != 0 {
		t.Errorf("%+v", k.Lapsed)
	}
	tick(t, s, ack(23, 3, 90))
	wantCharge(t, s, 90, "it took what was granted since")
}
