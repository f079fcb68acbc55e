// Claim: a machine adopts the rules of the log's first entry, ends its server at an entry of
// rules that it does not know, and passes over one that may be ignored.
package statemachine

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"headroom/ledger"
)

// coming stands in for the version after this one.
const coming = ledger.Known(ledger.Rules + 1)

// A machine adopts the rules of the log's first entry, ends its server at an entry
// of rules that it does not know, and passes over one that may be ignored.
func TestMachineFollowsTheRules(t *testing.T) {
	t.Parallel()
	lead := func(rules int) []byte {
		c := ledger.Command{Rules: rules, Lead: &ledger.Lead{Server: "c1"}}
		c.Epoch.Incarnation, c.Epoch.Term = 1, 1
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for rules := ledger.OldestRules; rules <= int(coming); rules++ {
		m := New()
		m.Rules = coming
		if m.InForce() != int(coming) {
			t.Errorf("an empty log is begun under rules %d", m.InForce())
		}
		if a, ok := m.Apply(1, lead(rules)).(Applied); !ok || a.Err != nil || m.InForce() != rules || rulesIn(m) != rules {
			t.Errorf("a log begun under rules %d is under %d: %v", rules, m.InForce(), a.Err)
		}
	}
	for name, x := range map[string]struct {
		entry string
		ends  bool
	}{
		"newer":     {`{"rules":99,"warp":{}}`, true},
		"ancient":   {`{"rules":-1,"lead":{"server":"c1"}}`, false}, // no rules at all: refused alike everywhere
		"ignorable": {`{"rules":99,"ignorable":true,"warp":{}}`, false},
		"nonsense":  {`]`, false},
	} {
		m := New()
		var ended error
		m.OnOutdated = func(err error) { ended = err }
		m.Apply(1, lead(ledger.Rules))
		before, _ := m.Snapshot()
		m.Apply(2, []byte(x.entry))
		after, _ := m.Snapshot()
		if (ended != nil) != x.ends || x.ends && (!errors.Is(ended, errOutdated) || !strings.Contains(ended.Error(), "entry 2: rules 99")) {
			t.Errorf("%s: ended with %v", name, ended)
		}
		if !bytes.Equal(before, after) {
			t.Errorf("%s changed the state", name)
		}
	}
}

// rulesIn are the rules that a machine's state was begun under.
func rulesIn(m *Machine) (rules int) {
	m.View(func(s *ledger.State) { rules = s.Rules })
	return rules
}
