// Claim: what operators say of a node is bounded by what the node is, raises no
// cap by itself, and never lowers what the node is charged before it has shown
// that it may be; a node that moves is charged in both domains, one that goes
// leaves its watts behind unless somebody says that it is off.
package ledger_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

func TestSetNodeRefuses(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 33 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, x := range map[string]ledger.Settings{ // floor 70, fail-safe 90, max 220, rated 250
		"a fail-safe cap below the floor": {FailSafe: new(69 * watt)},
		"a fail-safe cap above rated":     {FailSafe: new(251 * watt)},
		"a negative fail-safe cap":        {FailSafe: new(-1 * watt)},
		"a min of nothing":                {Min: new(0 * watt)},
		"a min above rated":               {Min: new(251 * watt)},
		"a min without end":               {Min: new(units.Power(math.MaxInt64))},
		"a max below the fail-safe cap":   {Max: new(89 * watt)},
		"a max below the new fail-safe":   {Max: new(110 * watt), FailSafe: new(120 * watt)},
		"a max below the min":             {Max: new(110 * watt), Min: new(111 * watt)},
		"a max above rated":               {Max: new(251 * watt)},
		"a weight of nothing":             {Weight: new(0.0)},
		"a weight that no plan can use":   {Weight: new(1e-300)},
		"a negative weight":               {Weight: new(-1.0)},
		"a weight without end":            {Weight: new(1001.0)},
		"a weight of no number":           {Weight: new(math.NaN())},
		"a label without name":            {Labels: map[string]string{"": "x"}},
		"a label that is a list":          {Labels: map[string]string{"a": "x,y"}},
		"a label that looks like two":     {Labels: map[string]string{"a=b": "x"}},
		"a label with a space":            {Labels: map[string]string{"a": "x y"}},
		"a label without end":             {Labels: map[string]string{"a": strings.Repeat("x", 65)}},
		"too many labels":                 {Labels: many},
		"an address of a BMC without end": {BMC: strings.Repeat("x", 300)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := refusal(t, admitted(t, 800, "n01"), ledger.Command{Node: &ledger.SetNode{Node: "n01", Settings: x}}, ledger.ErrSettings)
			says(t, err, "n01")
		})
	}
	refused(t, admitted(t, 800, "n01"), ledger.Command{Node: &ledger.SetNode{Node: "n09"}}, ledger.ErrUnknownNode)
}

// Settings count in place of the declaration, and the declaration again when they are taken back.
func TestSettingsCount(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, setNode("n01", func(x *ledger.Settings) {
		x.Min, x.Max, x.FailSafe, x.Weight, x.BMC = new(100*watt), new(240*watt), new(80*watt), new(2.5), "10.0.0.1:623"
		x.Labels = map[string]string{"app": "spark"}
	}))
	n := s.Nodes["n01"]
	if n.Least() != 100*watt || n.Most() != 240*watt || n.FailSafeCap() != 80*watt || n.Share() != 2.5 {
		t.Errorf("least %v, most %v, fail-safe %v, weight %v", n.Least(), n.Most(), n.FailSafeCap(), n.Share())
	}
	refused(t, s, ledger.Command{Tick: new(target(99))}, ledger.ErrTarget)
	refused(t, s, ledger.Command{Tick: new(target(241))}, ledger.ErrTarget)
	tick(t, s, target(240))
	do(t, s, ledger.Command{Node: &ledger.SetNode{Node: "n01"}})
	if n = s.Nodes["n01"]; n.Least() != 90*watt || n.Most() != 220*watt || n.FailSafeCap() != 90*watt || n.Share() != 1 || n.Settings.Labels != nil {
		t.Errorf("taken back: %+v", n)
	}
	if n.Target != 220*watt || n.Charge() != 240*watt {
		t.Errorf("target %v, charged %v: aimed lower at once, charged until it reads back", n.Target, n.Charge())
	}
}

