// Claim: the leader's decisions lower at once, raise only what fits and only
// when the nodes have been heard, answer only what was marked, and come to rest.
package ledger_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// P3: a heartbeat is answered only after it was marked, by the process that sent it.
func TestGrantsAnswerWhatWasMarked(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 1, 1, 90), 0)
	if got := table.Grants(s, 0); len(got) != 0 {
		t.Errorf("before any mark: %v", got)
	}
	table.Mark()
	table.Heard(heard("n01", 2, 1, 90), 0)
	got := table.Grants(s, 0)
	if len(got) != 1 || got[0].Grant.Heartbeat != 1 || got[0].Grant.Cap != 90*watt || got[0].Grant.Stamp.Seq != 1 {
		t.Errorf("grants %+v, want one that answers heartbeat 1", got)
	}
	other := heard("n01", 7, 1, 90)
	other.Process = 78
	table.Heard(other, 0)
	if got := table.Grants(s, 0); len(got) != 0 {
		t.Errorf("an unmarked heartbeat of a new process was answered: %v", got)
	}
	table.Mark()
	if got := table.Grants(s, 0); len(got) != 0 {
		t.Errorf("a process that the log does not know was answered: %v", got)
	}
}

// A mark counts for the process that was marked.
func TestMarkIsOfOneProcess(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 9, 1, 90), 0)
	table.Mark()
	next := heard("n01", 1, 1, 90)
	next.Process = 78
	table.Heard(next, 0)
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{next.Sighting}})
	if got := table.Grants(s, 0); len(got) != 0 {
		t.Errorf("a new process got a lease for the heartbeat of an earlier one: %+v", got)
	}
}

// An older heartbeat that arrives later changes nothing.
func TestOlderHeartbeatIsIgnored(t *testing.T) {
	t.Parallel()
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 5, 1, 90), 0)
	table.Heard(heard("n01", 4, 1, 200), second)
	if v, _ := table.View("n01", second); v.Report.Number != 5 || v.Age != second {
		t.Errorf("%+v", v)
	}
}

// A lost node's lease runs out in what operators see, although its last
// heartbeat goes on being answered.
func TestLeaseOfLostNodeRunsOutInView(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 1, 1, 90), 0)
	for i := range 12 {
		table.Mark()
		if got := table.Grants(s, second*time.Duration(i)); len(got) != 1 {
			t.Fatalf("second %d: %v", i, got)
		}
	}
	if v, _ := table.View("n01", 4*second); v.Lease != 6*second {
		t.Errorf("after 4 s %v are left, want 6 s", v.Lease)
	}
	if v, _ := table.View("n01", 12*second); v.Lease != 0 {
		t.Errorf("after 12 s %v are left", v.Lease)
	}
}

// A number that this log never gave, stored for another cluster perhaps, proves nothing.
func TestNumberThatWasNeverGiven(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2
	tick(t, s, target(100)) // seq 3
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 900, 90), 0)
	tick(t, s, ledger.Tick{Acks: ledger.Decide(s, table, 0).Acks})
	wantCharge(t, s, 200, "it may take seq 2")
	table.Heard(heard("n01", 21, 3, 90), 0)
	tick(t, s, ledger.Tick{Acks: ledger.Decide(s, table, 0).Acks})
	wantCharge(t, s, 100, "it took seq 3")
}

// A node that is on its way back from a sprint is not raised: its read-back would
// not tell the one from the other.
func TestNoRaiseOnTheWayBack(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, sprint("s1", "n01"))
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}}) // seq 3
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i := range 3 {
		table.Heard(heard("n01", uint64(20+i), 3, 200), 0) // it has the number, its hardware lags
		table.Heard(heard("n02", uint64(20+i), 1, 90), 0)
		table.Heard(heard("n03", uint64(20+i), 1, 90), 0)
		tick(t, s, ledger.Decide(s, table, 0))
	}
	if n := s.Nodes["n01"]; n.Target != 90*watt || !s.Sprints["s1"].Open() || s.Nodes["n02"].Target <= 90*watt {
		t.Errorf("%+v", n)
	}
}

