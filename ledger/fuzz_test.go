// Claim: no bytes from the log or from a snapshot make a server panic, and
// what it accepts, it writes the same again.
package ledger_test

import (
	"testing"

	"headroom/ledger"
)

func FuzzDecode(f *testing.F) {
	for _, c := range everyCommand() {
		data, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ledger.Decode(data)
		if err != nil {
			return
		}
		one, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ledger.Decode(one)
		if err != nil {
			t.Fatalf("%s does not decode: %v", one, err)
		}
		if two, err := again.Encode(); err != nil || string(two) != string(one) {
			t.Errorf("%s becomes %s, %v", one, two, err)
		}
		c.Epoch = first()
		if c.Lead != nil {
			c.Epoch.Term++
		}
		stopping := admitted(t, 800, "n01")
		stopped(t, stopping, "wc-7", 0.75, 40, 30)
		do(t, stopping, ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "wc-7", Theta: 0.1, Seed: 3}})
		for _, s := range []*ledger.State{admitted(t, 800, "n01", "n02"), sprinting(t), stopping} {
			before := snapshot(t, s)
			if _, err := s.Apply(c); err != nil && snapshot(t, s) != before {
				t.Errorf("a refused command changed the state: %v", err)
			}
			if back, err := ledger.Restore([]byte(snapshot(t, s))); err != nil || snapshot(t, back) != snapshot(t, s) {
				t.Errorf("an accepted command made a state that cannot be restored: %v", err)
			}
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"domains":null,"nodes":null,"jobs":null}`))
	f.Add([]byte(snapshot(f, admitted(f, 800, "n01"))))
	f.Add([]byte(snapshot(f, sprinting(f))))
	f.Add([]byte(snapshot(f, recovered(f, 800))))
	dropping := admitted(f, 800, "n01")
	stopped(f, dropping, "j1", 0.75, 40, 30)
	do(f, dropping, ledger.Command{DropTasks: drops("j1", 31, 33, 36, 36)})
	do(f, dropping, ledger.Command{DeflateJob: &ledger.DeflateJob{ID: "j1", Theta: 0.1, Seed: 3}})
	f.Add([]byte(snapshot(f, dropping)))
	moving := twoRacks(f, 800, 800)
	do(f, moving, ledger.Command{Move: &ledger.MoveNode{Node: "n01", To: "rack/r2"}})
	do(f, moving, schedule("day", "0 6 * * *", 900))
	f.Add([]byte(snapshot(f, moving)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ledger.Restore(data)
		if err != nil {
			return
		}
		text := snapshot(t, s)
		back, err := ledger.Restore([]byte(text))
		if err != nil || snapshot(t, back) != text {
			t.Fatalf("%s does not restore to itself: %v", text, err)
		}
		next := s.Epoch
		next.Term++
		if _, err := s.Apply(ledger.Command{Epoch: next, Lead: &ledger.Lead{Server: "c1"}}); err != nil && next.Term != 0 {
			t.Fatal(err)
		}
		table := ledger.NewTable(ledger.DefaultTiming(), 0)
		table.Heard(heard("n01", 1, 1, 90), 0)
		if len(s.Domains) == 0 {
			return
		}
		// What it decides may be refused in a state that no Apply has made, but not more.
		k := ledger.Decide(s, table, 0)
		k.Elapsed = second
		_, _ = s.Apply(ledger.Command{Epoch: s.Epoch, Tick: &k})
		_, _ = s.Apply(ledger.Command{Epoch: s.Epoch, Remove: &ledger.RemoveNode{Node: "n01"}})
		ledger.Due(s, at(noon))
	})
}