// A declaration may change below the settings that were made for it: they stay
// what they are, within what the node is now, and a snapshot of it can be read.
func TestSettingsOutliveTheDeclaration(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, setNode("n01", func(x *ledger.Settings) {
		x.Min, x.Max, x.FailSafe = new(190*watt), new(240*watt), new(180*watt)
	}))
	small := sighting("n01")
	small.Process, small.Rated, small.Max, small.FailSafe = 78, 120*watt, 110*watt, 75*watt
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{small}})
	n := s.Nodes["n01"]
	if n.FailSafeCap() != 180*watt || n.Rated != 250*watt {
		t.Errorf("fail-safe %v, rated %v: a node's word lowers no rating", n.FailSafeCap(), n.Rated)
	}
	if n.Least() != 190*watt || n.Most() != 240*watt {
		t.Errorf("least %v, most %v", n.Least(), n.Most())
	}
	if snapshot(t, restored(t, s)) != snapshot(t, s) {
		t.Error("a restored server differs")
	}
}

// P4: old and new fail-safe cap are both charged until the node has stored the
// new one, and no lease with the old one can reach it any more.
func TestFailSafeIsChargedTwice(t *testing.T) {
	t.Parallel()
	failSafe := func(watts units.Power) ledger.Command {
		return setNode("n01", func(x *ledger.Settings) { x.FailSafe = new(watts * watt) })
	}
	stored := func(number, seq uint64, effective, stored units.Power) ledger.Tick {
		k := reads("n01", number, seq, effective)
		k.Acks[0].Stored = stored * watt
		return k
	}
	s := admitted(t, 800, "n01")
	do(t, s, failSafe(120)) // seq 2
	wantCharge(t, s, 120, "the new one, at once")
	tick(t, s, stored(20, 2, 90, 120))
	do(t, s, failSafe(80)) // seq 3
	wantCharge(t, s, 120, "the old one, until it has stored the new one")
	tick(t, s, stored(21, 2, 90, 80))
	wantCharge(t, s, 120, "a lease of seq 2 with the old one may be on its way")
	tick(t, s, stored(22, 3, 90, 80))
	wantCharge(t, s, 90, "it has stored the new one with seq 3; its cap is 90 W")

	// A higher one that does not fit is refused; so is no cap raised for it.
	tight := admitted(t, 185, "n01", "n02")
	refused(t, tight, failSafe(96), ledger.ErrOverBudget)
	do(t, tight, failSafe(95))
	if n := tight.Nodes["n01"]; n.Target != 90*watt {
		t.Errorf("target %v, want 90.0 W: the plan raises it when there is room", n.Target)
	}
}

// A fail-safe cap that was committed and taken back may have been stored all the
// same, whether an operator or the node itself named it.
func TestFailSafeThatWasNeverTold(t *testing.T) {
	t.Parallel()
	set := func(watts units.Power) ledger.Command {
		return setNode("n01", func(x *ledger.Settings) { x.FailSafe = new(watts * watt) })
	}
	declare := func(watts units.Power) ledger.Command { // by the same process
		x := sighting("n01")
		x.FailSafe = watts * watt
		return seen(x)
	}
	for name, to := range map[string]func(units.Power) ledger.Command{"an operator": set, "the node": declare} {
		s := admitted(t, 800, "n01")
		do(t, s, to(120)) // seq 2
		do(t, s, to(75))  // seq 3
		wantCharge(t, s, 120, name+" named 120 W, it may have stored that")
		k := reads("n01", 20, 2, 90)
		k.Acks[0].Stored = 75 * watt
		tick(t, s, k)
		wantCharge(t, s, 120, name+": a lease of seq 2 with 120 W may be on its way")
		k = reads("n01", 21, 3, 90)
		k.Acks[0].Stored = 75 * watt
		tick(t, s, k)
		wantCharge(t, s, 90, name+": stored, with its cap of 90 W")
	}
}

// A node that has stopped controlling and controls again, without a new process,
// may still take what was on its way when it stopped.
func TestControlRegained(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2
	tick(t, s, target(100)) // seq 3
	observer := sighting("n01")
	observer.Controlled = false
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{observer}})
	wantCharge(t, s, 250, "it holds nothing")
	tick(t, s, ack(20, 3, 100))
	wantCharge(t, s, 250, "what it held before says nothing")
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}}) // seq 4
	tick(t, s, ack(21, 3, 100))
	wantCharge(t, s, 250, "it may say so of before")
	tick(t, s, ack(22, 4, 100))
	wantCharge(t, s, 100, "it took a lease since")
}

