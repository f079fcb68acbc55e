// Claim: a group works under one version of the rules, whichever servers are in
// it: what older servers refuse, newer ones refuse as well, until an upgrade that
// all of them know. A log and a snapshot of before mean what they meant.
package ledger_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"headroom/ledger"
	"headroom/units"
)

// under1 is a state with n01 at 200 W whose log began under rules 1.
func under1(t testing.TB) *ledger.State {
	t.Helper()
	s := ledger.New()
	must(t, s, ledger.Command{Rules: 1, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, s, ledger.Command{Rules: 1, Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	must(t, s, ledger.Command{Rules: 1, Epoch: first(), Tick: &ledger.Tick{
		Seen: []ledger.Sighting{sighting("n01")}, Acks: reads("n01", 1, 0, 90).Acks, Admit: []string{"n01"},
		Targets: []ledger.Target{{Node: "n01", Cap: 200 * watt}},
	}})
	return s
}

// under2 is under1 after an upgrade to rules 2.
func under2(t testing.TB) *ledger.State {
	t.Helper()
	s := under1(t)
	do(t, s, ledger.Command{Rules: 2, Upgrade: &ledger.Upgrade{Rules: 2}})
	return s
}

// Under older rules every command that an older server cannot read is refused, in
// memory and as written by whoever does not look at the rules in force.
func TestNewerCommandsWaitForTheUpgrade(t *testing.T) {
	t.Parallel()
	for name, c := range newerCommands() {
		if c.Upgrade != nil {
			continue
		}
		for _, rules := range []int{0, 1, 2} {
			c.Rules = rules
			refused(t, under1(t), c, ledger.ErrRules)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
	for name, c := range newestCommands() {
		for _, rules := range []int{0, 2, 3} {
			c.Rules = rules
			refused(t, under1(t), c, ledger.ErrRules)
			refused(t, under2(t), c, ledger.ErrRules)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
	under3 := under2(t)
	do(t, under3, ledger.Command{Rules: 2, Upgrade: &ledger.Upgrade{Rules: 3}})
	for name, c := range commandsOf4() {
		for _, rules := range []int{0, 3, 4} {
			c.Rules = rules
			refused(t, under2(t), c, ledger.ErrRules)
			refused(t, under3, c, ledger.ErrRules)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
	under4 := under2(t)
	do(t, under4, ledger.Command{Rules: 2, Upgrade: &ledger.Upgrade{Rules: 3}})
	do(t, under4, ledger.Command{Rules: 3, Upgrade: &ledger.Upgrade{Rules: 4}})
	for name, c := range commandsOf5() {
		for _, rules := range []int{0, 4, 5} {
			c.Rules = rules
			refused(t, under3, c, ledger.ErrRules)
			refused(t, under4, c, ledger.ErrRules)
		}
		if t.Failed() {
			t.Fatal(name)
		}
	}
	// Even one that they could read, but for the number that it was written under.
	refused(t, under1(t), ledger.Command{Rules: 2, Budget: set("site/lab", 700)}, ledger.ErrRules)
	do(t, under1(t), ledger.Command{Rules: 1, Budget: set("site/lab", 700)})
}

// What a newer leader decides in such a group is of its rules.
func TestDecideUnderOldRules(t *testing.T) {
	t.Parallel()
	s := under1(t)
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	r := heard("n02", 7, 3, 90) // it has been in a cluster before
	table.Heard(r, 0)
	table.Heard(heard("n01", 7, 2, 200), 0)
	k := ledger.Decide(s, table, 0)
	if len(k.Seen) != 1 || len(k.Admit) != 1 {
		t.Errorf("decided %+v", k)
	}
	do(t, s, ledger.Command{Rules: 1, Tick: &k})
}

// The rules are those that the log began under, for a server that reads it from
// its beginning as for one that has the snapshot.
func TestRulesAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	if s := under1(t); s.Rules != 1 || restored(t, s).Rules != 1 {
		t.Errorf("rules %d, restored %d", s.Rules, restored(t, s).Rules)
	}
	s := ledger.New()
	if back := restored(t, s); snapshot(t, back) != snapshot(t, s) {
		t.Error("an empty state is restored as another")
	}
	must(t, s, ledger.Command{Rules: ledger.Rules, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	if s.Rules != ledger.Rules {
		t.Errorf("rules %d", s.Rules)
	}
}

// An upgrade goes one step, never back, and once.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	up := func(to int) ledger.Command { return ledger.Command{Rules: 2, Upgrade: &ledger.Upgrade{Rules: to}} }
	s := under1(t)
	refused(t, s, up(3), ledger.ErrRules)
	do(t, s, up(2))
	before := snapshot(t, s)
	do(t, s, up(2))
	do(t, s, up(1))
	do(t, s, up(-5))
	if snapshot(t, s) != before || s.Rules != 2 {
		t.Errorf("rules %d", s.Rules)
	}
	refused(t, s, up(4), ledger.ErrRules)
	do(t, s, ledger.Command{Rules: 2, Policy: &ledger.Named{Name: "equal"}})
	do(t, s, ledger.Command{Rules: 1, Budget: set("site/lab", 700)}) // written just before the upgrade
	from := s.ChangesFrom
	do(t, s, up(3))
	refused(t, s, ledger.Command{Rules: 3, DeflateJob: &ledger.DeflateJob{ID: "j"}}, ledger.ErrRules)
	refused(t, s, up(5), ledger.ErrRules)
	do(t, s, up(4))
	refused(t, s, ledger.Command{Rules: 4, SkipBrake: &ledger.SkipBrake{Generation: 1}}, ledger.ErrRules)
	refused(t, s, up(6), ledger.ErrRules)
	do(t, s, up(5))
	if s.Rules != ledger.Rules || s.ChangesFrom != from {
		t.Errorf("rules %d; the history of budgets begins at %d instead of %d", s.Rules, s.ChangesFrom, from)
	}
	do(t, s, ledger.Command{Rules: 3, ContainerPolicy: &ledger.Named{Name: "fair"}})
	do(t, s, ledger.Command{Rules: 2, Policy: &ledger.Named{Name: "equal"}})
	refused(t, s, up(6), ledger.ErrRules)
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
		"ignorable, of rules of now": `{"rules":2,"ignorable":true,"epoch":{"incarnation":1,"term":1},"weather":{}}`,
		"ignorable, cut short":       `{"rules":9,"ignorable":true,"epoch":{"incarn`,
	} {
		if c, err := ledger.Decode([]byte(text)); !errors.Is(err, ledger.ErrUnknownCommand) {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	// A flag on something that this server knows makes no difference to it.
	flagged := ledger.Command{Rules: 2, Ignorable: true, Budget: set("site/lab", 700)}
	do(t, s, flagged)
	if s.Domains["site/lab"].Budget != 700*watt {
		t.Error("passed over")
	}
}

// A log that a server of rules 1 wrote, entry by entry with what that server made
// of it, comes to the same on this one: in a group that is being upgraded both
// apply the same entries.
func TestLogOfRules1(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/rules1/log.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	s := ledger.New()
	for i, line := range lines[:len(lines)-1] {
		var entry struct {
			Command  json.RawMessage
			Refused  bool
			Revision uint64
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		c, err := ledger.Decode(entry.Command)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Apply(c); (err != nil) != entry.Refused || s.Revision != entry.Revision {
			t.Fatalf("entry %d: %v at revision %d; then it was refused: %v, at revision %d\n%s", i, err, s.Revision, entry.Refused, entry.Revision, line)
		}
	}
	var was, is map[string]any
	for text, into := range map[string]*map[string]any{lines[len(lines)-1]: &was, snapshot(t, s): &is} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	was["rules"] = 1.0 // the first rules wrote no number
	if d := cmp.Diff(was, is); d != "" {
		t.Errorf("the states differ (- then, + now):\n%s", d)
	}
}

// A snapshot that rules 1 wrote is read as it was meant, and can be upgraded.
func TestSnapshotOfRules1(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/rules1/snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ledger.Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	if s.Rules != 1 || len(s.Nodes) == 0 || s.Totals()["site/lab"].Reserved == 0 {
		t.Errorf("%+v", s)
	}
	do(t, s, ledger.Command{Upgrade: &ledger.Upgrade{Rules: 2}})
	do(t, s, ledger.Command{SprintBudget: &ledger.SetSprintBudget{Domain: "site/lab", Capacity: units.Kilojoule, Refill: watt}})
	restored(t, s)
}

// The history of budgets tells what it knows: nothing from before it was kept, or
// from before it was cut off, and the truth from there on.
func TestBudgetHistory(t *testing.T) {
	t.Parallel()
	want := func(s *ledger.State, domain string, revision uint64, watts units.Power) {
		t.Helper()
		if got, ok := s.BudgetAt(domain, revision); ok != (watts > 0) || ok && got != watts*watt {
			t.Errorf("%s at %d: %v, %v; want %v W", domain, revision, got, ok, watts)
		}
	}
	s := under1(t)
	do(t, s, ledger.Command{Budget: set("site/lab", 700)})
	old := s.Revision
	do(t, s, ledger.Command{Upgrade: &ledger.Upgrade{Rules: 2}})
	up := s.Revision
	do(t, s, ledger.Command{Actor: "mia", Reason: "heat", Budget: set("site/lab", 600)})
	cut := s.Revision
	want(s, "site/lab", old, 0)
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
