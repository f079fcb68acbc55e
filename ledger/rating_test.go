// Claim (P1, P4): one node's word takes no more of the others' watts than a bound that
// operators know, and it frees none: a rating above what is accepted waits for an operator,
// a lower one too, and what a node is measured at above its rating is charged.
package ledger_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/ledger"
	"headroom/units"
)

// liar is n01 of a new process that declares these watts, rated and max.
func liar(process uint64, watts units.Power, controlled bool) ledger.Sighting {
	x := sighting("n01")
	x.Process, x.Rated, x.Max, x.Controlled = process, watts*watt, watts*watt, controlled
	return x
}

// A node says that it is rated a megawatt and that nothing holds it: the others keep their watts.
func TestOneNodeStarvesNobody(t *testing.T) {
	t.Parallel()
	s := admitted(t, 900, "n01", "n02", "n03")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n02", Cap: 180 * watt}, {Node: "n03", Cap: 180 * watt}}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for i, name := range []string{"n02", "n03"} {
		table.Heard(heard(name, uint64(50+i), s.Nodes[name].Seq, 180), 0)
	}
	x := heard("n01", 60, 1, 90)
	x.Sighting = liar(78, 1_000_000, false)
	x.Power = new(1_000_000 * watt)
	table.Heard(x, 0)
	k := ledger.Decide(s, table, time.Second)
	tick(t, s, k)
	n := s.Nodes["n01"]
	if n.Charge() != 500*watt || n.Rated != 500*watt || n.Claimed() != 1_000_000*watt {
		t.Errorf("charged %v, rated %v, claimed %v; want twice the first rating", n.Charge(), n.Rated, n.Claimed())
	}
	for _, name := range []string{"n02", "n03"} {
		if got := s.Nodes[name].Target; got < 150*watt {
			t.Errorf("%s is cut to %v by the word of n01", name, got)
		}
	}
	if again := ledger.Decide(s, table, time.Second); len(again.Seen)+len(again.Drawn) != 0 {
		t.Errorf("committed again, each second: %+v", again)
	}
	if snapshot(t, restored(t, s)) != snapshot(t, s) {
		t.Error("a restored server differs")
	}
}

// With rated_max the first word is bounded already, and the nearest domain's counts.
func TestRatedMaxBoundsTheFirstWord(t *testing.T) {
	t.Parallel()
	s := founded(t, site(900))
	do(t, s, ledger.Command{Domain: &ledger.SetDomain{Name: "site/lab", RatedMax: new(600 * watt)}})
	do(t, s, ledger.Command{Domain: &ledger.SetDomain{Name: "rack/r1", RatedMax: new(300 * watt)}})
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{liar(1, 400, true)}})
	if n := s.Nodes["n01"]; n.Charge() != 300*watt || n.Rated != 300*watt || n.Max != 300*watt || n.Claimed() != 400*watt {
		t.Errorf("charged %v, rated %v, max %v, claimed %v", n.Charge(), n.Rated, n.Max, n.Claimed())
	}
	do(t, s, ledger.Command{Domain: &ledger.SetDomain{Name: "rack/r1", RatedMax: new(0 * watt)}}) // as the site
	if n := s.Nodes["n01"]; n.Charge() != 400*watt || n.Claimed() != 0 {
		t.Errorf("charged %v, claimed %v: the claim fits, and the node has not shown what it holds", n.Charge(), n.Claimed())
	}
	refused(t, s, ledger.Command{Domain: &ledger.SetDomain{Name: "rack/r1", RatedMax: new(2 * ledger.MaxPower)}}, ledger.ErrDomain)
}

// Rises are counted from the first rating: a node does not climb in steps.
func TestRatingClimbsNoSteps(t *testing.T) {
	t.Parallel()
	s := admitted(t, 900, "n01")
	for i := range uint64(6) {
		tick(t, s, ledger.Tick{Seen: []ledger.Sighting{liar(100+i, 250<<i, false)}})
		tick(t, s, ledger.Tick{Drawn: []ledger.Draw{{Node: "n01", Power: ledger.MaxPower}}})
	}
	if n := s.Nodes["n01"]; n.Charge() > 500*watt {
		t.Errorf("charged %v", n.Charge())
	}
}

// A node's word lowers no rating: else one that is not under control would draw what nobody is charged for.
func TestOwnWordLowersNoRating(t *testing.T) {
	t.Parallel()
	s := admitted(t, 900, "n01")
	x := liar(78, 95, false)
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{x}})
	n := s.Nodes["n01"]
	if n.Charge() != 250*watt || n.Max != 95*watt || n.Claimed() != 0 {
		t.Errorf("charged %v, max %v, claimed %v", n.Charge(), n.Max, n.Claimed())
	}
	do(t, s, setNode("n01", func(y *ledger.Settings) { y.Rated = new(95 * watt) }))
	if n = s.Nodes["n01"]; n.Charge() != 95*watt || n.Declared != nil {
		t.Errorf("an operator says 95 W: charged %v, %+v", n.Charge(), n.Declared)
	}
}

