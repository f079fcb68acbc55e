package ledger_test

import (
	"errors"
	"testing"

	"headroom/ledger"
)

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
