// Claim (P8): energy is put aside in the log before a sprint can start, an id is
// spent once, only what every node has measured and is back from returns, and
// whatever is not known to be unspent is spent. A sprint's watts are watts.
package ledger_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"headroom/ledger"
	"headroom/units"
)

// The escrow leaves the balance, the cap is charged under every domain above, and
// the lease carries both, all in one entry.
func TestSprintIsEscrowedBeforeItStarts(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, sprint("s1", "n01", "n02"))
	wantBalance(t, s, 6000-2200, "110 W for 10 s on two nodes")
	for _, d := range []string{"site/lab", "rack/r1"} {
		if got := reserved(s, d); got != (200+200+90)*watt {
			t.Errorf("%s: reserved %v", d, got)
		}
	}
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Mark()
	g := table.Grants(s, 0)
	if len(g) != 1 || g[0].Grant.Cap != 90*watt || g[0].Grant.Stamp.Seq != 2 {
		t.Fatalf("granted %+v", g)
	}
	if x := g[0].Grant.Sprint; x.ID != "s1" || x.Cap != 200*watt || x.Duration != 10*second || x.Escrow != 1100*units.Joule {
		t.Errorf("the lease's sprint: %+v", x)
	}
	if p := s.Sprints["s1"]; p.Escrow() != 2200*units.Joule || p.Spent() != 0 || !p.Open() {
		t.Errorf("%+v", p)
	}
	restored(t, s)
}

func TestSprintRefuses(t *testing.T) {
	t.Parallel()
	with := func(change func(*ledger.GrantSprint)) ledger.Command {
		c := sprint("s2", "n01")
		change(c.Sprint)
		return c
	}
	for name, c := range map[string]struct {
		command ledger.Command
		want    error
	}{
		"no id":                        {sprint("", "n01"), ledger.ErrSprint},
		"an id without end":            {sprint(string(make([]byte, 300)), "n01"), ledger.ErrSprint},
		"an unknown domain":            {with(func(x *ledger.GrantSprint) { x.Domain = "rack/r9" }), ledger.ErrUnknownDomain},
		"a domain without budget":      {with(func(x *ledger.GrantSprint) { x.Domain = "rack/r1" }), ledger.ErrSprint},
		"nobody":                       {sprint("s2"), ledger.ErrSprint},
		"an unknown node":              {sprint("s2", "n09"), ledger.ErrUnknownNode},
		"a node twice":                 {sprint("s2", "n01", "n01"), ledger.ErrSprint},
		"no time":                      {with(func(x *ledger.GrantSprint) { x.Duration = 0 }), ledger.ErrSprint},
		"less time than a wire says":   {with(func(x *ledger.GrantSprint) { x.Duration = time.Microsecond }), ledger.ErrSprint},
		"time without end":             {with(func(x *ledger.GrantSprint) { x.Duration = math.MaxInt64 }), ledger.ErrSprint},
		"a cap that is no sprint":      {with(func(x *ledger.GrantSprint) { x.Caps[0].Cap = 90 * watt }), ledger.ErrTarget},
		"a cap above what it is rated": {with(func(x *ledger.GrantSprint) { x.Caps[0].Cap = 251 * watt }), ledger.ErrTarget},
		"a cap without end":            {with(func(x *ledger.GrantSprint) { x.Caps[0].Cap = math.MaxInt64 }), ledger.ErrTarget},
		"no energy at all":             {with(func(x *ledger.GrantSprint) { x.Caps[0].Cap, x.Duration = 90*watt+1, time.Millisecond }), ledger.ErrTarget},
		"a class that has no share":    {with(func(x *ledger.GrantSprint) { x.Class = "gold" }), nil},
		"more energy than there is":    {with(func(x *ledger.GrantSprint) { x.Duration = time.Minute }), ledger.ErrSprint},
		"more watts than there are":    {sprint("s2", "n01", "n02", "n03"), ledger.ErrOverBudget},
		"one that is drained":          {sprint("s2", "drained"), ledger.ErrNotGrantable},
		"one that is off":              {sprint("s2", "off"), ledger.ErrNotGrantable},
		"one that was never admitted":  {sprint("s2", "new"), ledger.ErrNotGrantable},
		"one that moves":               {sprint("s2", "moving"), ledger.ErrNotGrantable},
		"one of another domain's tree": {with(func(x *ledger.GrantSprint) { x.Domain, x.Caps[0].Node = "rack/r2", "n01" }), ledger.ErrSprint},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := admitted(t, 5000, "n01", "n02", "n03", "drained", "off", "moving")
			do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.Parent, x.Budget = "site/lab", 900*watt }))
			tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("new")}})
			do(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "drained"}})
			do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "off", By: "mia"}})
			do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "moving", To: "rack/r2"}})
			for _, d := range []string{"site/lab", "rack/r2"} {
				do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: d, Capacity: 6 * units.Kilojoule, Refill: 1000 * watt}})
			}
			tick(t, s, ledger.Tick{Elapsed: 6 * second})
			do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: (5*90 + 250 + 220 + 109) * watt, Force: true}})
			if name == "a class that has no share" { // without shares every class draws from the one pot
				do(t, s, c.command)
				return
			}
			refused(t, s, c.command, c.want)
		})
	}
	s := full(t)
	_, err := s.Apply(withEpoch(with(func(x *ledger.GrantSprint) { x.Duration = time.Minute })))
	e, ok := errors.AsType[*ledger.EscrowError](err)
	if !ok || e.Escrow != 6600*units.Joule || e.Balance != 6000*units.Joule {
		t.Errorf("%v names no numbers", err)
	}
	says(t, err, "6.60 kJ", "6.00 kJ", "site/lab")
}

