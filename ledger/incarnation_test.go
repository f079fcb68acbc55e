// Claim (P4): a restored snapshot and a recovered quorum know that they know too
// little. Every node is charged its rated watts until a lease of the new
// incarnation has shown what it holds, nothing rises before, the operator names
// every budget, and there is no energy to sprint with.
package ledger_test

import (
	"strings"
	"testing"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

func budgets(site, rack units.Power) map[string]units.Power {
	return map[string]units.Power{"site/lab": site * watt, "rack/r1": rack * watt}
}

// recovered is a site with n01 at 200 W and n02 at 90 W, recovered with these
// budgets, and led again.
func recovered(t testing.TB, site units.Power) *ledger.State {
	t.Helper()
	s := admitted(t, 800, "n01", "n02")
	tick(t, s, target(200))
	tick(t, s, ack(20, 2, 200))
	return recover1(t, s, site)
}

func recover1(t testing.TB, s *ledger.State, site units.Power) *ledger.State {
	t.Helper()
	s = restored(t, s)
	if err := s.Recover(budgets(site, site), 0, "mia", "the disk is gone"); err != nil {
		t.Fatal(err)
	}
	s.AssumeLeases(10 * second)
	next(t, s)
	return s
}

// reportOf is a heartbeat of a node that holds 90 W and has stored seq in the incarnation in force.
func reportOf(s *ledger.State, name string, number, seq uint64) ledger.Report {
	r := heard(name, number, seq, 90)
	r.Highest.Epoch = s.Epoch
	return r
}

func TestRecoverDemandsBudgets(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, ledger.Command{Budget: set("rack/r1", 700)})
	do(t, s, setDomain("rack/r1", func(x *ledger.SetDomain) { x.Rating = new(700 * watt) }))
	for name, c := range map[string]struct {
		budgets map[string]units.Power
		says    string
	}{
		"none":           {nil, "rack/r1"},
		"one of two":     {map[string]units.Power{"site/lab": 5 * watt}, "rack/r1"},
		"one of nothing": {map[string]units.Power{"site/lab": 5 * watt, "rack/r1": 0}, "rack/r1"},
		"one too many":   {map[string]units.Power{"site/lab": 5 * watt, "rack/r1": 5 * watt, "rack/r9": watt}, "rack/r9"},
		"above a rating": {budgets(800, 701), "701.0 W"},
	} {
		before := snapshot(t, s)
		err := s.Recover(c.budgets, 1, "mia", "why")
		says(t, err, c.says)
		if snapshot(t, s) != before {
			t.Errorf("%s: refused, and changed", name)
		}
	}
	if err := s.Recover(budgets(600, 500), 0, "mia", "why"); err != nil {
		t.Fatal(err)
	}
	if s.Domains["site/lab"].Budget != 600*watt || s.Domains["rack/r1"].Budget != 500*watt || !s.Restored || s.Epoch != (lease.Epoch{Incarnation: 2}) {
		t.Errorf("%+v, epoch %v", s.Domains, s.Epoch)
	}
	if got, ok := s.BudgetAt("site/lab", s.Revision); !ok || got != 600*watt {
		t.Errorf("history: %v, %v", got, ok)
	}
	if e := s.Events[len(s.Events)-1]; e.Actor != "mia" || e.Reason != "why" || !strings.Contains(e.What, "incarnation 2") {
		t.Errorf("%+v", e)
	}
}

// What the clock was to change may be older than what the operator has just named.
func TestRecoverForgetsWhatTheClockMissed(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, schedule("night", "0 18 * * *", 700))
	do(t, s, until(500, "2026-11-21T12:00:00Z", "2026-11-21T14:00:00Z"))
	now := at("2026-11-24T12:00:00Z")
	if err := s.Recover(budgets(600, 600), now.UnixMicro(), "mia", "why"); err != nil {
		t.Fatal(err)
	}
	if due := ledger.Due(s, now); len(due) != 0 {
		t.Errorf("due %+v", due)
	}
	if due := ledger.Due(s, now.Add(6*time.Hour)); len(due) != 1 {
		t.Errorf("in the evening: due %+v", due)
	}
}

// Every node is charged its rated watts, whatever the snapshot says of it: aimed,
// off, released, waiting.
func TestEveryNodeIsChargedRated(t *testing.T) {
	t.Parallel()
	s := admitted(t, 2000, "n01", "off", "out")
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("new")}, Acks: reads("new", 1, 0, 90).Acks})
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "off", By: "mia"}})
	do(t, s, ledger.Command{Release: &ledger.Release{Node: "out", MachineID: "machine-out"}})
	s = recover1(t, s, 2000)
	for _, n := range s.NodesByName() {
		if n.Charge() != 250*watt {
			t.Errorf("%s is charged %v", n.Name, n.Charge())
		}
		if n.Name != "out" && n.Target > 90*watt {
			t.Errorf("%s is aimed at %v: who knows what it holds?", n.Name, n.Target)
		}
	}
}

