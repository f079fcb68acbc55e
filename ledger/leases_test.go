// Claim (P1, P2): every wait for leases to end counts with the longest that may be out:
// the committed length, the one before a change, and after a restore the longest that there
// can be. What a leader's own configuration says does not count.
package ledger_test

import (
	"testing"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

func setLease(t *testing.T, s *ledger.State, length time.Duration) {
	t.Helper()
	do(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: length}})
}

func TestLeaseLengthIsBounded(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01")
	for _, length := range []time.Duration{0, -second, 2 * second, 3 * time.Minute, 1 << 62} {
		refused(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: length}}, ledger.ErrLease)
	}
}

// A change to a shorter length waits for the longer one to run out.
func TestLongestLeaseThatMayBeOut(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01")
	if got := s.LongestLease(); got != ledger.LeaseMost {
		t.Errorf("%v in a log without a length: each server had its own", got)
	}
	setLease(t, s, time.Minute)
	for range 130 {
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	if got := s.LongestLease(); got != time.Minute {
		t.Errorf("%v, all longer ones are over", got)
	}
	setLease(t, s, 10*second)
	tick(t, s, ledger.Tick{Elapsed: 59 * second})
	setLease(t, s, 20*second) // and again meanwhile
	if got := s.LongestLease(); got != time.Minute {
		t.Errorf("%v, one of a minute may be out", got)
	}
	for range 62 + 31 { // and lost nodes have settled
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	if got := s.LongestLease(); got != 20*second {
		t.Errorf("%v", got)
	}
	restored(t, s)
}

// A node is given two minutes and cut off; the next leader is configured with 10 s.
func TestLapseWaitsForTheLongestLease(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01", "n02")
	do(t, s, setDomain("site/lab", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostFailSafe) }))
	setLease(t, s, 2*time.Minute)
	tick(t, s, target(200))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	held := lease.New(process, lease.Memory{FailSafe: 90 * watt}, lease.Instant{})
	held.Sent(20, lease.Instant{})
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Mark()
	for _, g := range table.Grants(s, 0) {
		if g.Grant.Duration != 2*time.Minute {
			t.Fatalf("a lease of %v", g.Grant.Duration)
		}
		if err := held.Take(g.Grant, lease.Instant{}); err != nil {
			t.Fatal(err)
		}
	}
	tick(t, s, ack(20, 2, 200))
	next(t, s)
	setLease(t, s, 10*second) // an operator agrees with the new leader
	fresh, other := ledger.NewTable(ledger.DefaultTiming(), 0), 90*watt
	lapsed := false
	for sec := 1; sec <= 180; sec++ {
		now := time.Duration(sec) * second
		x := heard("n02", uint64(100+sec), s.Nodes["n02"].Seq, other/watt)
		x.Highest.Epoch = s.Epoch
		fresh.Heard(x, now)
		k := ledger.Decide(s, fresh, now)
		k.Elapsed = second
		do(t, s, ledger.Command{Tick: &k})
		other = s.Nodes["n02"].Target // it obeys at once
		held.Advance(lease.Instant{Boot: now, Awake: now})
		holds, state := held.Cap()
		if charge := s.Nodes["n01"].Charge(); holds > charge {
			t.Fatalf("at %v n01 holds %v (%v) and is charged %v", now, holds, state, charge)
		}
		lapsed = lapsed || s.Nodes["n01"].Charge() < 200*watt
	}
	if !lapsed {
		t.Error("it never lapses")
	}
}

// A lost node is charged until it must have settled by the margin that was in force when it
// fell silent, whatever margin was committed since.
func TestSettlingMarginOutlastsItsChange(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01", "n02")
	do(t, s, setDomain("site/lab", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostFailSafe) }))
	do(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: 10 * second, Settle: time.Minute}})
	for range 200 { // whatever came before counts no more
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	tick(t, s, target(200))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 20, 1, 90), 0)
	table.Mark()
	table.Grants(s, 0)
	tick(t, s, ack(20, 2, 200))
	do(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: 10 * second, Settle: second}})
	for sec := 1; sec <= 100; sec++ {
		now := time.Duration(sec) * second
		k := ledger.Decide(s, table, now)
		k.Elapsed = second
		do(t, s, ledger.Command{Tick: &k})
		switch charge := s.Nodes["n01"].Charge(); {
		case sec <= 70 && charge < 200*watt:
			t.Fatalf("after %d s n01 is charged %v, and may still hold 200 W for 70 s", sec, charge)
		case sec == 100 && charge >= 200*watt:
			t.Error("it never lapses")
		}
	}
}