// An operator's max bounds what plans give a node; a sprint goes beyond it, up to
// what the node is rated: without that, a node that has its max could never sprint.
func TestSprintGoesBeyondMax(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, setNode("n01", func(x *ledger.Settings) { x.Max = new(150 * watt) }))
	above := sprint("s1", "n01")
	above.Sprint.Caps[0].Cap = 251 * watt
	says(t, refusal(t, s, above, ledger.ErrTarget), "250.0 W")
	above.Sprint.Caps[0].Cap = 160 * watt
	do(t, s, above)
}

// Numbers of many nodes that are each allowed do not sum to an escrow of nothing.
func TestEscrowDoesNotRunOver(t *testing.T) {
	t.Parallel()
	s := founded(t, site(900_000_000))
	x := &ledger.GrantSprint{ID: "s1", Domain: "site/lab", Duration: time.Hour}
	for i := range 1000 {
		huge := sighting(fmt.Sprint("n", i))
		huge.Rated, huge.Max = ledger.MaxPower, ledger.MaxPower
		do(t, s, ledger.Command{Tick: &ledger.Tick{Seen: []ledger.Sighting{huge}, Acks: reads(huge.Node, 1, 0, 90).Acks, Admit: []string{huge.Node}}})
		x.Caps = append(x.Caps, ledger.Target{Node: huge.Node, Cap: ledger.MaxPower})
	}
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule, Refill: watt}})
	err := refusal(t, s, ledger.Command{Sprint: x}, ledger.ErrSprint)
	if e, ok := errors.AsType[*ledger.EscrowError](err); !ok || e.Escrow < 1000*units.Kilojoule {
		t.Errorf("%v", err)
	}
	x.Caps = append(x.Caps, ledger.Target{Node: "n0", Cap: ledger.MaxPower})
	refused(t, s, ledger.Command{Sprint: x}, ledger.ErrSprint)
}