// A first word that is too low: what is measured above it is charged while nothing holds the node.
func TestMeasuredAboveRatedIsCharged(t *testing.T) {
	t.Parallel()
	s := founded(t, site(900))
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{liar(1, 150, false)}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	x := heard("n01", 60, 0, 150)
	x.Sighting, x.Power = liar(1, 150, false), new(230*watt)
	table.Heard(x, 0)
	tick(t, s, ledger.Decide(s, table, time.Second))
	if n := s.Nodes["n01"]; n.Charge() != 230*watt || n.Full() != 230*watt {
		t.Errorf("charged %v", n.Charge())
	}
	do(t, s, setNode("n01", func(y *ledger.Settings) { y.Rated = new(200 * watt) }))
	if n := s.Nodes["n01"]; n.Charge() != 200*watt {
		t.Errorf("charged %v, an operator says 200 W", n.Charge())
	}
}

// What is accepted later is charged in full as long as the node has not shown what it holds.
func TestAcceptedRatingIsChargedUnheard(t *testing.T) {
	t.Parallel()
	s := founded(t, site(900))
	do(t, s, ledger.Command{Domain: &ledger.SetDomain{Name: "site/lab", RatedMax: new(300 * watt)}})
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{liar(1, 1000, true)}})
	pin := setNode("n01", func(x *ledger.Settings) { x.Rated = new(1000 * watt) })
	do(t, s, pin) // does not fit, and is true all the same
	if n := s.Nodes["n01"]; n.Charge() != 1000*watt || s.Totals()["site/lab"].Headroom() >= 0 {
		t.Errorf("charged %v, headroom %v", n.Charge(), s.Totals()["site/lab"].Headroom())
	}
	do(t, s, setNode("n01", func(x *ledger.Settings) { x.Rated = new(280 * watt) }))
	if n := s.Nodes["n01"]; n.Charge() != 280*watt || n.Claimed() != 1000*watt {
		t.Errorf("charged %v, claimed %v", n.Charge(), n.Claimed())
	}
	refused(t, s, setNode("n01", func(x *ledger.Settings) { x.Rated = new(60 * watt) }), ledger.ErrSettings)
	do(t, s, setNode("n01", func(*ledger.Settings) {}))
	if n := s.Nodes["n01"]; n.Rated != 300*watt || n.Settings.Rated != nil {
		t.Errorf("taken back: rated %v, want what the domain allows", n.Rated)
	}
}

// Whatever a node says of itself, in whatever order, it is charged at most twice its first
// rating or what its domain allows, and at least its highest accepted rating while nothing holds it.
func TestNoWordIsWorthMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := ledger.New()
		apply := func(c ledger.Command) {
			c.Epoch = first()
			if _, err := s.Apply(c); err != nil {
				t.Fatal(err)
			}
		}
		apply(ledger.Command{Lead: &ledger.Lead{Server: "c1"}})
		apply(ledger.Command{Found: &ledger.Found{Domains: ledger.PlainDomains(site(900))}})
		bound := units.Power(rapid.SampledFrom([]int64{0, 300, 700}).Draw(t, "bound")) * watt
		if bound > 0 {
			apply(ledger.Command{Domain: &ledger.SetDomain{Name: "site/lab", RatedMax: &bound}})
		}
		power := rapid.Map(rapid.SampledFrom([]int64{1, 80, 200, 250, 499, 501, 1000, 1_000_000}), func(w int64) units.Power { return units.Power(w) * watt })
		firstWord := units.Power(0)
		for i := range rapid.IntRange(1, 12).Draw(t, "words") {
			x := sighting("n01")
			x.Process = uint64(1 + i)
			x.Rated = power.Draw(t, "rated")
			x.Max, x.FailSafe = min(x.Rated, power.Draw(t, "max")), 0
			x.FailSafe = min(x.Max, power.Draw(t, "fail-safe"))
			x.Floor = min(x.FailSafe, power.Draw(t, "floor"))
			x.Controlled = rapid.Bool().Draw(t, "controlled")
			apply(ledger.Command{Tick: &ledger.Tick{
				Seen:  []ledger.Sighting{x},
				Drawn: []ledger.Draw{{Node: "n01", Power: power.Draw(t, "drawn")}},
				Acks: []ledger.Ack{{
					Node: "n01", Process: x.Process, Number: 1, Seq: s.Nodes["n01"].Seq, Effective: power.Draw(t, "effective"), Stored: power.Draw(t, "stored"),
				}},
			}})
			n := s.Nodes["n01"]
			if firstWord == 0 {
				firstWord = n.Rated
			}
			if most := max(ledger.RatingRise*firstWord, bound); n.Charge() > most {
				t.Fatalf("charged %v, at most %v by its word: %+v", n.Charge(), most, n)
			}
			if !n.Controlled && n.Charge() < n.Rated {
				t.Fatalf("charged %v, rated %v", n.Charge(), n.Rated)
			}
			if n.Max > n.Rated || n.FailSafe > n.Max || n.Floor > n.FailSafe {
				t.Fatalf("in force: %+v", n)
			}
		}
	})
}