// Decisions on one state may be made at once, of the leader's tick and of an operator's plan.
func TestDecisionsShareNothing(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	for i := range 20 { // so that the audit log has room for a line more
		do(t, s, ledger.Command{Budget: set("site/lab", units.Power(800+i))})
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			table := ledger.NewTable(ledger.DefaultTiming(), 0)
			table.Heard(heard("n03", 1, 0, 90), 0)
			if k := ledger.Decide(s, table, 0); len(k.Seen) != 1 {
				t.Errorf("%+v", k)
			}
			if _, err := ledger.PlanBudget(s, table, 0, "site/lab", 500*watt); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
}

// A new leader only cuts until it has heard every node, or one lease has passed.
func TestNewLeaderOnlyCuts(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 9, 1, 90), 0)
	if k := ledger.Decide(s, table, 0); len(k.Targets) != 0 {
		t.Errorf("before n02 was heard: %+v", k.Targets)
	}
	late := 11 * second
	table.Heard(heard("n01", 10, 1, 90), late)
	if k := ledger.Decide(s, table, late); len(k.Targets) != 1 || k.Targets[0].Node != "n01" {
		t.Errorf("after a lease: %+v, want a raise of n01", k.Targets)
	}
	table.Heard(heard("n02", 9, 1, 90), late)
	if k := ledger.Decide(s, table, late); len(k.Targets) != 2 {
		t.Errorf("after both were heard: %+v, want two raises", k.Targets)
	}
	must(t, s, ledger.Command{Epoch: first(), Budget: set("site/lab", 190)})
	tick(t, s, ledger.Tick{})
	fresh := ledger.NewTable(ledger.DefaultTiming(), late)
	fresh.Heard(heard("n01", 11, 1, 90), late)
	if k := ledger.Decide(s, fresh, late); len(k.Targets) != 0 {
		t.Errorf("%+v", k.Targets)
	}
}

// A raise waits until the lower that pays for it has been read back.
func TestRaiseWaitsForTheLower(t *testing.T) {
	t.Parallel()
	s := admitted(t, 310, "n01", "n02")
	tick(t, s, target(220))
	tick(t, s, ack(20, 2, 220))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 21, 2, 220), 0)
	table.Heard(heard("n02", 21, 1, 90), 0)
	k := ledger.Decide(s, table, 0)
	if len(k.Targets) != 1 || k.Targets[0] != (ledger.Target{Node: "n01", Cap: 155 * watt}) {
		t.Fatalf("%+v, want only n01 lowered to 155 W", k.Targets)
	}
	tick(t, s, k)
	if k = ledger.Decide(s, table, second); len(k.Targets) != 0 {
		t.Fatalf("before the read-back: %+v", k.Targets)
	}
	table.Heard(heard("n01", 22, 3, 155), second)
	if !ledger.Urgent(s, table, "n01") {
		t.Error("a read-back that lowers a charge should not wait for its second")
	}
	table.Heard(heard("n02", 22, 1, 90), second)
	if k = ledger.Decide(s, table, second); len(k.Targets) != 1 || k.Targets[0] != (ledger.Target{Node: "n02", Cap: 155 * watt}) {
		t.Fatalf("%+v, want n02 raised to 155 W", k.Targets)
	}
	tick(t, s, k)
	if got := s.Totals()["site/lab"].Reserved; got != 310*watt {
		t.Errorf("reserved %v", got)
	}
}

// While there is not yet room for all that the plan wants, nodes whose jobs are
// late come first under the policy of that name.
func TestRaisesPutTheLateFirst(t *testing.T) {
	t.Parallel()
	s := admitted(t, 500, "n01", "n02", "n03")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n03", Cap: 220 * watt}}})
	do(t, s, ledger.Command{Policy: &ledger.Named{Name: "progress"}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Behind(map[string]bool{"n02": true})
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Heard(heard("n02", 20, 1, 90), 0)
	table.Heard(heard("n03", 20, 2, 220), 0)
	k := ledger.Decide(s, table, 0) // 100 W are free before n03 has come down
	for _, x := range k.Targets {
		if x.Node == "n01" || x.Node == "n02" && x.Cap != 190*watt {
			t.Errorf("%+v, want all of the 100 W for n02", k.Targets)
		}
	}
}

// P5: a cut does not wait for a lost node; what that node is charged is cut from the others.
func TestCutPassesTheLostNode(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}, {Node: "n02", Cap: 200 * watt}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n02", 20, 2, 200), 0)
	plan, err := ledger.PlanBudget(s, table, 0, "site/lab", 320*watt)
	if err != nil {
		t.Fatal(err)
	}
	if got := plan.StuckNames(); len(got) != 1 || got[0] != "n01" {
		t.Errorf("stuck: %v", got)
	}
	if got := plan.Lowers(); len(got) != 1 || got[0] != (ledger.Target{Node: "n02", Cap: 120 * watt}) {
		t.Errorf("lowers: %+v, want n02 to 120 W", got)
	}
	must(t, s, ledger.Command{Epoch: first(), Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 320 * watt, Targets: plan.Lowers()}})
	if got := s.Totals()["site/lab"].Headroom(); got != -80*watt {
		t.Errorf("headroom %v before n02 has read back", got)
	}
	if _, err := ledger.PlanBudget(s, table, 0, "none", watt); err == nil {
		t.Error("an unknown domain was planned")
	}
}