// What was not spent comes back when the last node is back at its base, and not before.
func TestUnspentEnergyReturnsWithTheLastNode(t *testing.T) {
	t.Parallel()
	s := sprinting(t)                              // seq 2 on both
	tick(t, s, ended("n01", 20, 2, 90, "s1", 400)) // it ended by itself
	tick(t, s, ended("n01", 21, 2, 90, "s1", 0))   // the first word counts
	tick(t, s, ended("n02", 20, 2, 200, "s9", 1))  // another one
	wantBalance(t, s, 3800, "n02 may still sprint")
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1", Why: "time"}}) // seq 3 on both
	tick(t, s, reads("n01", 22, 3, 90))
	tick(t, s, ended("n02", 22, 3, 190, "s1", 900)) // its hardware still holds 190 W
	wantBalance(t, s, 3800, "n02 is not back at its base")
	if !s.Sprints["s1"].Open() {
		t.Error("closed with a node above its base")
	}
	tick(t, s, reads("n02", 23, 2, 90))
	wantBalance(t, s, 3800, "n02 may sprint again: it has not taken seq 3")
	tick(t, s, reads("n02", 24, 3, 90))
	wantBalance(t, s, 6000-400-900, "both are back")
	if p := s.Sprints["s1"]; p.Open() || p.Refunded != 900*units.Joule || p.Spent() != 1300*units.Joule {
		t.Errorf("%+v", p)
	}
	if n := s.Nodes["n01"]; n.Owes != "" || n.Sprint != nil || n.Target != 90*watt {
		t.Errorf("%+v", n)
	}
}

// A refund that is asked for twice is given once, however it is asked.
func TestRefundIsGivenOnce(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	end := ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1", Why: "mia"}}
	do(t, s, end)
	done := ledger.Tick{Acks: append(ended("n01", 20, 3, 90, "s1", 100).Acks, ended("n02", 20, 3, 90, "s1", 100).Acks...)}
	tick(t, s, done)
	wantBalance(t, s, 5800, "refunded")
	before := snapshot(t, s)
	do(t, s, end)
	tick(t, s, done)
	if snapshot(t, s) != before {
		t.Error("asked twice, and something changed")
	}
	refused(t, s, sprint("s1", "n01"), ledger.ErrSprint)
	refused(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s9"}}, ledger.ErrUnknownSprint)
	do(t, s, sprint("s2", "n01"))
}

// While an ended sprint is not settled the domain grants no other; beside one that runs it may.
func TestNoSprintBesideAnEndedOne(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, sprint("s1", "n01"))
	do(t, s, sprint("s2", "n02"))
	refused(t, s, sprint("s3", "n02"), ledger.ErrSprint)
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	says(t, refusal(t, s, sprint("s3", "n03"), ledger.ErrSprint), "s1", "base")
	says(t, refusal(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab"}}, ledger.ErrSprint), "open")
	tick(t, s, reads("n01", 20, 3, 90))
	do(t, s, sprint("s3", "n03"))
}

// A newer target takes cap and sprint together: a cut ends a sprint at once.
func TestCutSupersedesSprint(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, n := range []string{"n01", "n02", "n03"} {
		table.Heard(heard(n, 20, 2, 200), 0)
	}
	// 490 W are reserved, 270 W are the floor: both sprints have to go, no base has.
	plan, err := ledger.PlanBudget(s, table, 0, "site/lab", 300*watt)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 300 * watt, Targets: plan.Lowers()}})
	for _, n := range []string{"n01", "n02"} {
		if x := s.Nodes[n]; x.Sprint != nil || x.Seq != 3 || x.Charge() != 200*watt {
			t.Errorf("%s goes on: %+v", n, x)
		}
	}
	if p := s.Sprints["s1"]; p.Ended == "" || !p.Open() {
		t.Errorf("%+v", p)
	}
	if got := plan.After["site/lab"].Headroom(); got < 0 {
		t.Errorf("the plan is %v short after it", got)
	}
	tick(t, s, ledger.Tick{Acks: append(ended("n01", 21, 3, 90, "s1", 300).Acks, ended("n02", 21, 3, 90, "s1", 300).Acks...)})
	wantBalance(t, s, 5400, "what they measured is spent")
	if got := s.Totals()["site/lab"].Headroom(); got < 0 {
		t.Errorf("%v short", got)
	}
}

