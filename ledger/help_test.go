package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

// Numbers of the node that most tests use: floor 70, fail-safe 90, max 220, rated 250.
const (
	watt    = units.Watt
	process = uint64(77)
)

// first is the epoch of the leadership in force in a founded state.
func first() lease.Epoch { return lease.Epoch{Incarnation: 1, Term: 1} }

func site(watts units.Power) []budget.Domain {
	return []budget.Domain{
		{Name: "site/lab", Budget: watts * watt},
		{Name: "rack/r1", Parent: "site/lab", Budget: watts * watt},
	}
}

// founded is a state with a leader and a power tree.
func founded(t testing.TB, domains []budget.Domain) *ledger.State {
	t.Helper()
	s := ledger.New()
	must(t, s, ledger.Command{Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, s, ledger.Command{Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(domains)}})
	return s
}

// sighting declares the usual node of rack/r1.
func sighting(name string) ledger.Sighting {
	return ledger.Sighting{
		Node: name, MachineID: "machine-" + name, Process: process, Domain: "rack/r1",
		Rated: 250 * watt, Floor: 70 * watt, Max: 220 * watt, FailSafe: 90 * watt, Weight: 1, Controlled: true,
	}
}

// admitted is a state whose nodes have been seen, read back at their fail-safe cap and admitted.
func admitted(t testing.TB, budget units.Power, names ...string) *ledger.State {
	t.Helper()
	s := founded(t, site(budget))
	for i, name := range names {
		tick(t, s, ledger.Tick{
			Seen:  []ledger.Sighting{sighting(name)},
			Acks:  []ledger.Ack{{Node: name, Process: process, Number: uint64(i + 1), Effective: 90 * watt, Stored: 90 * watt}},
			Admit: []string{name},
		})
	}
	return s
}

func must(t testing.TB, s *ledger.State, c ledger.Command) ledger.Result {
	t.Helper()
	r, err := s.Apply(c)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return r
}

func tick(t testing.TB, s *ledger.State, k ledger.Tick) {
	t.Helper()
	must(t, s, ledger.Command{Epoch: first(), Tick: &k})
}

func target(watts units.Power) ledger.Tick {
	return ledger.Tick{Targets: []ledger.Target{{Node: "n01", Cap: watts * watt}}}
}

func snapshot(t testing.TB, s *ledger.State) string {
	t.Helper()
	data, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// heard is a report of the usual node.
func heard(name string, number, seq uint64, effective units.Power) ledger.Report {
	return ledger.Report{
		Sighting: sighting(name), Number: number, Highest: lease.Stamp{Epoch: first(), Seq: seq},
		Effective: effective * watt, EffectiveKnown: true, Stored: 90 * watt,
	}
}

const second = time.Second

// do carries out a command of the leadership in force.
func do(t testing.TB, s *ledger.State, c ledger.Command) {
	t.Helper()
	c.Epoch = s.Epoch
	must(t, s, c)
}

// refused wants a command of the leadership in force to be refused for a reason, without a trace.
func refused(t testing.TB, s *ledger.State, c ledger.Command, want error) {
	t.Helper()
	_ = refusal(t, s, c, want)
}

// refusal is refused, and the error that it was refused with.
func refusal(t testing.TB, s *ledger.State, c ledger.Command, want error) error {
	t.Helper()
	c.Epoch = s.Epoch
	before := snapshot(t, s)
	_, err := s.Apply(c)
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	if snapshot(t, s) != before {
		t.Errorf("a refused command changed the state: %v", err)
	}
	return err
}

// says wants an error to name every one of the words.
func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}

// next lets another server lead the same state.
func next(t testing.TB, s *ledger.State) {
	t.Helper()
	e := s.Epoch
	e.Incarnation, e.Term = max(1, e.Incarnation), e.Term+1
	must(t, s, ledger.Command{Epoch: e, Lead: &ledger.Lead{Server: "c2"}})
}

// restored is the state after a way through a snapshot.
func restored(t testing.TB, s *ledger.State) *ledger.State {
	t.Helper()
	was := snapshot(t, s)
	back, err := ledger.Restore([]byte(was))
	if err != nil {
		t.Fatal(err)
	}
	if is := snapshot(t, back); is != was {
		t.Errorf("a server that restored it differs from one that applied the log:\n%s\n%s", is, was)
	}
	return back
}

// reads is a tick in which the usual node, by name, has stored seq and reads back these watts.
func reads(node string, number, seq uint64, watts units.Power) ledger.Tick {
	return ledger.Tick{Acks: []ledger.Ack{{Node: node, Process: process, Number: number, Seq: seq, Effective: watts * watt, Stored: 90 * watt}}}
}

func setDomain(name string, change func(*ledger.SetDomain)) ledger.Command {
	x := ledger.SetDomain{Name: name}
	change(&x)
	return ledger.Command{Domain: &x}
}

func setNode(name string, change func(*ledger.Settings)) ledger.Command {
	x := ledger.SetNode{Node: name}
	change(&x.Settings)
	return ledger.Command{Node: &x}
}

// reserved are the watts charged in a domain.
func reserved(s *ledger.State, domain string) units.Power { return s.Totals()[domain].Reserved }
