// Claim: a brake that the log has heard of takes every node to its fail-safe cap
// and lets nothing rise, until an operator who has seen it lifts it.
package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"headroom/ledger"
)

func brake(generation uint64) ledger.Command {
	return ledger.Command{At: 5, Actor: "mia", Reason: "smoke", Brake: &ledger.SetBrake{Generation: generation}}
}

// It lowers targets and ends sprints at once; charges follow the read-backs.
func TestBrakeLowersEverybody(t *testing.T) {
	t.Parallel()
	s := sprinting(t)
	do(t, s, setNode("n03", func(x *ledger.Settings) { x.Min = new(120 * watt) }))
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "n03", Cap: 150 * watt}}})
	do(t, s, brake(7))
	for _, n := range s.NodesByName() {
		if n.Target != 90*watt || n.Sprint != nil {
			t.Errorf("%s is aimed at %v, sprint %v", n.Name, n.Target, n.Sprint)
		}
	}
	if got := reserved(s, "site/lab"); got != (200+200+150)*watt {
		t.Errorf("reserved %v: nobody has read back", got)
	}
	if b := s.Brake; b.Set != 7 || !b.Active() || b.By != "mia" || b.Reason != "smoke" || b.At != 5 {
		t.Errorf("%+v", b)
	}
	for i, n := range s.NodesByName() {
		tick(t, s, reads(n.Name, uint64(30+i), n.Seq, 90))
	}
	if got := reserved(s, "site/lab"); got != 270*watt {
		t.Errorf("reserved %v", got)
	}
}

// Generations only rise: what was heard before, and a replay of it, change nothing.
func TestOldBrakeChangesNothing(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, brake(7))
	do(t, s, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: 7}})
	tick(t, s, target(150))
	before := snapshot(t, s)
	for _, old := range []uint64{0, 6, 7} {
		do(t, s, brake(old))
	}
	do(t, s, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: 6}})
	if snapshot(t, s) != before {
		t.Error("an old generation changed the state")
	}
	do(t, s, brake(8))
	if !s.Brake.Active() || s.Nodes["n01"].Target != 90*watt {
		t.Errorf("a newer one: %+v", s.Brake)
	}
}

// While it is set nothing rises: no cap, no admission, no sprint, not by a
// setting, not in what the leader decides. Lowers, budgets and moves go on.
func TestNothingRisesUnderTheBrake(t *testing.T) {
	t.Parallel()
	s := full(t)
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n04")}, Acks: reads("n04", 1, 0, 90).Acks})
	do(t, s, brake(1))
	refused(t, s, ledger.Command{Tick: new(target(91))}, ledger.ErrBraked)
	refused(t, s, ledger.Command{Tick: &ledger.Tick{Admit: []string{"n04"}}}, ledger.ErrBraked)
	refused(t, s, sprint("s1", "n01"), ledger.ErrBraked)
	do(t, s, setNode("n01", func(x *ledger.Settings) { x.Min, x.Labels = new(150*watt), map[string]string{"a": "b"} }))
	do(t, s, ledger.Command{Budget: set("site/lab", 3000)})
	do(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "n01"}})
	do(t, s, ledger.Command{Drain: &ledger.DrainNode{Node: "n01", Resume: true}})
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	for _, n := range []string{"n01", "n02", "n03", "n04"} {
		r := heard(n, 40, s.Nodes[n].Seq, 90)
		r.Brake = 1
		table.Heard(r, 0)
	}
	k := ledger.Decide(s, table, 0)
	tick(t, s, k)
	if !quiet(k) {
		t.Errorf("decided %+v", k)
	}
	for _, n := range s.NodesByName() {
		if n.Target > 90*watt {
			t.Errorf("%s is aimed at %v", n.Name, n.Target)
		}
	}
	table.Mark()
	if why := table.Waiting(s)["n04"]; !strings.Contains(why, "brake") {
		t.Errorf("n04 waits because %q", why)
	}

	do(t, s, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: 1}})
	k = ledger.Decide(s, table, 0)
	tick(t, s, k)
	if len(k.Admit) != 1 || s.Nodes["n01"].Target < 150*watt {
		t.Errorf("lifted, and decided %+v", k)
	}
}

// A leader that has heard of a brake which the log does not know grants nobody
// anything; leases tell what is lifted.
func TestUnknownBrakeHoldsAllLeases(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01", "n02")
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 1, 90), 0)
	r := heard("n02", 20, 1, 90)
	r.Brake = 3
	table.Heard(r, 0)
	table.Mark()
	if got := table.Grants(s, 0); len(got) != 0 || table.Brake() != 3 {
		t.Errorf("granted %+v", got)
	}
	do(t, s, brake(3))
	do(t, s, ledger.Command{LiftBrake: &ledger.LiftBrake{Generation: 3}})
	got := table.Grants(s, 0)
	if len(got) != 2 || got[0].Grant.BrakeLifted != 3 {
		t.Errorf("granted %+v", got)
	}
}

