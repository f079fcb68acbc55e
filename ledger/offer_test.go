// Claim: what a sprint is offered, Apply takes; what Apply would refuse is not offered, and
// the offer says why.
package ledger_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/ledger"
	"headroom/units"
)

func TestOfferSprint(t *testing.T) {
	t.Parallel()
	o := ledger.OfferSprint(full(t), []string{"n01", "n02"}, "gold")
	if o.Why != "" || o.Domain != "site/lab" || o.Pot != "" || o.Balance != 6*units.Kilojoule || o.Rise != 320*watt || len(o.Caps) != 2 || o.Caps[0].Cap != 250*watt {
		t.Errorf("%+v", o)
	}
	for name, x := range map[string]struct {
		change func(s *ledger.State)
		nodes  []string
		says   string
	}{
		"nowhere":  {func(*ledger.State) {}, nil, "nodes are unknown"},
		"a braked": {func(s *ledger.State) { do(t, s, ledger.Command{Brake: &ledger.SetBrake{Generation: 1}}) }, []string{"n01"}, "brake"},
		"no budget": {func(s *ledger.State) {
			do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab"}})
		}, []string{"n01"}, "set one with coordinator sprint budget"},
		"no pot": {func(s *ledger.State) {
			do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule, Shares: map[string]float64{"silver": 1}}})
		}, []string{"n01"}, `for class "gold"`},
		"no such node": {func(*ledger.State) {}, []string{"n09"}, "no domain that contains"},
		"drained":      {func(s *ledger.State) { do(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "n01"}}) }, []string{"n01"}, "node n01 cannot be granted"},
		"in a sprint":  {func(s *ledger.State) { do(t, s, sprint("s1", "n01")) }, []string{"n01"}, "node n01 is in sprint s1"},
		"no watts":     {func(s *ledger.State) { do(t, s, ledger.Command{Budget: set("site/lab", 275)}) }, []string{"n01"}, "of headroom, 20.0 W needed"},
	} {
		s := full(t)
		x.change(s)
		if o := ledger.OfferSprint(s, x.nodes, "gold"); !strings.Contains(o.Why, x.says) || len(o.Caps) != 0 {
			t.Errorf("%s: %+v", name, o)
		}
	}
	s := full(t)
	do(t, s, sprint("s1", "n01"))
	if o := ledger.OfferSprint(s, []string{"n02"}, ""); o.Open != "s1" || o.Why != "" {
		t.Errorf("%+v", o)
	}
	// Fewer watts than the ratings would take: as many as there are, for all nodes alike.
	s = full(t)
	do(t, s, ledger.Command{Budget: set("site/lab", 500)})
	if o := ledger.OfferSprint(s, []string{"n01", "n02"}, ""); o.Rise <= 0 || o.Rise > 230*watt || o.Caps[0].Cap != o.Caps[1].Cap {
		t.Errorf("%+v", o)
	}
}

func TestOffersAreTaken(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := full(t)
		do(t, s, ledger.Command{Budget: set("site/lab", units.Power(rapid.IntRange(270, 2000).Draw(r, "budget")))})
		if rapid.Bool().Draw(r, "another") {
			do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "rack/r1", Capacity: units.Kilojoule, Refill: watt}})
		}
		nodes := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"n01", "n02", "n03"}), func(n string) string { return n }).Draw(r, "nodes")
		o := ledger.OfferSprint(s, nodes, "")
		if o.Why != "" || o.Balance < units.Energy(o.Rise) {
			return
		}
		do(t, s, ledger.Command{Sprint: &ledger.GrantSprint{ID: "s", Domain: o.Domain, Duration: time.Second, Caps: o.Caps}})
	})
}