// A min is a wish to the plan: it is given when there is room, and never by the
// command itself, however short the watts are.
func TestMinRaisesNothingByItself(t *testing.T) {
	t.Parallel()
	s := admitted(t, 200, "n01", "n02")
	do(t, s, setNode("n01", func(x *ledger.Settings) { x.Min = new(130 * watt) }))
	if n := s.Nodes["n01"]; n.Target != 90*watt || reserved(s, "site/lab") != 180*watt {
		t.Errorf("target %v", n.Target)
	}
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, name := range []string{"n01", "n02"} {
		table.Heard(heard(name, 20, 1, 90), 0)
	}
	for _, x := range ledger.Decide(s, table, 0).Targets {
		if x.Node == "n01" && x.Cap < 130*watt {
			t.Errorf("%+v: 200 W have no room for a min of 130 W, and less than that is not its min", x)
		}
	}
	do(t, s, ledger.Command{Budget: set("site/lab", 300)})
	do(t, s, ledger.Command{Budget: set("rack/r1", 300)})
	k := ledger.Decide(s, table, 0)
	tick(t, s, k)
	if got := s.Nodes["n01"].Target; got < 130*watt {
		t.Errorf("%v with room for 130 W: %+v", got, k.Targets)
	}
}

// A node that is admitted with a min comes in at its fail-safe cap: its admission
// raises no charge, so that one that does not fit its min cannot block the others.
func TestAdmissionWithMinRaisesNoCharge(t *testing.T) {
	t.Parallel()
	s := founded(t, site(180))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i, name := range []string{"n01", "n02"} {
		tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting(name)}, Acks: reads(name, uint64(i+1), 0, 90).Acks})
		do(t, s, setNode(name, func(x *ledger.Settings) { x.Min = new(150 * watt) }))
		table.Heard(heard(name, 20, 0, 90), 0)
	}
	k := ledger.Decide(s, table, 0)
	tick(t, s, k)
	if len(k.Admit) != 2 || reserved(s, "site/lab") != 180*watt {
		t.Errorf("admitted %v, reserved %v", k.Admit, reserved(s, "site/lab"))
	}
}

// A node that moves is charged in both domains, and once above both, until it has
// acknowledged; then only where it is.
func TestMoveIsChargedInBoth(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}}) // seq 2
	sums := func(site, r1, r2 units.Power) {
		t.Helper()
		for d, want := range map[string]units.Power{"site/lab": site, "rack/r1": r1, "rack/r2": r2} {
			if got := s.Totals()[d]; got.Reserved != want*watt || got.Floor != want*watt {
				t.Errorf("%s: reserved %v, floor %v, want %v W", d, got.Reserved, got.Floor, want)
			}
		}
	}
	sums(180, 180, 90)
	refused(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "site/lab"}}, ledger.ErrMoving)
	tick(t, s, reads("n01", 20, 1, 90))
	sums(180, 180, 90) // it has not taken seq 2
	tick(t, s, reads("n01", 21, 2, 90))
	sums(180, 90, 90)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	sums(180, 90, 90) // it is there
	restored(t, s)

	// Up and down one branch.
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "site/lab"}})
	sums(180, 90, 90)
	tick(t, s, reads("n01", 22, 3, 90))
	sums(180, 90, 0)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r1"}})
	sums(180, 180, 0)
	tick(t, s, reads("n01", 23, 4, 90))
	sums(180, 180, 0)
}

// twoRacks is a site of 2 kW with n01 and n02 in rack/r1, and rack/r2 empty.
func twoRacks(t testing.TB, r1, r2 units.Power) *ledger.State {
	t.Helper()
	s := founded(t, []budget.Domain{
		{Name: "site/lab", Budget: 2000 * watt}, {Name: "rack/r1", Parent: "site/lab", Budget: r1 * watt}, {Name: "rack/r2", Parent: "site/lab", Budget: r2 * watt},
	})
	for i, name := range []string{"n01", "n02"} {
		tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting(name)}, Acks: reads(name, uint64(i+1), 0, 90).Acks, Admit: []string{name}})
	}
	return s
}

func TestMoveRefuses(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 89)
	move := func(node, to string) ledger.Command {
		return ledger.Command{Move: &ledger.MoveNode{Node: node, To: to}}
	}
	refused(t, s, move("n09", "rack/r2"), ledger.ErrUnknownNode)
	refused(t, s, move("n01", "rack/r9"), ledger.ErrUnknownDomain)
	says(t, refusal(t, s, move("n01", "rack/r2"), ledger.ErrOverBudget), "rack/r2", "89.0 W", "90.0 W")
	sprinting := sprinting(t)
	refused(t, sprinting, move("n01", "site/lab"), ledger.ErrSprint)
}

