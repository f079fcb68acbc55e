// Claims: what the BMC is checked against moves with the node's load and with nothing
// else, not with what is learned from that BMC; so a steady node keeps its BMC, and one
// whose load moved under a frozen value loses it, with counters or without.
package agent

import (
	"math"
	"testing"
	"time"

	"headroom/agent/config"
	"headroom/agent/statedir"
	"headroom/internal/testkit/emulated"
	"headroom/ipmi"
	"headroom/lease"
	"headroom/units"

	"headroom/internal/testkit"
)

// still is a node on a machine whose time only goes on when the test says so.
type still struct {
	*node
	machine *emulated.Machine
	now     time.Duration
	wall    ipmi.Reading // as a healthy BMC tells it: each second, in whole watts
}

func newStill(t *testing.T, shapeName string) *still {
	t.Helper()
	machine := emulated.Start(t, emulated.Options{Dir: t.TempDir(), Shape: shapeName})
	spec := machine.Spec
	cfg := config.Defaults()
	cfg.Node, cfg.Domain, cfg.Enforce = "n01", "rack/r1", true
	cfg.Root, cfg.StateDir = machine.Root(), t.TempDir()
	cfg.Power = config.Power{
		Rated: spec.Rated, Floor: spec.Floor + 10*units.Watt, Max: spec.Rated, FailSafe: spec.FailSafe + 10*units.Watt,
		Other: spec.Other + 32*units.Watt, SupplyEfficiency: spec.Efficiency, // memory at its most
	}
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	n.lock, n.control.began = file, time.Hour
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	n.meter.BeginLearning()
	s := &still{node: n, machine: machine, now: time.Hour}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// second lets a second go by under a load of 0 to 1.
func (s *still) second(t *testing.T, load float64) {
	t.Helper()
	for range int(time.Second / period) {
		for range 10 {
			if err := s.machine.Step(period/10, load); err != nil {
				t.Fatal(err)
			}
		}
		s.now += period
		s.meter.Sample = s.node.machine.Look(lease.Instant{Boot: s.now, Awake: s.now})
		s.meter.LearnFrom(s.now, s.wall)
	}
	s.node.machine.ReadBack()
	s.control.busy, s.control.busyKnown = s.node.machine.Busy()
	told := units.Power(math.Round(s.machine.Wall().Watts())) * units.Watt
	if told != s.wall.Power {
		s.wall.Serial, s.wall.ChangedAt = s.wall.Serial+1, s.now
	}
	s.wall.Power, s.wall.Known, s.wall.State, s.wall.AskedAt = told, true, ipmi.StateOK, s.now
}

// A machine whose memory no counter shows is told more of it than it draws: the model
// comes down as it learns, and the reference stays.
func TestLearningIsNoReference(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	s := newStill(t, "epyc")
	low, high := s.steady(t)
	learned, configured := s.meter.Reading().Power, s.meter.ByCounters().Power
	if learned > configured*95/100 {
		t.Errorf("%v learned, %v configured: nothing was learned, so nothing is shown", learned, configured)
	}
	if high-low > units.Watt {
		t.Errorf("the reference of a steady node went from %v to %v", low, high)
	}
}

// Dies that turn out to show one counter halve the sum, and not the reference.
func TestMirroredCountersAreNoReference(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	s := newStill(t, "epyc-mirrored")
	s.second(t, 0.02)
	s.second(t, 0.02)
	before := s.meter.Sample.Package.Power
	low, high := s.steady(t)
	if after := s.meter.Sample.Package.Power; after > before*6/10 {
		t.Errorf("packages %v, then %v: the mirrors were not found, so nothing is shown", before, after)
	}
	if high-low > units.Watt {
		t.Errorf("the reference of a steady node went from %v to %v", low, high)
	}
}

// steady is between what the reference stays through two minutes of little load, once it
// has settled.
func (s *still) steady(t *testing.T) (low, high units.Power) {
	t.Helper()
	for i := range 120 {
		s.second(t, 0.02)
		w, ok := s.meter.Reference(s.control.busy, s.control.busyKnown)
		switch {
		case i < 5:
		case !ok:
			t.Fatalf("no reference after %d s", i)
		case low == 0:
			low, high = w, w
		}
		low, high = min(low, w), max(high, w)
	}
	return low, high
}

// Where nothing counts energy, CPU use is the reference: it holds while the load holds,
// and leaves the slack that the meter gives when the load moves, either way.
func TestLoadIsAReference(t *testing.T) {
	t.Parallel()
	s := newStill(t, "arm-cppc")
	at := func(load float64) units.Power {
		for range 3 {
			s.second(t, load)
		}
		w, ok := s.meter.Reference(s.control.busy, s.control.busyKnown)
		if !ok {
			t.Fatal("no reference")
		}
		return w
	}
	idle := at(0.05)
	if again := at(0.05); max(again-idle, idle-again) > units.Watt {
		t.Errorf("%v, then %v under the same load", idle, again)
	}
	told := s.wall.Power
	busy := at(0.9)
	if slack := max(5*units.Watt, told/20); busy-idle < slack {
		t.Errorf("from %v to %v under load beside %v of the BMC: a frozen BMC would pass for a steady one", idle, busy, told)
	}
	for _, p := range s.node.machine.Freq.Set.Policies() {
		c, err := p.Ceiling()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Set(p.Max); err != nil {
			t.Fatal(err)
		}
	}
	if faster := at(0.9); faster <= busy {
		t.Errorf("%v under the same load with higher ceilings, it was %v", faster, busy)
	}
}
