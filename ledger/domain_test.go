// Claim: what operators say of a domain is refused when it cannot be, with its
// numbers; what is kept for reboots counts like watts that are drawn; a domain
// goes only when nothing depends on it.
package ledger_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// A budget above what the breaker carries less its margin is refused, wherever it
// comes from: set, as a new domain, by a schedule, or by a rating that falls below it.
func TestRatingBoundsBudgets(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	rate := func(watts units.Power, margin float64) ledger.Command {
		return setDomain("site/lab", func(x *ledger.SetDomain) { x.Rating, x.Margin = new(watts*watt), new(margin) })
	}
	says(t, refusal(t, s, rate(1000, 0.21), ledger.ErrRating), "800.0 W", "site/lab", "790.0 W", "1000.0 W")
	do(t, s, rate(1000, 0.2))
	do(t, s, ledger.Command{Budget: set("site/lab", 800)})
	c := ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 800*watt + 1}}
	says(t, refusal(t, s, c, ledger.ErrRating), "800.0 W", "1000.0 W", "margin")
	refused(t, s, ledger.Command{Schedule: &ledger.SetSchedule{Name: "s", Domain: "site/lab", Cron: "0 0 * * *", Budget: 801 * watt}}, ledger.ErrRating)
	new1 := setDomain("pdu/p1", func(x *ledger.SetDomain) {
		x.Parent, x.Budget, x.Rating = "rack/r1", 500*watt, new(400*watt)
	})
	refused(t, s, new1, ledger.ErrRating)

	// What is to come into force later has to fit as well.
	do(t, s, ledger.Command{At: 1, Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 500 * watt, Until: 2}})
	says(t, refusal(t, s, rate(1000, 0.3), ledger.ErrRating), "budget that returns", "800.0 W", "700.0 W")
	do(t, s, ledger.Command{Schedule: &ledger.SetSchedule{Name: "night", Domain: "rack/r1", Cron: "0 0 * * *", Budget: 900 * watt}})
	lower := setDomain("rack/r1", func(x *ledger.SetDomain) { x.Rating = new(850 * watt) })
	says(t, refusal(t, s, lower, ledger.ErrRating), "schedule night", "900.0 W", "850.0 W")
	if _, err := ledger.PlanBudget(s, ledger.NewTable(ledger.DefaultTiming(), 0), 0, "site/lab", 900*watt); err == nil {
		t.Error("a budget above the rating was planned")
	}
}

// Senseless domains are refused, each for its reason.
func TestSetDomainRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change ledger.SetDomain
		want   error
	}{
		"no name":                  {ledger.SetDomain{Parent: "site/lab", Budget: watt}, ledger.ErrDomain},
		"a name without end":       {ledger.SetDomain{Name: string(make([]byte, 300)), Parent: "site/lab", Budget: watt}, ledger.ErrDomain},
		"below nothing":            {ledger.SetDomain{Name: "pdu/p1", Budget: watt}, ledger.ErrUnknownDomain},
		"below an unknown domain":  {ledger.SetDomain{Name: "pdu/p1", Parent: "rack/r9", Budget: watt}, ledger.ErrUnknownDomain},
		"a new one without budget": {ledger.SetDomain{Name: "pdu/p1", Parent: "rack/r1"}, budget.ErrAmount},
		"moved":                    {ledger.SetDomain{Name: "rack/r1", Parent: "rack/r1"}, ledger.ErrParent},
		"a budget by the way":      {ledger.SetDomain{Name: "rack/r1", Budget: 5 * watt}, ledger.ErrDomain},
		"negative unmanaged":       {ledger.SetDomain{Name: "rack/r1", Unmanaged: new(-1 * watt)}, budget.ErrAmount},
		"unmanaged without end":    {ledger.SetDomain{Name: "rack/r1", Unmanaged: new(units.Power(math.MaxInt64))}, ledger.ErrDomain},
		"a negative rating":        {ledger.SetDomain{Name: "rack/r1", Rating: new(-1 * watt)}, ledger.ErrDomain},
		"a rating without end":     {ledger.SetDomain{Name: "rack/r1", Rating: new(units.Power(math.MaxInt64))}, ledger.ErrDomain},
		"a margin of all":          {ledger.SetDomain{Name: "rack/r1", Rating: new(9000 * watt), Margin: new(0.95)}, ledger.ErrDomain},
		"a negative margin":        {ledger.SetDomain{Name: "rack/r1", Rating: new(9000 * watt), Margin: new(-0.1)}, ledger.ErrDomain},
		"a margin of no number":    {ledger.SetDomain{Name: "rack/r1", Rating: new(9000 * watt), Margin: new(math.NaN())}, ledger.ErrDomain},
		"a margin of no rating":    {ledger.SetDomain{Name: "rack/r1", Margin: new(0.1)}, ledger.ErrDomain},
		"negative boots":           {ledger.SetDomain{Name: "rack/r1", BootNodes: new(-1)}, ledger.ErrDomain},
		"boots without end":        {ledger.SetDomain{Name: "rack/r1", BootNodes: new(math.MaxInt)}, ledger.ErrDomain},
		"an unknown lost-charge":   {ledger.SetDomain{Name: "rack/r1", LostCharge: new(ledger.LostCharge("forget"))}, ledger.ErrDomain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, admitted(t, 800, "n01"), ledger.Command{Domain: &c.change}, c.want)
		})
	}
}