// One that acknowledges nothing (off, released, only observing) moves at once.
func TestMoveOfSilentNode(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	do(t, s, ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}})
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	if reserved(s, "rack/r1") != 90*watt || reserved(s, "rack/r2") != 250*watt {
		t.Errorf("%v and %v", reserved(s, "rack/r1"), reserved(s, "rack/r2"))
	}
}

// The plan sees both charges of a node that moves: it fills neither domain twice, nor the site.
func TestPlanOfMove(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 260, 200)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, name := range []string{"n01", "n02"} {
		table.Heard(heard(name, 20, 1, 90), 0)
	}
	tick(t, s, ledger.Decide(s, table, 0))
	for d, sum := range s.Totals() {
		if sum.Headroom() < 0 {
			t.Errorf("%s: %+v", d, sum)
		}
	}
	if got := s.Nodes["n02"].Target; got != 170*watt {
		t.Errorf("n02 got %v, want 170.0 W: 90 W of 260 W are still n01's", got)
	}
}

// A drained node is walked to its least cap and then gets no lease; a resumed one does.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2
	tick(t, s, ack(20, 2, 200))
	drain := func(resume bool) {
		t.Helper()
		do(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "n01", Resume: resume}})
	}
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	leases := func(number, seq uint64, watts units.Power) int {
		table.Heard(heard("n01", number, seq, watts), 0)
		table.Mark()
		tick(t, s, ledger.Decide(s, table, 0))
		return len(table.Grants(s, 0))
	}
	drain(false) // seq 3
	if n := s.Nodes["n01"]; n.Target != 90*watt || n.Charge() != 200*watt {
		t.Errorf("target %v, charged %v: it has not come down", n.Target, n.Charge())
	}
	if leases(21, 2, 200) != 1 {
		t.Error("no lease to come down with")
	}
	if leases(22, 3, 90) != 0 || !strings.Contains(table.Waiting(s)["n01"], "drained") {
		t.Errorf("a lease for a drained node: %v", table.Waiting(s))
	}
	// What it has to acknowledge still reaches it: a move, a new fail-safe cap, an excess.
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.Parent, x.Budget = "site/lab", 500*watt }))
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}}) // seq 4
	if leases(23, 3, 90) != 1 || leases(24, 4, 90) != 0 {
		t.Error("a drained node that moves needs one lease, and then none")
	}
	if leases(25, 4, 130) != 1 || leases(26, 4, 90) != 0 {
		t.Error("one that holds more than it should needs a lease to come down with")
	}
	drain(false) // again
	drain(true)
	if leases(27, 4, 90) != 1 || s.Nodes["n01"].Target <= 90*watt {
		t.Errorf("a resumed node: %+v", s.Nodes["n01"])
	}
	refused(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "n09"}}, ledger.ErrUnknownNode)
}

// A node that is removed while nobody says that it is off goes on drawing: its
// charge becomes unmanaged watts of where it draws them.
func TestRemoveLeavesItsWatts(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	tick(t, s, target(200))
	before := s.Totals()
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n01"}})
	for d, was := range before {
		if now := s.Totals()[d]; now.Headroom() != was.Headroom() {
			t.Errorf("%s: headroom %v -> %v", d, was.Headroom(), now.Headroom())
		}
	}
	if got := s.Domains["rack/r1"].Unmanaged; got != 200*watt {
		t.Errorf("unmanaged %v", got)
	}
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n02", PoweredOff: true}})
	if got := s.Totals()["site/lab"]; got.Nodes != 0 || got.Reserved != 0 || got.Unmanaged != 200*watt {
		t.Errorf("%+v", got)
	}
	refused(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n02"}}, ledger.ErrUnknownNode)
}

// While it moves between two domains, it may draw in either; in one branch of the tree in the lower.
func TestRemoveWhileMoving(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n02", To: "site/lab"}})
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n01"}})
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n02"}})
	if a, b := s.Domains["rack/r1"].Unmanaged, s.Domains["rack/r2"].Unmanaged; a != 180*watt || b != 90*watt {
		t.Errorf("%v and %v", a, b)
	}
	if got := s.Domains["site/lab"].Unmanaged; got != 0 {
		t.Errorf("the site: %v", got)
	}
}

// A node that appears again after it was removed, or another machine with its
// name, begins above every number that the first may have stored.
func TestRemovedNodeComesBack(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	for i := range 30 {
		tick(t, s, target(units.Power(150+i))) // seq 2 to 31
	}
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n01", PoweredOff: true}})
	s = restored(t, s)
	other := sighting("n01")
	other.MachineID, other.Process = "another", 99
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{other}})
	wantCharge(t, s, 250, "a new machine is charged its rated watts")
	tick(t, s, ledger.Tick{
		Acks:  []ledger.Ack{{Node: "n01", Process: 99, Number: 1, Seq: 31, Effective: 90 * watt, Stored: 90 * watt}},
		Admit: []string{"n01"},
	})
	tick(t, s, target(200))
	tick(t, s, target(100))
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 99, Number: 2, Seq: 31, Effective: 90 * watt, Stored: 90 * watt}}})
	wantCharge(t, s, 200, "seq 31 was the first one's: this one may still take the 200 W")
	if got := s.Nodes["n01"].Seq; got <= 31 {
		t.Errorf("seq %d would be refused by a node that has stored 31", got)
	}
}