// So it is with a node whose least cap was set above its target meanwhile: it is
// raised to it later, when there is room; its sprint does not wait for that.
func TestCutSupersedesSprintBelowMin(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	do(t, s, setNode("n01", func(x *ledger.Settings) { x.Min = new(95 * watt) }))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, n := range []string{"n01", "n02", "n03"} {
		table.Heard(heard(n, 20, 2, 200), 0)
	}
	plan, err := ledger.PlanBudget(s, table, 0, "site/lab", 300*watt)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 300 * watt, Targets: plan.Lowers()}})
	if x := s.Nodes["n01"]; x.Sprint != nil || x.Target != 90*watt {
		t.Errorf("it goes on: %+v", x)
	}
	refused(t, s, ledger.Command{Tick: &ledger.Tick{Targets: target(90).Targets}}, ledger.ErrTarget) // which ends nothing any more
}

// Watts that go missing by evidence end a sprint in the next tick, where they are
// missing, and nowhere else.
func TestShortfallEndsSprintsBelowIt(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n02", To: "rack/r2"}})
	tick(t, s, reads("n02", 20, 2, 90))
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: 6 * units.Kilojoule, Refill: 1000 * watt}})
	tick(t, s, ledger.Tick{Elapsed: 10 * second})
	do(t, s, sprint("s1", "n01"))
	do(t, s, sprint("s2", "n02"))
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.Unmanaged = new(700 * watt) })) // 200 W of 100 W
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 21, 2, 200), 0)
	table.Heard(heard("n02", 21, 3, 200), 0)
	k := ledger.Decide(s, table, 0)
	tick(t, s, k)
	if len(k.EndSprints) != 1 || k.EndSprints[0].ID != "s2" || s.Nodes["n01"].Sprint == nil || s.Nodes["n02"].Sprint != nil {
		t.Errorf("ended %+v", k.EndSprints)
	}
}

// A powerd that was killed in a sprint has measured nothing: its whole escrow is
// spent, and the domain waits until the node has shown that it is back.
func TestKilledPowerdHasSpentItAll(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	tick(t, s, reads("n01", 20, 2, 200))
	again := sighting("n01")
	again.Process = 78
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{again}}) // seq 3
	if n := s.Nodes["n01"]; n.Sprint != nil || n.Charge() != 200*watt {
		t.Errorf("%+v", n)
	}
	refused(t, s, sprint("s2", "n01"), ledger.ErrSprint)
	back := ended("n02", 20, 3, 90, "s1", 200)
	tick(t, s, back) // but seq 3 was never given to n02: it may still sprint
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, s, back)
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: process, Number: 99, Seq: 3, Effective: 90 * watt, Stored: 90 * watt}}})
	wantBalance(t, s, 3800, "an old read-back of the killed process settles nothing")
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 78, Number: 1, Seq: 3, Effective: 90 * watt, Stored: 90 * watt}}})
	wantBalance(t, s, 6000-1100-200, "all of n01's, what n02 measured")
}

// A node that cannot say what it spent has spent its escrow; a later word of a real figure still counts.
func TestUnmeasuredIsSpent(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	tick(t, s, ended("n01", 20, 2, 90, "s1", -1))
	tick(t, s, ended("n02", 20, 2, 90, "s1", -1))
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, s, ended("n01", 21, 3, 90, "s1", -1))
	tick(t, s, ended("n02", 21, 3, 90, "s1", 500))
	wantBalance(t, s, 6000-1100-500, "n01 never knew")
}

// More than the escrow was drawn: that is debt, and refills first.
func TestOverspentBecomesDebt(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, s, ledger.Tick{Acks: append(ended("n01", 20, 3, 90, "s1", 7000).Acks, ended("n02", 20, 3, 90, "s1", 0).Acks...)})
	wantBalance(t, s, -1000, "7 kJ of 6 kJ")
	refused(t, s, sprint("s2", "n01"), ledger.ErrSprint)
	tick(t, s, ledger.Tick{Elapsed: second})
	wantBalance(t, s, 0, "a second of 1 kW")
	tick(t, s, ledger.Tick{Elapsed: 3 * second})
	do(t, s, sprint("s2", "n01"))
}