// A cut waits for every node that may still hold more than its plan: also for one whose lower
// is on its way already, of an earlier cut or of a sprint's end. It gets a number of its own, so
// that only a newer read-back confirms it.
func TestCutFollowsLowersOnTheirWay(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}, {Node: "n02", Cap: 200 * watt}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 2, 200), 0)
	table.Heard(heard("n02", 20, 2, 200), 0)
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 90 * watt}}}) // n01 has not read it back
	plan, err := ledger.PlanBudget(s, table, 0, "site/lab", 180*watt)
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.Move{{Node: "n01", From: 200 * watt, To: 90 * watt}, {Node: "n02", From: 200 * watt, To: 90 * watt}}
	if !slices.Equal(plan.Moves, want) {
		t.Errorf("moves %+v, want %+v", plan.Moves, want)
	}
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 180 * watt, Targets: plan.Lowers()}})
	if n := s.Nodes["n01"]; n.Seq != 4 || n.Target != 90*watt {
		t.Errorf("%+v", n)
	}
	old, n := heard("n01", 21, 3, 90), s.Nodes["n01"]
	if got := old.Seq(s, &n); got != 3 {
		t.Errorf("a read-back of before the cut proves number %d", got)
	}
	foreign := heard("n01", 21, 9, 90) // a number that was never given
	if got := foreign.Seq(s, &n); got != 0 {
		t.Errorf("a foreign number proves %d", got)
	}
}

// The plan of a change shows whose caps move, and what would be missing.
func TestPlanMoves(t *testing.T) {
	t.Parallel()
	s := admitted(t, 400, "n01", "n02", "n03")
	caps := ledger.Tick{}
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i, n := range []string{"n01", "n02", "n03"} {
		caps.Targets = append(caps.Targets, ledger.Target{Node: n, Cap: 130 * watt})
		table.Heard(heard(n, uint64(20+i), 1, 90), 0)
	}
	tick(t, s, caps)
	after := func(c ledger.Command) *ledger.State {
		next := s.Clone()
		do(t, next, c)
		return next
	}
	drained := after(ledger.Command{Drain: &ledger.DrainNode{Node: "n02"}})
	moves, missing := ledger.PlanMoves(s, drained, table, 0)
	want := []ledger.Move{{Node: "n01", From: 130 * watt, To: 155 * watt}, {Node: "n02", From: 130 * watt, To: 90 * watt}, {Node: "n03", From: 130 * watt, To: 155 * watt}}
	if !slices.Equal(moves, want) || len(missing) != 0 {
		t.Errorf("moves %+v, missing %v", moves, missing)
	}
	if moves, _ = ledger.PlanMoves(s, s, table, 0); len(moves) != 0 {
		t.Errorf("nothing moves %+v", moves)
	}
	high := 350 * watt
	_, missing = ledger.PlanMoves(s, after(setDomain("rack/r1", func(x *ledger.SetDomain) { x.Unmanaged = &high })), table, 0)
	if missing["rack/r1"] != 220*watt || missing["site/lab"] != 220*watt {
		t.Errorf("missing %v: three nodes at 90 W beside 350 W of 400 W", missing)
	}
}

// The audit log says which change moved a node's cap, under every leader.
func TestMoved(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.Parent, x.Budget = "site/lab", 300*watt }))
	do(t, s, ledger.Command{Actor: "mia", Reason: "heat", Budget: set("site/lab", 700)})
	do(t, s, ledger.Command{Actor: "mia", Budget: set("rack/r2", 200)})
	do(t, s, ledger.Command{Actor: "eve", Drain: &ledger.DrainNode{Node: "n02"}})
	do(t, s, ledger.Command{Actor: "coordinator/c1", Tick: &ledger.Tick{Seen: []ledger.Sighting{sighting("n09")}}})
	next(t, s)
	do(t, s, ledger.Command{Actor: "coordinator/c2", Drain: &ledger.DrainNode{Node: "n02", Resume: true}})
	text := ""
	for _, e := range ledger.Moved(s, "n01", 2) {
		text += e.Actor + ": " + e.What + "\n"
	}
	if want := "eve: node n02 drained\nmia: budget site/lab 800.0 W -> 700.0 W\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// A shortfall is worth the smallest step; otherwise caps do not follow every flicker.
func TestDeadbandGivesWayToShortfall(t *testing.T) {
	t.Parallel()
	s := admitted(t, 181, "n01", "n02")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 2, 90), 0)
	table.Heard(heard("n02", 20, 1, 90), 0)
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 90*watt + watt/2}}})
	if k := ledger.Decide(s, table, 0); len(k.Targets) != 0 {
		t.Errorf("half a watt moved: %+v", k.Targets)
	}
	must(t, s, ledger.Command{Epoch: first(), Budget: set("site/lab", 180), RequestID: "cut"})
	if k := ledger.Decide(s, table, 0); len(k.Targets) != 1 || k.Targets[0].Cap != 90*watt {
		t.Errorf("%+v, want n01 lowered to 90 W", k.Targets)
	}
}

