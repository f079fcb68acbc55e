// Claims: a budget change is followed until every node that it lowers has read its cap
// back, and no longer than is bounded.
package leader

import (
	"testing"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

const w = units.Watt

func heard(node string, seq uint64, effective units.Power) ledger.Report {
	return ledger.Report{
		Sighting: ledger.Sighting{Node: node}, Highest: lease.Stamp{Seq: seq}, Effective: effective, EffectiveKnown: true,
	}
}

// A node confirms a cut when it names its sequence and its hardware holds no
// more than the cap, or than the target that came after; nothing else does.
func TestConfirmations(t *testing.T) {
	t.Parallel()
	unknown := heard("a", 9, 90*w)
	unknown.EffectiveKnown = false
	for name, c := range map[string]struct {
		report ledger.Report
		target units.Power
		want   bool
	}{
		"reached":                      {heard("a", 5, 100*w), 100 * w, true},
		"an eighth of a watt more":     {heard("a", 5, 100*w+budget.Quantum), 100 * w, true},
		"hardware not there yet":       {heard("a", 5, 101*w), 100 * w, false},
		"has not stored it yet":        {heard("a", 4, 90*w), 100 * w, false},
		"another node":                 {heard("b", 5, 90*w), 100 * w, false},
		"hardware unknown":             {unknown, 100 * w, false},
		"raised again since":           {heard("a", 6, 140*w), 140 * w, true},
		"lowered again, there not yet": {heard("a", 6, 130*w), 80 * w, false},
	} {
		var l Leader
		s, at := ledger.New(), 1000*time.Second
		s.Nodes["a"] = ledger.Node{Name: "a", Seq: 5}
		l.waits.follow(s, at, 7, []ledger.Target{{Node: "a", Cap: 100 * w}})
		l.waits.heard(c.report, c.report.Highest.Seq, c.target, at+300*time.Millisecond)
		l.waits.heard(c.report, c.report.Highest.Seq, c.target, at+900*time.Millisecond) // the first time counts
		nodes, ok := l.Confirmations(7)
		if !ok || (nodes[0].After > 0) != c.want || c.want && nodes[0].After != 300*time.Millisecond {
			t.Errorf("%s: %+v", name, nodes)
		}
	}
}

// Lesson 18: only the newest changes are followed.
func TestConfirmationsAreBounded(t *testing.T) {
	t.Parallel()
	var l Leader
	for i := range uint64(keptConfirmations + 3) {
		l.waits.follow(ledger.New(), 0, i, nil)
	}
	_, oldest := l.Confirmations(2)
	_, kept := l.Confirmations(3)
	if oldest || !kept || len(l.waits.changes) != keptConfirmations {
		t.Errorf("oldest %v, kept %v, %d changes", oldest, kept, len(l.waits.changes))
	}
}