// Claims of energy without end make a debt, and no number that runs over.
func TestAbsurdSpendingIsBounded(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	for _, n := range []string{"n01", "n02"} {
		k := ended(n, 20, 3, 90, "s1", 0)
		k.Acks[0].Ended[0].Spent = new(units.Energy(math.MaxInt64))
		tick(t, s, k)
	}
	if got := balance(s); got >= 0 || got < -math.MaxInt64/2 {
		t.Errorf("%v left", got)
	}
	s = restored(t, s)
	tick(t, s, ledger.Tick{Elapsed: math.MaxInt64})
	if got := balance(s); got >= 0 {
		t.Errorf("%v left after one tick", got)
	}
	// The way out: take the budget away and give it anew.
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab"}})
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule, Refill: watt}})
	wantBalance(t, s, 0, "a new budget starts empty")
	negative := sprinting(t)
	do(t, negative, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, negative, ledger.Tick{Acks: append(ended("n01", 20, 3, 90, "s1", 0).Acks, ended("n02", 20, 3, 90, "s1", 0).Acks...)})
	wantBalance(t, negative, 6000, "never more than was put aside")
}

// A node that still names its sprint has not read back its base: what it measured is yet to come.
func TestSprintUnderWayIsNotSettled(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, sprint("s1", "n01"))
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}}) // seq 3
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	r := heard("n01", 20, 3, 90)
	r.Sprint = "s1"
	table.Heard(r, 0)
	tick(t, s, ledger.Decide(s, table, 0))
	if !s.Sprints["s1"].Open() || s.Nodes["n01"].Charge() != 90*watt {
		t.Errorf("its watts are free, its energy is not: %+v", s.Nodes["n01"])
	}
	r = heard("n01", 21, 3, 90)
	r.Ended = []ledger.SprintSpent{{ID: "s1", Spent: new(250 * units.Joule)}}
	table.Heard(r, 0)
	tick(t, s, ledger.Decide(s, table, 0))
	wantBalance(t, s, 5750, "it has told")
}

// One that is removed, switched off, released or cannot hold caps any more is
// gone: all of its escrow is spent, even where it had told less before.
func TestGoneNodeHasSpentItsEscrow(t *testing.T) {
	t.Parallel()
	observer := sighting("n01")
	observer.Controlled = false
	for name, c := range map[string]ledger.Command{
		"removed":   {Remove: &ledger.RemoveNode{Node: "n01", PoweredOff: true}},
		"left":      {Remove: &ledger.RemoveNode{Node: "n01"}},
		"off":       {PowerOff: &ledger.PowerOff{Node: "n01", By: "bmc"}},
		"released":  {Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}},
		"observing": {Tick: &ledger.Tick{Seen: []ledger.Sighting{observer}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sprinting(t)
			tick(t, s, ended("n01", 20, 2, 90, "s1", 100))
			do(t, s, c)
			tick(t, s, ledger.Tick{}) // n02 sprints on
			if p := s.Sprints["s1"]; p.Ended != "" || s.Nodes["n02"].Sprint == nil {
				t.Errorf("%+v", p)
			}
			table := ledger.NewTable(ledger.DefaultTiming(), 0)
			r := heard("n02", 20, 2, 90)
			r.Ended = []ledger.SprintSpent{{ID: "s1", Spent: new(200 * units.Joule)}}
			table.Heard(r, 0)
			k := ledger.Decide(s, table, 0)
			if tick(t, s, k); len(k.EndSprints) != 1 {
				t.Fatalf("n02 alone was left and has ended it: %+v", k)
			}
			tick(t, s, reads("n02", 21, 3, 90))
			wantBalance(t, s, 6000-1100-200, "n01's escrow and what n02 measured")
			restored(t, s)
		})
	}
}