// A command that founds a cluster is held to the same.
func TestFoundRefuses(t *testing.T) {
	t.Parallel()
	root := ledger.Domain{Domain: budget.Domain{Name: "site", Budget: 100 * watt}}
	over, wild := root, root
	over.Rating = 99 * watt
	wild.Sprint = &ledger.SprintBudget{Capacity: -1}
	for want, d := range map[error]ledger.Domain{ledger.ErrRating: over, ledger.ErrDomain: wild} {
		s := ledger.New()
		next(t, s)
		refused(t, s, ledger.Command{Found: &ledger.Found{Domains: []ledger.Domain{d}}}, want)
	}
}

// A sprint budget that comes with the founding starts empty, whatever the command says.
func TestFoundedSprintBudgetIsEmpty(t *testing.T) {
	t.Parallel()
	for name, balances := range map[string]map[string]units.Energy{"none": nil, "full": {"": 500 * units.Joule}} {
		s := ledger.New()
		next(t, s)
		do(t, s, ledger.Command{Found: &ledger.Found{Domains: []ledger.Domain{{
			Domain: budget.Domain{Name: "site", Budget: 100 * watt},
			Sprint: &ledger.SprintBudget{Capacity: 500 * units.Joule, Refill: watt, Balances: balances},
		}}}})
		tick(t, s, ledger.Tick{Elapsed: 3 * second})
		if got := s.Domains["site"].Sprint.Balances[""]; got != 3*units.Joule {
			t.Errorf("%s: %v after three seconds, want 3 J", name, got)
		}
	}
}

// P4: a reboot loses limits. The largest differences between rated watts and least
// cap of the nodes below are kept free, as many as the domain says.
func TestBootReserve(t *testing.T) {
	t.Parallel()
	s := founded(t, append(site(3000), budget.Domain{Name: "rack/r2", Parent: "site/lab", Budget: 3000 * watt}))
	for i, name := range []string{"n01", "n02", "n03", "n04"} { // differences 160, 170, 180, 190 W
		x := sighting(name)
		x.Rated += units.Power(10*i) * watt
		if name == "n03" {
			x.Domain = "rack/r2"
		}
		tick(t, s, ledger.Tick{Seen: []ledger.Sighting{x}, Acks: reads(name, 1, 0, 90).Acks, Admit: []string{name}})
	}
	boots := func(domain string, k int) {
		t.Helper()
		do(t, s, setDomain(domain, func(x *ledger.SetDomain) { x.BootNodes = new(k) }))
	}
	want := func(domain string, watts units.Power) {
		t.Helper()
		got := s.Totals()[domain]
		if got.Boot != watts*watt || got.Headroom() != got.Budget-got.Unmanaged-got.Reserved-watts*watt {
			t.Errorf("%s: %+v, want %v W for boots", domain, got, watts)
		}
		if least := got.Unmanaged + got.Boot + units.Power(90*got.Nodes)*watt; got.Floor != least {
			t.Errorf("%s: floor %v, want %v", domain, got.Floor, least)
		}
	}
	want("site/lab", 0)
	boots("site/lab", 2)
	want("site/lab", 190+180)
	want("rack/r1", 0)
	boots("rack/r1", 1)
	want("rack/r1", 190)
	boots("rack/r2", 9) // more than there are
	want("rack/r2", 180)
	boots("site/lab", 4)
	want("site/lab", 160+170+180+190)

	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n04", By: "mia"}})
	do(t, s, ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}})
	if got := s.Totals()["site/lab"].Boot; got != (170+180)*watt {
		t.Errorf("%v: one that is off and one that is charged its rated watts cannot draw more at boot", got)
	}
}