// Only a lease of this incarnation proves anything: not a number of an older one,
// however high, nor a heartbeat of before.
func TestOnlyThisIncarnationProves(t *testing.T) {
	t.Parallel()
	s := recovered(t, 2000)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	tick2 := func() {
		t.Helper()
		do(t, s, ledger.Command{Tick: new(ledger.Decide(s, table, 0))})
	}
	for i, seq := range []uint64{2, s.Nodes["n01"].Seq, 900} {
		old := heard("n01", uint64(30+i), seq, 90)
		old.Highest.Epoch = lease.Epoch{Incarnation: 1, Term: 99}
		table.Heard(old, 0)
		tick2()
		wantCharge(t, s, 250, "it names a number of the incarnation before")
	}
	table.Mark()
	g := table.Grants(s, 0)
	if len(g) != 1 || g[0].Grant.Stamp.Epoch.Incarnation != 2 || g[0].Grant.Cap != 90*watt {
		t.Fatalf("granted %+v, want 90.0 W: nobody is raised by a restored log", g)
	}
	table.Heard(reportOf(s, "n01", 35, s.Nodes["n01"].Seq), 0)
	tick2()
	wantCharge(t, s, 90, "it took a lease of this incarnation")
	if !s.Restored {
		t.Error("n02 has not shown what it holds")
	}
	worse := heard("n02", 40, 900, 240)
	worse.Highest.Epoch = lease.Epoch{Incarnation: 1, Term: 99}
	worse.Effective = 255 * watt
	table.Heard(worse, 0)
	tick2()
	if got := s.Nodes["n02"].Charge(); got != 255*watt {
		t.Errorf("charged %v: bad news needs no proof", got)
	}
}

// Nothing rises while one node is missing; an operator who knows that it is off ends that.
func TestNothingRisesUntilAllHaveShown(t *testing.T) {
	t.Parallel()
	s := recovered(t, 2000)
	refused(t, s, ledger.Command{Tick: new(target(100))}, ledger.ErrRestored)
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule, Refill: 1000 * watt}})
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: second}})
	refused(t, s, sprint("s1", "n01"), ledger.ErrRestored)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(reportOf(s, "n01", 31, s.Nodes["n01"].Seq), 0)
	k := ledger.Decide(s, table, 0)
	if len(k.Targets) != 0 {
		t.Errorf("raised %+v", k.Targets)
	}
	do(t, s, ledger.Command{Tick: &k})
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n02", By: "mia"}})
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: 39 * second}})
	do(t, s, ledger.Command{Tick: &ledger.Tick{}})
	if !s.Restored {
		t.Error("a node that the snapshot does not know may still hold a lease")
	}
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: 2 * second}})
	do(t, s, ledger.Command{Tick: &ledger.Tick{}})
	if s.Restored {
		t.Fatal("all have shown what they hold")
	}
	if k = ledger.Decide(s, table, 0); len(k.Targets) != 1 || k.Targets[0].Cap <= 90*watt {
		t.Errorf("%+v, want n01 raised", k.Targets)
	}
}

// A node that the snapshot does not know, and that says that it has had leases, may
// hold one of the log that was lost: it is charged its rated watts, and gets a
// lease to prove less, whenever it is heard.
func TestUnknownNodeAfterRecovery(t *testing.T) {
	t.Parallel()
	s := recovered(t, 600) // 500 W are charged already
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	r := heard("n03", 9, 12, 90)
	r.Highest.Epoch = lease.Epoch{Incarnation: 1, Term: 9}
	table.Heard(r, 0)
	r = heard("n04", 1, 0, 90) // it says that it has had none, in a heartbeat that may be old
	table.Heard(r, 0)
	do(t, s, ledger.Command{Tick: new(ledger.Decide(s, table, 0))})
	table.Mark()
	for _, name := range []string{"n03", "n04"} {
		if n := s.Nodes[name]; n.Charge() != 250*watt || len(table.Grants(s, 0)) != 2 {
			t.Errorf("%s: charged %v, granted %v", name, n.Charge(), table.Grants(s, 0))
		}
	}
	for i, name := range []string{"n01", "n02", "n03", "n04"} {
		table.Heard(reportOf(s, name, uint64(40+i), s.Nodes[name].Seq), 0)
	}
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: time.Minute}})
	do(t, s, ledger.Command{Tick: new(ledger.Decide(s, table, 0))})
	if s.Restored || reserved(s, "site/lab") != 360*watt {
		t.Errorf("restored %v, reserved %v", s.Restored, reserved(s, "site/lab"))
	}
}