// The leader ends a sprint when its time is over by the ledger's clock, or when
// all of its nodes have; the sprint of a leader that was killed is ended by the next.
func TestDecideEndsSprints(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i := range 14 {
		if k := ledger.Decide(s, table, 0); len(k.EndSprints) != 0 {
			t.Fatalf("after %d s: %+v", i, k.EndSprints)
		}
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	next(t, s)
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: second}})
	k := ledger.Decide(s, table, 0)
	if len(k.EndSprints) != 1 || k.EndSprints[0] != (ledger.EndSprint{ID: "s1", Why: "time"}) {
		t.Errorf("after 15 s: %+v", k.EndSprints)
	}

	s = sprinting(t)
	unmeasured := []ledger.SprintSpent{{ID: "s1"}}
	r := heard("n01", 20, 2, 90)
	r.Ended = unmeasured
	table.Heard(r, 0)
	k = ledger.Decide(s, table, 0)
	if tick(t, s, k); len(k.EndSprints) != 0 {
		t.Errorf("n02 sprints on: %+v", k.EndSprints)
	}
	r = heard("n02", 20, 2, 90)
	r.Ended = unmeasured
	table.Heard(r, 0)
	if k = ledger.Decide(s, table, 0); len(k.EndSprints) != 1 {
		t.Errorf("both have ended it: %+v", k)
	}
}

// Each class draws from its own share, and refills by it.
func TestClassShares(t *testing.T) {
	t.Parallel()
	s := admitted(t, 2000, "n01", "n02", "n03")
	shares := func(m map[string]float64) ledger.Command {
		return ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: 6 * units.Kilojoule, Refill: 1000 * watt, Shares: m}}
	}
	do(t, s, shares(map[string]float64{"gold": 0.5, "silver": 0.25}))
	tick(t, s, ledger.Tick{Elapsed: 2 * second})
	left := func(gold, silver units.Energy) {
		t.Helper()
		b := s.Domains["site/lab"].Sprint.Balances
		if b["gold"] != gold*units.Joule || b["silver"] != silver*units.Joule || len(b) != 2 {
			t.Errorf("%v, want gold %v J and silver %v J", b, gold, silver)
		}
	}
	left(1000, 500)
	tick(t, s, ledger.Tick{Elapsed: 10 * second})
	left(3000, 1500)
	of := func(class, id string, nodes ...string) ledger.Command {
		c := sprint(id, nodes...)
		c.Sprint.Class = class
		return c
	}
	refused(t, s, of("bronze", "s1", "n01"), ledger.ErrSprint)
	says(t, refusal(t, s, of("silver", "s1", "n01", "n02"), ledger.ErrSprint), "class silver", "1.50 kJ", "2.20 kJ")
	do(t, s, of("silver", "s1", "n01"))
	left(3000, 400)
	tick(t, s, ledger.Tick{Elapsed: 9 * second})
	left(3000, 400) // what is put aside still counts as in the pot
	do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: "s1"}})
	tick(t, s, ended("n01", 20, 3, 90, "s1", 600))
	left(3000, 900)
	do(t, s, shares(map[string]float64{"gold": 0.1, "silver": 0.9})) // what no longer fits is gone
	left(600, 900)

	for name, m := range map[string]map[string]float64{
		"more than all":   {"gold": 0.7, "silver": 0.31},
		"nothing":         {"gold": 0},
		"no number":       {"gold": math.NaN()},
		"without a name":  {"": 0.5},
		"negative":        {"gold": -0.5},
		"too many of all": manyShares(33),
	} {
		if _, err := s.Apply(withEpoch(shares(m))); err == nil {
			t.Errorf("%s: %v was taken", name, m)
		}
	}
	do(t, s, shares(manyShares(10))) // tenths do not sum to one exactly
}

func manyShares(n int) map[string]float64 {
	out := map[string]float64{}
	for i := range n {
		out[fmt.Sprint(i)] = 1 / float64(n)
	}
	return out
}

func TestSprintBudgetRefuses(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]ledger.SetSprintBudget{
		"negative":           {Domain: "site/lab", Capacity: -1},
		"without end":        {Domain: "site/lab", Capacity: math.MaxInt64},
		"a negative refill":  {Domain: "site/lab", Capacity: units.Kilojoule, Refill: -1},
		"refill without end": {Domain: "site/lab", Capacity: units.Kilojoule, Refill: math.MaxInt64},
	} {
		says(t, refusal(t, admitted(t, 800, "n01"), ledger.Command{SprintBudget: &x}, ledger.ErrDomain), "site/lab")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	refused(t, admitted(t, 800, "n01"), ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "rack/r9"}}, ledger.ErrUnknownDomain)
}