// A node that moves may boot in either domain, and once above both.
func TestBootReserveOfMovingNode(t *testing.T) {
	t.Parallel()
	s := twoRacks(t, 800, 800)
	for _, d := range []string{"site/lab", "rack/r1", "rack/r2"} {
		do(t, s, setDomain(d, func(x *ledger.SetDomain) { x.BootNodes = new(9) }))
	}
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	for d, want := range map[string]units.Power{"site/lab": 320, "rack/r1": 320, "rack/r2": 160} {
		if got := s.Totals()[d].Boot; got != want*watt {
			t.Errorf("%s keeps %v, want %v", d, got, want*watt)
		}
	}
}

// Plans leave the boot reserve free, and a raise into it is refused.
func TestBootReserveIsKeptFree(t *testing.T) {
	t.Parallel()
	s := admitted(t, 400, "n01", "n02")
	do(t, s, setDomain("rack/r1", func(x *ledger.SetDomain) { x.BootNodes = new(1) })) // 160 W of 400 W
	says(t, refusal(t, s, ledger.Command{Tick: new(target(151))}, ledger.ErrOverBudget), "rack/r1", "240.0 W")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, name := range []string{"n01", "n02"} {
		table.Heard(heard(name, 20, 1, 90), 0)
	}
	tick(t, s, ledger.Decide(s, table, 0))
	if got := s.Totals()["rack/r1"]; got.Reserved != 240*watt || got.Headroom() != 0 {
		t.Errorf("planned %+v, want 240.0 W of 400.0 W", got)
	}
	// A larger reserve is shortfall: it cuts, and nothing is raised meanwhile.
	do(t, s, setDomain("rack/r1", func(x *ledger.SetDomain) { x.BootNodes = new(2) })) // 320 W of 400 W
	if k := ledger.Decide(s, table, 0); len(k.Targets) != 2 || k.Targets[0].Cap != 90*watt || k.Targets[1].Cap != 90*watt {
		t.Errorf("%+v, want both at their least", k.Targets)
	}
}

// What lost nodes are charged is inherited from above, and the nearest choice counts.
func TestLostChargeIsInherited(t *testing.T) {
	t.Parallel()
	choose := func(domain string, choice ledger.LostCharge) ledger.Command {
		return setDomain(domain, func(x *ledger.SetDomain) { x.LostCharge = &choice })
	}
	for name, c := range map[string]struct {
		choices []ledger.Command
		lowers  bool
	}{
		"nothing said":         {nil, false},
		"said above":           {[]ledger.Command{choose("site/lab", ledger.LostFailSafe)}, true},
		"said here":            {[]ledger.Command{choose("rack/r1", ledger.LostFailSafe)}, true},
		"the nearest counts":   {[]ledger.Command{choose("site/lab", ledger.LostFailSafe), choose("rack/r1", ledger.LostKeep)}, false},
		"the nearest counts 2": {[]ledger.Command{choose("site/lab", ledger.LostKeep), choose("rack/r1", ledger.LostFailSafe)}, true},
		"taken back": {[]ledger.Command{
			choose("site/lab", ledger.LostFailSafe), choose("rack/r1", ledger.LostKeep), choose("rack/r1", ledger.LostInherit),
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := admitted(t, 800, "n01")
			tick(t, s, target(200))
			for _, x := range c.choices {
				do(t, s, x)
			}
			lapse := ledger.Command{Tick: &ledger.Tick{Lapsed: []ledger.Lapse{{Node: "n01", Seq: 2}}}}
			if !c.lowers {
				refused(t, s, lapse, ledger.ErrLostCharge)
				return
			}
			do(t, s, lapse)
			wantCharge(t, s, 90, "it fell to its fail-safe cap")
		})
	}
}

// A domain with something in it stays: the root, one above others, one with a
// node, one that a node is leaving, one that pays for a sprint.
func TestRemoveDomainRefuses(t *testing.T) {
	t.Parallel()
	s := admitted(t, 2000, "n01", "n02", "n03")
	remove := func(name string) ledger.Command {
		return ledger.Command{RemoveDomain: &ledger.Named{Name: name}}
	}
	do(t, s, setDomain("rack/r2", func(x *ledger.SetDomain) { x.Parent, x.Budget = "site/lab", 900*watt }))
	says(t, refusal(t, s, remove("rack/r9"), ledger.ErrUnknownDomain), "rack/r9")
	says(t, refusal(t, s, remove("site/lab"), ledger.ErrInUse), "root")
	says(t, refusal(t, s, remove("rack/r1"), ledger.ErrInUse), "n01")
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n02", To: "rack/r2"}})
	do(t, s, ledger.Command{Remove: &ledger.RemoveNode{Node: "n03", PoweredOff: true}})
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "mia"}})
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	says(t, refusal(t, s, remove("rack/r1"), ledger.ErrInUse), "n02") // it has not acknowledged
	tick(t, s, reads("n02", 20, s.Nodes["n02"].Seq, 90))
	do(t, s, ledger.Command{Schedule: &ledger.SetSchedule{Name: "night", Domain: "rack/r1", Cron: "0 0 * * *", Budget: 900 * watt}})
	if _, ok := s.BudgetAt("rack/r1", s.Revision); !ok {
		t.Error("the history does not know rack/r1")
	}
	do(t, s, remove("rack/r1"))
	if _, ok := s.BudgetAt("rack/r1", s.Revision); ok || len(s.Schedules) != 0 {
		t.Errorf("rack/r1 is gone, but not from the history, or its schedules stay: %v", s.Schedules)
	}
	restored(t, s)
}