// A brake that the log hears of aims every node at its least cap, and while it is
// set nothing goes up: no target, no admission, no release. An older generation
// changes nothing.
func TestNothingRisesWhileTheBrakeIsSet(t *testing.T) {
	t.Parallel()
	s := admitted(t, 1000, "a", "b")
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "a", Cap: 180 * watt}, {Node: "b", Cap: 120 * watt}}, Seen: []ledger.Sighting{sighting("c")}})
	must(t, s, ledger.Command{Epoch: first(), Actor: "mia", Reason: "fire", Brake: &ledger.SetBrake{Generation: 5}})
	for _, name := range []string{"a", "b"} {
		if n := s.Nodes[name]; n.Target != 90*watt || n.Charge() < 120*watt {
			t.Errorf("%s: target %v, charged %v before it has read back", name, n.Target, n.Charge())
		}
	}
	revision := s.Revision
	must(t, s, ledger.Command{Epoch: first(), Actor: "joe", Brake: &ledger.SetBrake{Generation: 5}})
	must(t, s, ledger.Command{Epoch: first(), Actor: "joe", Brake: &ledger.SetBrake{Generation: 4}})
	if s.Revision != revision || s.Brake.Set != 5 || s.Brake.By != "mia" || s.Brake.Reason != "fire" {
		t.Errorf("an old generation changed %+v", s.Brake)
	}
	for name, c := range map[string]ledger.Command{
		"raise":     {Tick: &ledger.Tick{Targets: []ledger.Target{{Node: "a", Cap: 91 * watt}}}},
		"admission": {Tick: &ledger.Tick{Admit: []string{"c"}}},
		"release":   {Release: &ledger.Release{Node: "a", MachineID: "machine-a"}},
	} {
		c.Epoch = first()
		if _, err := s.Apply(c); !errors.Is(err, ledger.ErrBraked) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Only the generation in force is lifted, once; a higher one sets the brake again.
func TestLiftNamesTheGeneration(t *testing.T) {
	t.Parallel()
	s := admitted(t, 1000, "a")
	lift := func(g uint64) error {
		_, err := s.Apply(ledger.Command{Epoch: first(), LiftBrake: &ledger.LiftBrake{Generation: g}})
		return err
	}
	if err := lift(3); err != nil || s.Brake != (ledger.Brake{}) {
		t.Errorf("lifted a brake that is not set: %+v, %v", s.Brake, err)
	}
	must(t, s, ledger.Command{Epoch: first(), Brake: &ledger.SetBrake{Generation: 5}})
	for _, g := range []uint64{0, 4, 6} {
		if err := lift(g); !errors.Is(err, ledger.ErrConflict) || !s.Brake.Active() {
			t.Errorf("lifted as %d: %v", g, err)
		}
	}
	if err := lift(5); err != nil || s.Brake.Active() || s.Brake.Lifted != 5 {
		t.Errorf("not lifted: %+v, %v", s.Brake, err)
	}
	tick(t, s, ledger.Tick{Targets: []ledger.Target{{Node: "a", Cap: 180 * watt}}})
	must(t, s, ledger.Command{Epoch: first(), Brake: &ledger.SetBrake{Generation: 5}})
	if s.Brake.Active() || s.Nodes["a"].Target != 180*watt {
		t.Error("a replay set the brake again")
	}
	must(t, s, ledger.Command{Epoch: first(), Brake: &ledger.SetBrake{Generation: 6}})
	if !s.Brake.Active() || s.Nodes["a"].Target != 90*watt {
		t.Error("a new generation did not set it")
	}
}

// A generation that nobody signed is passed over, a brake that is set is not, and
// there is room for another one afterwards.
func TestSkipBrake(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, ledger.Command{SkipBrake: &ledger.SkipBrake{Generation: 9}})
	if s.Brake.Active() || s.Brake.Lifted != 9 {
		t.Errorf("after the skip: %+v", s.Brake)
	}
	do(t, s, ledger.Command{SkipBrake: &ledger.SkipBrake{Generation: 3}})
	refused(t, s, ledger.Command{SkipBrake: &ledger.SkipBrake{Generation: ledger.MaxSkip + 1}}, ledger.ErrSkip)
	do(t, s, ledger.Command{Brake: &ledger.SetBrake{Generation: 10}})
	refused(t, s, ledger.Command{SkipBrake: &ledger.SkipBrake{Generation: 11}}, ledger.ErrConflict)
	if !s.Brake.Active() || s.Brake.Set != 10 {
		t.Errorf("the brake that was set: %+v", s.Brake)
	}
}
