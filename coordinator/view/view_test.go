// Claims: what is not known is absent, never zero and never the requested value; a domain's
// measured power is known only when every node below was heard lately.
package view

import (
	"testing"
	"time"

	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

func stateOfThree() *ledger.State {
	s := ledger.New()
	s.Domains["site/lab"] = ledger.Domain{Domain: budget.Domain{Name: "site/lab", Budget: 500 * units.Watt, Unmanaged: 40 * units.Watt}}
	s.Domains["rack/r1"] = ledger.Domain{Domain: budget.Domain{Name: "rack/r1", Parent: "site/lab", Budget: 500 * units.Watt}}
	node := ledger.Node{
		Name: "a", MachineID: "ma", Process: 1, Domain: "rack/r1", Rated: 250 * units.Watt, Floor: 60 * units.Watt, Max: 200 * units.Watt, FailSafe: 80 * units.Watt, Stored: 80 * units.Watt,
		Weight: 1, Controlled: true, Admitted: true, Target: 150 * units.Watt, Seq: 3, Ceiling: 150 * units.Watt,
	}
	s.Nodes["a"] = node
	node.Name, node.Released = "b", true
	s.Nodes["b"] = node
	node.Name, node.Released, node.Controlled = "c", false, false
	s.Nodes["c"] = node
	return s
}

func heardFrom(reports ...ledger.Report) *Heard {
	h := &Heard{Table: ledger.NewTable(ledger.DefaultTiming(), 0), Now: time.Minute, Lost: ledger.DefaultTiming().Lost}
	for _, r := range reports {
		h.Table.Heard(r, h.Now)
	}
	return h
}

// What is not known is absent: never zero, and never the requested value.
func TestUnknownIsAbsent(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	for name, d := range map[string]*Heard{
		"a server that does not lead": nil,
		"a leader that heard nothing": heardFrom(),
		"a report without numbers":    heardFrom(ledger.Report{Sighting: ledger.Sighting{Node: "a", Process: 1}, Number: 1}),
	} {
		n := Nodes(s, d)[0]
		if n.PowerUw != nil || n.DemandUw != nil || n.EffectiveUw != nil || n.LimitedRatio != nil || n.LeaseMs != nil {
			t.Errorf("%s: %v", name, n)
		}
		if n.GetTargetUw() != int64(150*units.Watt) || n.GetChargeUw() != int64(150*units.Watt) {
			t.Errorf("%s: what is committed is missing: %v", name, n)
		}
		for _, dom := range Domains(s, d, Nodes(s, d)) {
			if dom.MeasuredUw != nil {
				t.Errorf("%s: %s measures %d", name, dom.GetName(), dom.GetMeasuredUw())
			}
		}
	}
	if m := Nodes(s, nil)[0]; m.HeardMs != nil {
		t.Error("a follower says when a node was heard")
	}
}

// Requested, effective and measured stand apart.
func TestKnownIsShown(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	power, demand, limited := 120*units.Watt, 180*units.Watt, 0.25
	d := heardFrom(ledger.Report{
		Sighting: ledger.Sighting{Node: "a", Process: 1}, Number: 1, Effective: 149 * units.Watt, EffectiveKnown: true,
		Power: &power, Demand: &demand, Limited: &limited, Rung: "rapl", Version: "1",
		Health: []ledger.Health{{Code: "limit-drift", Severity: "warn", Text: "drifts", Hint: "look"}},
	})
	n := Nodes(s, d)[0]
	if n.GetEffectiveUw() != int64(149*units.Watt) || n.GetPowerUw() != int64(120*units.Watt) || n.GetDemandUw() != int64(180*units.Watt) || n.GetLimitedRatio() != 0.25 {
		t.Errorf("shown as %v", n)
	}
	if n.GetState() != StateOK || n.GetRung() != "rapl" || len(n.GetHealth()) != 1 || n.HeardMs == nil {
		t.Errorf("shown as %v", n)
	}
}

// A domain's measured power is known only when every node below was heard lately.
func TestMeasuredNeedsEveryNode(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	delete(s.Nodes, "c")
	power := 100 * units.Watt
	a := ledger.Report{Sighting: ledger.Sighting{Node: "a", Process: 1}, Number: 1, Power: &power}
	b := a
	b.Node = "b"
	d := heardFrom(a)
	if m := Domains(s, d, Nodes(s, d)); m[0].MeasuredUw != nil {
		t.Errorf("measured %d with one node unheard", m[0].GetMeasuredUw())
	}
	d = heardFrom(a, b)
	for _, m := range Domains(s, d, Nodes(s, d)) {
		if m.GetMeasuredUw() != int64(200*units.Watt) {
			t.Errorf("%s measures %d", m.GetName(), m.GetMeasuredUw())
		}
	}
}

// Every state of a node has its word.
func TestStatesOfNodes(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	waiting := s.Nodes["a"]
	waiting.Name, waiting.Admitted = "d", false
	s.Nodes["d"] = waiting
	lost := s.Nodes["a"]
	lost.Name = "e"
	s.Nodes["e"] = lost
	silent := s.Nodes["c"]
	silent.Name = "f"
	s.Nodes["f"] = silent
	var reports []ledger.Report
	for _, n := range []string{"a", "b", "c", "d"} {
		reports = append(reports, ledger.Report{Sighting: ledger.Sighting{Node: n, Process: 1}, Number: 1})
	}
	want := map[string]string{"a": StateOK, "b": StateReleased, "c": stateObserving, "d": stateWaiting, "e": StateLost, "f": StateLost}
	for _, m := range Nodes(s, heardFrom(reports...)) {
		if m.GetState() != want[m.GetName()] {
			t.Errorf("%s is %s, want %s", m.GetName(), m.GetState(), want[m.GetName()])
		}
	}
}

// While a node is unknown, the known sum is a lower bound; a machine that is off is not unknown.
func TestPowerIsALowerBound(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	delete(s.Nodes, "c")
	power := 122 * units.Watt
	d := heardFrom(ledger.Report{Sighting: ledger.Sighting{Node: "a", Process: 1}, Number: 1, Power: &power})
	for _, m := range Domains(s, d, Nodes(s, d)) {
		if m.MeasuredUw != nil || m.GetPowerKnownUw() != int64(power) || m.GetPowerUnknownNodes() != 1 || m.GetUnmeteredUw() != m.GetUnmanagedUw() {
			t.Errorf("one node unheard: %v", m)
		}
	}
	b := s.Nodes["b"]
	b.Off = "mia"
	s.Nodes["b"] = b
	for _, m := range Domains(s, d, Nodes(s, d)) {
		if m.GetMeasuredUw() != int64(power) || m.GetPowerUnknownNodes() != 0 {
			t.Errorf("one machine off: %v", m)
		}
	}
	for _, m := range Domains(s, nil, Nodes(s, nil)) {
		if m.PowerKnownUw != nil || m.PowerUnknownNodes != nil {
			t.Errorf("a follower: %v", m)
		}
	}
}

// A parent without a meter has the reading of its child's meter, which knows the lost node too.
func TestMetersRollUp(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	d := heardFrom()
	d.Meters = map[string]Reading{"rack/r1": {Power: 300 * units.Watt, Meter: "pdu-7"}}
	m := Domains(s, d, Nodes(s, d))
	if m[0].GetMeasuredUw() != int64(300*units.Watt) || m[0].GetMeasuredBy() != MeasuredByMeters || m[0].GetPowerUnknownNodes() != 0 {
		t.Errorf("the parent: %v", m[0])
	}
	if drawn, known := DrawnAtLeast(m[0]); !known || drawn != 340*units.Watt {
		t.Errorf("the parent draws %v, want the meter's 300 W and 40 W unmanaged that it does not see", drawn)
	}
	if m[1].GetMeasuredBy() != "pdu-7" || m[1].GetUnmeteredUw() != 0 {
		t.Errorf("the child: %v", m[1])
	}
}

// A follower does not hear nodes, so none of them is "ok".
func TestFollowerSaysUnknown(t *testing.T) {
	t.Parallel()
	s := stateOfThree()
	for name, want := range map[string]string{"a": StateUnknown, "b": StateReleased, "c": stateObserving} {
		if got := Node(s, nil, s.Nodes[name]).GetState(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// A leader that has just begun waits for reports: nodes are not lost yet.
func TestANewLeaderAwaitsReports(t *testing.T) {
	t.Parallel()
	h := heardFrom()
	h.Now = h.Lost - time.Millisecond
	for _, m := range Nodes(stateOfThree(), h) {
		if m.GetState() == StateLost {
			t.Errorf("%s is lost %v after its leader began", m.GetName(), h.Now)
		}
	}
}

// A released node is not shown with the cap that it had.
func TestReleasedNodeHasNoCap(t *testing.T) {
	t.Parallel()
	n := ledger.Node{Name: "a", Domain: "site/lab", Admitted: true, Controlled: true, Released: true, Target: 100 * units.Watt, Rated: 200 * units.Watt}
	if m := Node(stateOfThree(), heardFrom(), n); m.GetState() != StateReleased || m.TargetUw != nil {
		t.Errorf("%s with a cap of %d", m.GetState(), m.GetTargetUw())
	}
}