// One that pays for an open sprint stays.
func TestRemoveDomainThatPays(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, setDomain("pdu/p1", func(x *ledger.SetDomain) { x.Parent, x.Budget = "rack/r1", 500*watt }))
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "pdu/p1", Capacity: units.Kilojoule, Refill: 100 * watt}})
	tick(t, s, ledger.Tick{Elapsed: 10 * second})
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "pdu/p1"}})
	tick(t, s, reads("n01", 20, 2, 90))
	do(t, s, ledger.Command{Sprint: &ledger.GrantSprint{ID: "s1", Domain: "pdu/p1", Duration: second, Caps: []ledger.Target{{Node: "n01", Cap: 200 * watt}}}})
	says(t, refusal(t, s, ledger.Command{RemoveDomain: &ledger.Named{Name: "pdu/p1"}}, ledger.ErrInUse), "n01")
	do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "mia"}}) // it moves at once, its escrow is spent
	do(t, s, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r1"}})
	do(t, s, ledger.Command{RemoveDomain: &ledger.Named{Name: "pdu/p1"}})
	if len(s.Sprints) != 0 {
		t.Errorf("sprints of a domain that is gone: %v", s.Sprints)
	}
}

// Numbers that are each allowed never sum to room that is not there.
func TestSumsDoNotRunOver(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	const most = 1_000_000_000 * watt
	for range 40 {
		name := "d" + string(rune('a'+len(s.Domains)))
		do(t, s, setDomain(name, func(x *ledger.SetDomain) {
			x.Parent, x.Budget, x.Unmanaged, x.Rating = "site/lab", 1, new(most), new(most)
		}))
	}
	if got := s.Totals()["site/lab"]; got.Unmanaged != 40*most || got.Headroom() >= 0 {
		t.Errorf("%+v", got)
	}
	var r *ledger.RatingError
	big := ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: math.MaxInt64}}
	if _, err := s.Apply(withEpoch(big)); errors.As(err, &r) {
		t.Errorf("%v without a rating", err)
	}
}

// A domain keeps the highest budget that it ever had, over cuts, and in snapshots; one of
// an older version has it from its history.
func TestHighestBudget(t *testing.T) {
	t.Parallel()
	s := founded(t, site(600))
	at := func(s *ledger.State, want units.Power) {
		t.Helper()
		if got := s.Domains["site/lab"].Highest; got != want*watt {
			t.Errorf("highest is %v, want %v", got, want*watt)
		}
	}
	at(s, 600)
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 800 * watt}})
	do(t, s, ledger.Command{Budget: &ledger.SetBudget{Domain: "site/lab", Budget: 500 * watt}})
	at(s, 800)
	at(restored(t, s), 800)
	old, err := ledger.Restore([]byte(strings.ReplaceAll(snapshot(t, s), `,"highest_uw":800000000`, "")))
	if err != nil {
		t.Fatal(err)
	}
	at(old, 800)
}

// A domain has nothing of an earlier one of its name, on a server that restored a snapshot
// as on one that applied the log.
func TestDomainOfAnOldName(t *testing.T) {
	t.Parallel()
	s := founded(t, site(600))
	rack := func(budget units.Power) ledger.Command {
		return setDomain("rack/x1", func(x *ledger.SetDomain) { x.Parent, x.Budget = "site/lab", budget*watt })
	}
	do(t, s, rack(400))
	do(t, s, ledger.Command{RemoveDomain: &ledger.Named{Name: "rack/x1"}})
	do(t, s, rack(300))
	for name, s := range map[string]*ledger.State{"applied": s, "restored": restored(t, s)} {
		if got := s.Domains["rack/x1"].Highest; got != 300*watt {
			t.Errorf("%s: highest %v", name, got)
		}
	}
}