// Sprints of the lost log are closed with nothing to give back, and the budgets are empty; debt stays.
func TestRecoverLeavesNoEnergy(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "rack/r1", Capacity: units.Kilojoule, Refill: watt}})
	s = recover1(t, s, 2000)
	wantBalance(t, s, 0, "who knows what was spent?")
	if p := s.Sprints["s1"]; p.Open() || p.Ended == "" || p.Refunded != 0 {
		t.Errorf("%+v", p)
	}
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i, name := range []string{"n01", "n02", "n03"} {
		r := reportOf(s, name, uint64(30+i), s.Nodes[name].Seq)
		r.Ended = []ledger.SprintSpent{{ID: "s1", Spent: new(units.Energy(1))}}
		table.Heard(r, 0)
	}
	do(t, s, ledger.Command{Tick: new(ledger.Decide(s, table, 0))})
	wantBalance(t, s, 0, "the sprint is closed")
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule}})
	for range 2 {
		do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: time.Minute}})
	}
	if s.Restored {
		t.Error("a sprint of the lost log holds the cluster up")
	}
	debt := sprinting(t)
	do(t, debt, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, debt, ledger.Tick{Acks: append(ended("n01", 20, 3, 90, "s1", 7000).Acks, ended("n02", 20, 3, 90, "s1", 0).Acks...)})
	wantBalance(t, recover1(t, debt, 2000), -1000, "debt is not forgiven")
}

// A restored log that nodes have overtaken begins above what they report; one
// that was not restored has been left behind and must not.
func TestReincarnate(t *testing.T) {
	t.Parallel()
	s := recovered(t, 2000)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	far := heard("n01", 9, 3, 90)
	far.Highest.Epoch = lease.Epoch{Incarnation: 6, Term: 1}
	table.Heard(far, 0)
	if table.Incarnation() != 6 {
		t.Fatalf("heard of %d", table.Incarnation())
	}
	before := snapshot(t, s)
	do(t, s, ledger.Command{Reincarnate: &ledger.Reincarnate{Above: 1}})
	if snapshot(t, s) != before {
		t.Error("begun anew for an older one")
	}
	refused(t, s, ledger.Command{Reincarnate: &ledger.Reincarnate{Above: 1<<64 - 1}}, ledger.ErrIncarnation)
	led := s.Epoch
	do(t, s, ledger.Command{Reincarnate: &ledger.Reincarnate{Above: 6}})
	if s.Epoch != (lease.Epoch{Incarnation: 7}) || !s.Restored || s.Nodes["n01"].Charge() != 250*watt {
		t.Errorf("epoch %v, %+v", s.Epoch, s.Nodes["n01"])
	}
	if _, err := s.Apply(ledger.Command{Epoch: led, Tick: &ledger.Tick{}}); err == nil {
		t.Error("a leadership of the incarnation before goes on")
	}
	refused(t, s, ledger.Command{}, ledger.ErrUnknownCommand)
	if _, err := s.Apply(ledger.Command{Epoch: lease.Epoch{Incarnation: 8, Term: 1}, Lead: &ledger.Lead{Server: "c1"}}); err == nil {
		t.Error("a leadership jumps to an incarnation that nobody began")
	}
	next(t, s)
	fresh := admitted(t, 800, "n01")
	says(t, refusal(t, fresh, ledger.Command{Reincarnate: &ledger.Reincarnate{Above: 6}}, ledger.ErrIncarnation), "6")
}

// The same snapshot, begun anew twice under a clock that is slow, or twice within a
// second, begins two incarnations: nodes that name to the one what the other has granted them would
// prove by it what is not true, and refuse its leases.
func TestSlowClocksBeginDifferentIncarnations(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	saved, begun := snapshot(t, s), map[uint64]bool{}
	for _, wall := range []string{
		"2026-11-24T12:00:00.000017Z", "2026-11-24T11:00:00.001204Z", "2026-11-24T11:00:00.001205Z",
		"2026-11-26T11:00:00.001Z", "2026-11-26T11:00:00.002Z", // two right ones, in one second
	} {
		s, err := ledger.Restore([]byte(saved))
		if err != nil {
			t.Fatal(err)
		}
		s.Epoch.Incarnation = uint64(at("2026-11-25T00:00:00Z").UnixMilli()) // begun by a clock that was right
		if err := s.Recover(budgets(600, 600), at(wall).UnixMicro(), "mia", "why"); err != nil {
			t.Fatal(err)
		}
		if begun[s.Epoch.Incarnation] || s.Epoch.Incarnation <= uint64(at("2026-11-25T00:00:00Z").UnixMilli()) {
			t.Errorf("incarnation %d begins again", s.Epoch.Incarnation)
		}
		begun[s.Epoch.Incarnation] = true
	}
}