// Only ticks refill: no gap between leaders, no command and no clock does; and
// never beyond the capacity, with what is put aside.
func TestRefillByTicksOnly(t *testing.T) {
	t.Parallel()
	s := admitted(t, 2000, "n01", "n02", "n03")
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: 6 * units.Kilojoule, Refill: 1000 * watt}})
	wantBalance(t, s, 0, "it starts empty")
	next(t, s)
	do(t, s, ledger.Command{At: math.MaxInt64 / 2, Budget: set("site/lab", 1999)})
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: -time.Hour}})
	wantBalance(t, s, 0, "a new leader, a clock, a time that runs backwards")
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: second / 4}})
	wantBalance(t, s, 250, "a quarter of a second")
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: 100 * second}})
	wantBalance(t, s, 6000, "full")
	do(t, s, sprint("s1", "n01", "n02"))
	do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: 100 * second}})
	wantBalance(t, s, 3800, "the rest is put aside")
}

// Closed sprints are remembered, so that an id is not spent twice, but not for ever.
func TestClosedSprintsAreBounded(t *testing.T) {
	t.Parallel()
	s := full(t)
	for i := range 520 {
		id := fmt.Sprintf("s%03d", i)
		do(t, s, sprint(id, "n01"))
		do(t, s, ledger.Command{EndSprint: &ledger.EndSprint{ID: id}})
		tick(t, s, ended("n01", uint64(100+i), s.Nodes["n01"].Seq, 90, id, 0))
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	if got := len(s.Sprints); got != 500 {
		t.Errorf("%d are kept", got)
	}
	refused(t, s, sprint("s519", "n01"), ledger.ErrSprint)
	if _, ok := s.Sprints["s019"]; ok {
		t.Error("the oldest is kept")
	}
	if list := s.SprintsByTime(); list[0].ID != "s020" {
		t.Errorf("first %v", list[0].ID)
	}
}

// P1: while a cut is on its way to a node, the node is charged what it held before.
// That is no room to raise it in, nor to let it sprint: what falls belongs to the
// domain until it fits.
func TestNothingRisesInAChargeThatIsToFall(t *testing.T) {
	t.Parallel()
	s := full(t)
	tick(t, s, target(200))
	tick(t, s, reads("n01", 10, s.Nodes["n01"].Seq, 200))
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 280 * watt, Targets: target(90).Targets}})
	if n := s.Nodes["n01"]; n.Charge() != 200*watt || n.Target != 90*watt {
		t.Fatalf("charged %v, target %v", n.Charge(), n.Target)
	}
	more := sprint("s1", "n01")
	more.Sprint.Caps[0].Cap = 100 * watt
	raise := target(100)
	says(t, refusal(t, s, ledger.Command{Tick: &raise}, ledger.ErrOverBudget), "site/lab", "100.0 W")
	says(t, refusal(t, s, more, ledger.ErrOverBudget), "site/lab", "100.0 W")
	tick(t, s, reads("n01", 11, s.Nodes["n01"].Seq, 90))
	do(t, restored(t, s), ledger.Command{Tick: &raise})
	do(t, s, more)
}

// What a node has measured counts, although its read-back is too old to lower its
// charge: one that was lost in a sprint tells it right before it takes a lease
// again, and never after that.
func TestMeasuredBeforeTheProofCounts(t *testing.T) {
	t.Parallel()
	s := full(t)
	do(t, s, setDomain("site/lab", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostFailSafe) }))
	do(t, s, sprint("s1", "n01"))
	tick(t, s, ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: 2}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	r := heard("n01", 20, 2, 90)
	r.Ended = []ledger.SprintSpent{{ID: "s1", Spent: new(1500 * units.Joule)}}
	table.Heard(r, 0)
	k := ledger.Decide(s, table, 0)
	if len(k.Acks) != 1 {
		t.Fatalf("decided %+v", k)
	}
	tick(t, s, k)
	tick(t, s, reads("n01", 21, 3, 90))
	if p := s.Sprints["s1"]; p.Open() || p.Spent() != 1500*units.Joule {
		t.Errorf("%+v", p)
	}
	wantBalance(t, s, 4500, "400 J more than were put aside")
}