// One that was removed while it had leases says so when it comes back: a lease of
// before may still reach it, so it is charged its rated watts, and gets one of now.
func TestRemovedNodeHasHadLeases(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01", "n02")
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n01", PoweredOff: true}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Heard(heard("n03", 1, 0, 90), 0) // new to the world
	tick(t, s, ledger.Decide(s, table, 0))
	wantCharge(t, s, 250, "it has stored seq 1 of before")
	if got := s.Nodes["n03"].Charge(); got != 90*watt {
		t.Errorf("n03 is charged %v", got)
	}
	table.Mark()
	g := table.Grants(s, 0)
	if len(g) != 1 || g[0].Node != "n01" || g[0].Grant.Cap != 90*watt || g[0].Grant.Stamp.Seq != 2 {
		t.Fatalf("granted %+v: 430 W of 300 W are charged, and only a lease can prove less", g)
	}
	table.Heard(heard("n01", 21, 2, 90), 0)
	tick(t, s, ledger.Decide(s, table, 0))
	wantCharge(t, s, 90, "it took a lease of now")
}

// A node that is said to be off is charged nothing until it is heard, whoever
// leads; then its rated watts, until it has taken a lease of now.
func TestPowerOff(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2, may be on its way
	tick(t, s, target(100)) // seq 3
	says(t, refusal(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01"}}, ledger.ErrDeclaration), "source of the report")
	refused(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n09", By: "bmc"}}, ledger.ErrUnknownNode)
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "bmc"}})
	wantCharge(t, s, 0, "it is off")
	before := snapshot(t, s)
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "mia"}})
	if snapshot(t, s) != before {
		t.Error("off twice")
	}
	tick(t, s, ack(20, 3, 90))
	wantCharge(t, s, 0, "a read-back alone says nothing of one that is off")
	refused(t, s, ledger.Command{Tick: new(target(100))}, ledger.ErrNotGrantable)
	next(t, s)

	// The same process, as before: nobody had pulled the plug.
	do(t, s, ledger.Command{Tick: &ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}}}) // seq 4
	wantCharge(t, s, 250, "it is heard: charged its rated watts")
	do(t, s, ledger.Command{Tick: new(ack(21, 2, 90))})
	wantCharge(t, s, 250, "it names seq 2, and may take the 200 W of it again")
	do(t, s, ledger.Command{Tick: new(ack(22, 4, 100))})
	wantCharge(t, s, 100, "it took what was granted after it was heard")
}

// What a leader heard before a node was said to be off, or removed, brings it back to nobody's books.
func TestStaleReportsBringNobodyBack(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Heard(heard("n02", 20, 1, 90), 0)
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "mia"}})
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n02", PoweredOff: true}})
	if k := ledger.Decide(s, table, 4*second); len(k.Seen) != 0 {
		t.Errorf("seen %+v: they are silent for 4 s", k.Seen)
	}
	table.Heard(heard("n01", 21, 1, 90), 5*second)
	table.Heard(heard("n02", 21, 1, 90), 5*second)
	if !ledger.Urgent(s, table, "n01") {
		t.Error("one that was off is heard, and nobody hurries")
	}
	if k := ledger.Decide(s, table, 5*second); len(k.Seen) != 2 {
		t.Errorf("seen %+v: both are alive", k.Seen)
	}
}
