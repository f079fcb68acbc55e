// Claim: a group works under one version of the rules, whichever servers are in
// it: what older servers refuse, newer ones refuse as well, until an upgrade that
// all of them know.
package ledger_test

import (
	"errors"
	"testing"

	"headroom/ledger"
	"headroom/units"
)

// coming stands in for the version after this one.
const coming = ledger.Known(ledger.Rules + 1)

// begun is a state with n01 at 200 W, of a server of the coming version in a log that
// began under the rules of this one.
func begun(t testing.TB) *ledger.State {
	t.Helper()
	s := coming.New()
	must(t, s, ledger.Command{Rules: ledger.Rules, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, s, ledger.Command{Rules: ledger.Rules, Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	must(t, s, ledger.Command{Rules: ledger.Rules, Epoch: first(), Tick: &ledger.Tick{
		Seen: []ledger.Sighting{sighting("n01")}, Acks: reads("n01", 1, 0, 90).Acks, Admit: []string{"n01"},
		Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}},
	}})
	return s
}

// An upgrade goes one step, never back, and once. Until then a command written under the
// coming rules is refused, even one that older servers could read. A server that reads
// the log from its beginning, or its snapshot, takes the rules from there.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	up := func(to int) ledger.Command { return ledger.Command{Upgrade: &ledger.Upgrade{Rules: to}} }
	newer := ledger.Command{Rules: int(coming), Budget: set("site/lab", 700)}
	s := begun(t)
	if again, err := coming.Restore([]byte(snapshot(t, s))); err != nil || s.Rules != ledger.Rules || again.Rules != ledger.Rules {
		t.Errorf("rules %d, restored %+v, %v", s.Rules, again, err)
	}
	refused(t, s, newer, ledger.ErrRules)
	refused(t, s, up(int(coming)+1), ledger.ErrRules)
	from := s.ChangesFrom
	do(t, s, up(int(coming)))
	before := snapshot(t, s)
	for _, to := range []int{int(coming), ledger.Rules, -5} {
		do(t, s, up(to))
	}
	if snapshot(t, s) != before || s.Rules != int(coming) || s.ChangesFrom != from {
		t.Errorf("rules %d; the history of budgets begins at %d instead of %d", s.Rules, s.ChangesFrom, from)
	}
	refused(t, s, up(int(coming)+1), ledger.ErrRules)
	do(t, s, newer)
	do(t, s, ledger.Command{Rules: ledger.Rules, Budget: set("site/lab", 600)}) // written just before the upgrade

	// A server of this version does not follow.
	if x, err := ledger.Restore([]byte(snapshot(t, s))); !errors.Is(err, ledger.ErrSnapshot) {
		t.Errorf("restored %+v, %v", x, err)
	}
	entry, err := newer.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ledger.Decode(entry); !errors.Is(err, ledger.ErrUnknownCommand) {
		t.Errorf("decoded %+v, %v", c, err)
	}
	if c, err := coming.Decode(entry); err != nil || c.Rules != int(coming) {
		t.Errorf("decoded %+v, %v", c, err)
	}
	old := admitted(t, 800, "n01")
	refused(t, old, up(int(coming)), ledger.ErrRules)
	refused(t, old, newer, ledger.ErrRules)

	empty := ledger.New()
	if back := restored(t, empty); snapshot(t, back) != snapshot(t, empty) {
		t.Error("an empty state is restored as another")
	}
	must(t, empty, ledger.Command{Rules: ledger.Rules, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	if empty.Rules != ledger.Rules {
		t.Errorf("rules %d", empty.Rules)
	}
}

// A command of rules to come that may be passed over is, and changes nothing; one
// that may not is refused.
func TestIgnorableCommands(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	before := snapshot(t, s)
	c, err := ledger.Decode([]byte(`{"rules":9,"ignorable":true,"epoch":{"incarnation":1,"term":1},"weather":{"sun":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Apply(c); err != nil || r.Revision != s.Revision || snapshot(t, s) != before {
		t.Errorf("%+v, %v", r, err)
	}
	for name, text := range map[string]string{
		"not ignorable":              `{"rules":9,"epoch":{"incarnation":1,"term":1},"weather":{}}`,
		"ignorable, of rules of now": `{"rules":1,"ignorable":true,"epoch":{"incarnation":1,"term":1},"weather":{}}`,
		"ignorable, cut short":       `{"rules":9,"ignorable":true,"epoch":{"incarn`,
	} {
		if c, err := ledger.Decode([]byte(text)); !errors.Is(err, ledger.ErrUnknownCommand) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	// A flag on something that this server knows makes no difference to it.
	flagged := ledger.Command{Rules: 1, Ignorable: true, Budget: set("site/lab", 700)}
	do(t, s, flagged)
	if s.Domains["site/lab"].Budget != 700*watt {
		t.Error("passed over")
	}
}

// The history of budgets tells what it knows: nothing from before the cluster was
// founded or it was cut off, and the truth from there on.
func TestBudgetHistory(t *testing.T) {
	t.Parallel()
	want := func(s *ledger.State, domain string, revision uint64, watts units.Power) {
		t.Helper()
		if got, ok := s.BudgetAt(domain, revision); ok != (watts > 0) || ok && got != watts*watt {
			t.Errorf("%s at %d: %v, %v; want %v W", domain, revision, got, ok, watts)
		}
	}
	s := ledger.New()
	must(t, s, ledger.Command{Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	old := s.Revision
	must(t, s, ledger.Command{Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	founded := s.Revision
	do(t, s, ledger.Command{Budget: set("site/lab", 700)})
	up := s.Revision
	do(t, s, ledger.Command{Actor: "mia", Reason: "heat", Budget: set("site/lab", 600)})
	cut := s.Revision
	want(s, "site/lab", old, 0)
	want(s, "site/lab", founded, 800)
	want(s, "site/lab", up, 700)
	want(s, "site/lab", cut, 600)
	want(s, "rack/r1", cut, 800)
	want(s, "site/lab", cut+1, 0)
	want(s, "rack/r9", cut, 0)
	if x := s.Changes[len(s.Changes)-1]; x.Actor != "mia" || x.Reason != "heat" || x.From != 700*watt || x.To != 600*watt || x.Revision != cut {
		t.Errorf("%+v", x)
	}
	do(t, s, setDomain("pdu/p1", func(x *ledger.SetDomain) { x.Parent, x.Budget = "rack/r1", 300*watt }))
	added := s.Revision
	want(s, "pdu/p1", cut, 0)
	want(s, "pdu/p1", added, 300)
	do(t, s, ledger.Command{RemoveDomain: &ledger.Named{Name: "pdu/p1"}})
	want(s, "pdu/p1", added, 300)
	want(s, "pdu/p1", s.Revision, 0)

	last := s.Revision
	for i := range 1100 {
		do(t, s, ledger.Command{Budget: set("site/lab", units.Power(800+i))})
	}
	s = restored(t, s)
	if len(s.Changes) != 1000 {
		t.Errorf("%d changes are kept", len(s.Changes))
	}
	want(s, "site/lab", last, 0)
	want(s, "site/lab", last+99, 0)
	want(s, "rack/r1", last+99, 0)
	for i := range 1000 {
		want(s, "site/lab", last+100+uint64(i), units.Power(800+99+i))
		want(s, "rack/r1", last+100+uint64(i), 800)
	}
}
