// Claim: the judges can see. Each mistake that a careless hand could make in
// the cluster is found within some hundred schedules, under the promise it breaks.
package simulation

import (
	"testing"
	"time"

	"headroom/ledger"
)

const sabotageSchedules = 600

func TestSabotageIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bent    bends
		harass  func(*world) // more of the faults that the mistake needs, where it is a rare one
		promise string
	}{
		"a lease counts from the arrival of its grant": {bends{receipt: true}, nil, "P2"},
		"heartbeats are answered before the commit":    {bends{early: true}, nil, "P3"},
		"a lower counts before it is acknowledged":     {bends{tick: lowersAtOnce}, nil, "P4"},
		"a silent node falls to its fail-safe cap":     {bends{tick: forgetsSilent}, nil, "P4"},
		"a read-back forgets the target it may renew":  {bends{report: namesNext}, delayLeases, "P4"},
		"a report says what was written":               {bends{report: believesWrites}, nil, "P4"},
		"the sum is broken, too":                       {bends{tick: lowersAtOnce}, nil, "P1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.harass != nil {
				unharmed(t, c.harass)
			}
			for i := range sabotageSchedules {
				for _, v := range schedule(i, c.bent, c.harass) {
					if v.Promise == c.promise {
						t.Logf("schedule %d, %.3f s: %s", i+1, v.At, v.What)
						return
					}
				}
			}
			t.Errorf("not found in %d schedules", sabotageSchedules)
		})
	}
}

// unharmed proves that it is the mistake that is found, not the harassment.
func unharmed(t *testing.T, harass func(*world)) {
	t.Helper()
	for i := range 50 {
		for _, v := range schedule(i, bends{}, harass) {
			t.Errorf("without a mistake: %+v", v)
		}
	}
}

func schedule(i int, bent bends, harass func(*world)) []Violation {
	w := newWorld(SeedOf(11, i), time.Minute, nil, bent)
	if harass != nil {
		harass(w)
	}
	w.run()
	return w.judge.found
}

// delayLeases makes leases arrive late and nodes lose theirs in short suspends,
// with an operator who changes budgets all the time.
func delayLeases(w *world) {
	w.net.spiky, w.net.spike, w.net.reorder, w.busy = 0.5, 8*time.Second, 1, time.Second
	for at := 5 * time.Second; at < w.calm; at += 700 * time.Millisecond {
		w.add(at, w.suspendNode)
	}
}

// lowersAtOnce commits a lower as acknowledged with the tick that follows it.
func lowersAtOnce(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		if n.Ceiling > n.Target && n.Grantable() {
			t.Acks = append(t.Acks, ledger.Ack{
				Node: n.Name, Process: n.Process, Seq: n.Seq, Effective: n.Target, Stored: n.FailSafe,
			})
		}
	}
}

// forgetsSilent takes for granted that a node which has not been heard for
// three seconds has fallen to its fail-safe cap.
func forgetsSilent(l *leadership, t *ledger.Tick) {
	for _, n := range l.s.state.NodesByName() {
		v, ok := l.table.View(n.Name, l.s.now())
		if ok && v.Age < 3*time.Second || !n.Grantable() || n.Charge() == n.FailSafe {
			continue
		}
		t.Acks = append(t.Acks, ledger.Ack{
			Node: n.Name, Process: n.Process, Seq: n.Seq + 1, Effective: n.FailSafe, Stored: n.FailSafe,
		})
		t.Targets = append(t.Targets, ledger.Target{Node: n.Name, Cap: n.Least()})
	}
}

// namesNext makes a node name a sequence number that it has not stored.
func namesNext(_ *node, r *ledger.Report) { r.Highest.Seq++ }

// believesWrites makes a node report what it wrote instead of what reads back.
func believesWrites(n *node, r *ledger.Report) { r.Effective = n.want }
