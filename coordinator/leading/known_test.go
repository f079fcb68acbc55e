package leading

import (
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/alarms"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/view"
	"headroom/ledger"
	"headroom/units"
)

func messageState() *ledger.State {
	s := ledger.New()
	s.Domains["site/lab"] = ledger.Domain{Domain: budget.Domain{Name: "site/lab", Budget: 500 * w, Unmanaged: 40 * w}}
	s.Domains["rack/r1"] = ledger.Domain{Domain: budget.Domain{Name: "rack/r1", Parent: "site/lab", Budget: 500 * w}}
	node := ledger.Node{
		Name: "a", MachineID: "ma", Process: 1, Domain: "rack/r1", Rated: 250 * w, Floor: 60 * w, Max: 200 * w, FailSafe: 80 * w, Stored: 80 * w,
		Weight: 1, Controlled: true, Admitted: true, Target: 150 * w, Seq: 3, Ceiling: 150 * w,
	}
	s.Nodes["a"] = node
	node.Name, node.Released = "b", true
	s.Nodes["b"] = node
	node.Name, node.Released, node.Controlled = "c", false, false
	s.Nodes["c"] = node
	return s
}

func loopThatHeard(reports ...ledger.Report) *Loop {
	d := New(testConfig(nil, statemachine.New(), &outbox{}, arbitration.New()))
	d.open()
	d.began = d.began.Add(-time.Minute) // long enough that a node that was not heard is lost
	for _, r := range reports {
		d.lead.Heard(ledger.New(), d.moment(), r)
	}
	return d
}

func alarmText(items []*headroomv1.HealthItem) string {
	var b strings.Builder
	for _, i := range items {
		b.WriteString(i.GetCode() + " " + i.GetSeverity() + " " + i.GetText() + "; " + i.GetHint() + "\n")
	}
	return b.String()
}

// Shortfall, a lost node and a refused directive are alarms, the worst first,
// each with its numbers and a way out.
func TestAlarms(t *testing.T) {
	t.Parallel()
	s := messageState()
	dom := s.Domains["site/lab"]
	dom.Budget = 300 * w
	s.Domains["site/lab"] = dom
	d := loopThatHeard(ledger.Report{
		Sighting: ledger.Sighting{Node: "b", Process: 1}, Number: 1,
		Health: []ledger.Health{{Code: "limit-drift", Severity: "warn", Text: "drifts", Hint: "look"}},
	}, ledger.Report{Sighting: ledger.Sighting{Node: "c", Process: 1}, Number: 1})
	d.jobs.reports.newestRefused, d.jobs.reports.refusal = 3, "no such node"
	items := alarms.Items(d.known.Alarms(s, view.Nodes(s, d.known.Heard())))
	text := alarmText(items)
	for _, want := range []string{"shortfall fail site/lab is 390.0 W short", "node-lost warn a is lost, charged 150.0 W", "directive-refused warn", "limit-drift warn b: drifts"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if items[0].GetCode() != "node-lost" || items[1].GetCode() != "shortfall" { // the cause first
		t.Errorf("the first alarm is %v", items[0])
	}
	for _, i := range items {
		if i.GetHint() == "" || i.GetCode() == "" {
			t.Errorf("no way out: %v", i)
		}
	}
}

// Why a node was moved is told by what moved it, not by the policy in force.
func TestWhatMovedANode(t *testing.T) {
	t.Parallel()
	s := messageState()
	n := s.Nodes["a"]
	n.Target = 90 * units.Watt
	s.Nodes["a"] = n
	at := time.Unix(1_700_000_000, 0)
	if why := movedBy(s, n, 120*units.Watt, at); why != "plan by policy weighted" {
		t.Errorf("a lower plan: %q", why)
	}
	s.Events = append(s.Events, ledger.Event{At: at.UnixMicro(), Actor: "mia", What: "budget site/lab 900.0 W -> 700.0 W"})
	if why := movedBy(s, n, 120*units.Watt, at.Add(time.Second)); why != "budget site/lab 900.0 W -> 700.0 W by mia" {
		t.Errorf("a cut: %q", why)
	}
	if why := movedBy(s, n, 120*units.Watt, at.Add(time.Minute)); why != "plan by policy weighted" {
		t.Errorf("long after a cut: %q", why)
	}
	n.Drained = true
	if why := movedBy(s, n, 120*units.Watt, at); why != "drained" {
		t.Errorf("a drain: %q", why)
	}
	s.Brake.Set = 3
	if why := movedBy(s, n, 120*units.Watt, at); why != "brake 3" {
		t.Errorf("the brake: %q", why)
	}
	if why := movedBy(s, n, 80*units.Watt, at.Add(time.Minute)); why != "plan by policy weighted" {
		t.Errorf("a raise: %q", why)
	}
}