// A node that may not come in is told why.
func TestWaitingSaysWhy(t *testing.T) {
	t.Parallel()
	s := admitted(t, 180, "n01", "n02")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	stranger, observer, lost := heard("n01", 1, 0, 90), heard("obs", 1, 0, 90), heard("lost", 1, 0, 90)
	stranger.MachineID, observer.Controlled, lost.Domain = "another", false, "rack/none"
	for _, r := range []ledger.Report{stranger, observer, lost, heard("n03", 1, 0, 90), heard("new", 1, 0, 90)} {
		table.Heard(r, 0)
	}
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{observer.Sighting, sighting("n03")}})
	table.Mark()
	got := table.Waiting(s)
	for node, want := range map[string]string{
		"obs": "in observe mode", "lost": "not in the power tree", "new": "not yet recorded in the log", "n03": "over its budget",
	} {
		if !strings.Contains(got[node], want) {
			t.Errorf("%s: %q, want %q", node, got[node], want)
		}
	}
	if k := ledger.Decide(s, table, 0); len(k.Seen) != 1 || k.Seen[0].Node != "new" || len(k.Admit) != 0 {
		t.Errorf("seen %v, admitted %v: want only the new node seen, nobody admitted", k.Seen, k.Admit)
	}
}

// Lesson 18: a cold start of a large site is admitted in stages.
func TestAdmissionsAreStaged(t *testing.T) {
	t.Parallel()
	s := founded(t, site(100_000))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i := range 150 {
		table.Heard(heard("n"+strings.Repeat("x", i), 1, 0, 90), 0)
	}
	for _, want := range []int{64, 64, 22, 0} {
		k := ledger.Decide(s, table, 0)
		if len(k.Admit) != want {
			t.Errorf("admitted %d, want %d", len(k.Admit), want)
		}
		tick(t, s, k)
	}
}

// The margin covers a node's clock and the leader's, each off by rho.
func TestMargin(t *testing.T) {
	t.Parallel()
	timing := ledger.DefaultTiming()
	slow := float64(timing.Lease) / (1 - ledger.Rho) * (1 + ledger.Rho)
	if got := float64(timing.Lease + timing.Margin()); got < slow-1e3 {
		t.Errorf("lease and margin %v, a slow node may hold %v", got, slow)
	}
	slow = float64(timing.Lease+timing.Settle) / (1 - ledger.Rho) * (1 + ledger.Rho)
	if got := float64(timing.Fallen()); got < slow-1e3 {
		t.Errorf("taken to have fallen after %v, a slow node may take %v", got, slow)
	}
}

// The stamp of a lease orders by leadership first.
func TestStampNamesLeadership(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	before := s.Stamp(s.Nodes["n01"])
	must(t, s, ledger.Command{Epoch: lease.Epoch{Incarnation: 1, Term: 4}, Lead: &ledger.Lead{Server: "c3"}})
	if after := s.Stamp(s.Nodes["n01"]); after.Compare(before) <= 0 || after.Seq != before.Seq {
		t.Errorf("%v after %v", after, before)
	}
}

// A held node gets no more than its hold leaves it, and others get its watts; the hold ends by itself.
func TestHeldNodesLeaveWattsToOthers(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01", "n02")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 150 * watt}, {Node: "n02", Cap: 150 * watt}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Holds(map[string]ledger.Hold{"n01": {Most: 110 * watt, Until: 10 * second}})
	caps := func(at time.Duration) map[string]units.Power {
		table.Heard(heard("n01", 20+uint64(at/second), s.Nodes["n01"].Seq, s.Nodes["n01"].Target/watt), at)
		table.Heard(heard("n02", 20+uint64(at/second), s.Nodes["n02"].Seq, s.Nodes["n02"].Target/watt), at)
		out := map[string]units.Power{}
		for _, x := range ledger.Decide(s, table, at).Targets {
			out[x.Node] = x.Cap
		}
		return out
	}
	if got := caps(0); got["n01"] != 110*watt || got["n02"] != 0 {
		t.Fatalf("%v, want n01 lowered to 110 W, and n02 raised only after that", got)
	}
	if w := ledger.Explain(s, table, 0, "n01"); w.By != "held" || !strings.Contains(w.Words, "110") {
		t.Errorf("%+v", w)
	}
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: 110 * watt}}})
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 1, Number: 21, Seq: s.Nodes["n01"].Seq, Effective: 110 * watt, Stored: 95 * watt}}})
	if got := caps(2 * second); got["n02"] != 190*watt {
		t.Errorf("%v, want n02 raised to 190 W", got)
	}
	if _, held := table.Held("n01", 10*second); held {
		t.Error("the hold does not end")
	}
}