// A restored log waits for nodes that it does not know, for as long as any lease can run,
// or as the operator says.
func TestRestoreWaitsForTheLongestLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		assume func(*ledger.State)
		wait   time.Duration
	}{
		"nobody says":                {func(*ledger.State) {}, ledger.LeaseMost},
		"as an operator says":        {func(s *ledger.State) { s.AssumeLeases(30 * second) }, 30 * second},
		"below the committed length": {func(s *ledger.State) { s.AssumeLeases(second) }, 20 * second},
	} {
		s := admitted(t, 300, "n01")
		setLease(t, s, 20*second)
		s = restored(t, s)
		if err := s.Recover(map[string]units.Power{"site/lab": 300 * watt, "rack/r1": 300 * watt}, 0, "mia", "disks"); err != nil {
			t.Fatal(err)
		}
		c.assume(s)
		next(t, s)
		do(t, s, ledger.Command{PowerOff: &ledger.PowerOff{Node: "n01", By: "mia"}})
		waited := time.Duration(0)
		for s.Restored && waited < time.Hour {
			do(t, s, ledger.Command{Tick: &ledger.Tick{Elapsed: second}})
			waited += second
		}
		if waited < c.wait+30*second || waited > c.wait+35*second {
			t.Errorf("%s: waited %v for leases of %v", name, waited, c.wait)
		}
	}
}

// A lease of a minute is shortened to ten seconds while a node that holds one is silent: it
// has fallen, and settled, only after the minute and the time that settling takes.
func TestLapseAfterAChangeWaitsForSettling(t *testing.T) {
	t.Parallel()
	s := admitted(t, 300, "n01")
	do(t, s, setDomain("site/lab", func(x *ledger.SetDomain) { x.LostCharge = new(ledger.LostFailSafe) }))
	do(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: time.Minute, Settle: 30 * second}})
	for range 200 {
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	tick(t, s, target(200))
	tick(t, s, ack(20, 2, 200))
	table := ledger.NewTable(ledger.DefaultTiming(), 0)
	table.Heard(heard("n01", 21, 2, 200), 0)
	setLease(t, s, 10*second)
	for now := second; now <= 95*second; now += second {
		k := ledger.Decide(s, table, now)
		k.Elapsed = second
		do(t, s, ledger.Command{Tick: &k})
		if charge := s.Nodes["n01"].Charge(); now <= 90*second && charge < 200*watt {
			t.Fatalf("charged %v after %v: its lease ends after a minute, and 30 s are for settling", charge, now)
		}
	}
	if charge := s.Nodes["n01"].Charge(); charge != 90*watt {
		t.Errorf("charged %v when all that is over", charge)
	}
	refused(t, s, ledger.Command{SetLease: &ledger.SetLease{Length: time.Minute, Settle: time.Hour}}, ledger.ErrLease)
}

// P2: clocks may be one percent off, each its own way. A node whose clock is slow by that
// holds its lease, and settles, while the leader's fast clock waits.
func TestMarginCoversOnePercent(t *testing.T) {
	t.Parallel()
	const slow, fast = 0.99, 1.01
	for _, length := range []time.Duration{ledger.LeaseLeast, 10 * second, ledger.LeaseMost} {
		timing := ledger.Timing{Lease: length, Settle: 30 * second}
		onLeader := func(d time.Duration) time.Duration { return time.Duration(float64(d) / slow * fast) }
		if got := length + timing.Margin(); got < onLeader(length)-time.Microsecond {
			t.Errorf("a lease of %v counts as over after %v, and may run for %v", length, got, onLeader(length))
		}
		if got := timing.Fallen(); got < onLeader(length+timing.Settle)-time.Microsecond {
			t.Errorf("a node counts as settled after %v, and may take %v", got, onLeader(length+timing.Settle))
		}
	}
}
