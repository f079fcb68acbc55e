// Claim (P4): a node is charged for all that it may hold or take up again,
// until its own read-back says otherwise.
package ledger_test

import (
	"testing"

	"headroom/ledger"
	"headroom/units"
)

// A lease that was delayed may be taken up although the node has fallen to its
// fail-safe cap and says so: while it names sequence N, target N stays charged.
func TestDelayedLeaseStaysCharged(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2, pushed and taken
	tick(t, s, ack(2, 2, 200))
	tick(t, s, target(120)) // seq 3, not yet taken; the lease of seq 2 runs out
	tick(t, s, ack(3, 2, 90))
	wantCharge(t, s, 200, "fail-safe, but a renewal of seq 2 may arrive")
	tick(t, s, ack(4, 3, 90))
	wantCharge(t, s, 120, "it took seq 3 and refuses seq 2 now")
	tick(t, s, ack(5, 3, 120))
	wantCharge(t, s, 120, "it holds seq 3")
}

// A lost node keeps its charge, however long ago it was heard, whoever leads.
func TestLostNodeStaysCharged(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200))
	tick(t, s, ack(2, 2, 200))
	for range 3600 {
		tick(t, s, ledger.Tick{Elapsed: second})
	}
	wantCharge(t, s, 200, "silent for an hour")
}

// A new leader may hear an old heartbeat first, from before limits that the
// node took and whose targets are settled: it says nothing about what is held now.
func TestOldHeartbeatLowersNothing(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(100)) // seq 2: heartbeat 10 reports it, and is delayed
	tick(t, s, target(150)) // seq 3: held
	tick(t, s, target(200)) // seq 4: never taken
	tick(t, s, target(100)) // seq 5: stored, but hardware still holds 150 W
	tick(t, s, ack(12, 5, 150))
	wantCharge(t, s, 150, "hardware lags")
	tick(t, s, ack(10, 2, 100))
	wantCharge(t, s, 150, "heartbeat 10 is older than heartbeat 12")
	tick(t, s, ack(13, 5, 100))
	wantCharge(t, s, 100, "hardware followed")
}

// An effective cap above the ceiling is charged until a newer read-back removes it.
func TestExcessIsCharged(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, ack(5, 1, 180))
	wantCharge(t, s, 180, "hardware holds more than was ever granted")
	tick(t, s, ack(4, 1, 90))
	wantCharge(t, s, 180, "an older heartbeat does not remove it")
	tick(t, s, ack(6, 1, 90))
	wantCharge(t, s, 90, "read back")
}

// Old and new fail-safe cap are both charged until the node has stored the new one.
func TestFailSafeChangeIsChargedTwice(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	again := sighting("n01")
	again.Process, again.FailSafe = 78, 75*watt
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{again}})
	wantCharge(t, s, 90, "it may still fall to 90 W")
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 77, Number: 99, Seq: 1, Effective: 70 * watt, Stored: 75 * watt}}})
	wantCharge(t, s, 90, "a read-back of the earlier process counts for nothing")
	tick(t, s, ledger.Tick{
		Acks:    []ledger.Ack{{Node: "n01", Process: 78, Number: 1, Seq: 2, Effective: 90 * watt, Stored: 75 * watt}},
		Targets: []ledger.Target{{Node: "n01", Cap: 75 * watt}},
	})
	wantCharge(t, s, 90, "seq 2 was 90 W")
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: 78, Number: 2, Seq: 3, Effective: 75 * watt, Stored: 75 * watt}}})
	wantCharge(t, s, 75, "stored and read back")
}

// A fail-safe cap that was committed may have been stored, although a later
// process declares a lower one before it told.
func TestStoredFailSafeStaysCharged(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, ack(50, 1, 85)) // heartbeats of a new process begin at 1 again
	tick(t, s, ack(51, 1, 190))
	for i, failSafe := range []units.Power{120, 90} {
		again := sighting("n01")
		again.Process, again.FailSafe = process+1+uint64(i), failSafe*watt
		tick(t, s, ledger.Tick{Seen: []ledger.Sighting{again}})
		wantCharge(t, s, 190, "its hardware was last read back at 190 W")
		if got := s.Nodes["n01"].Stored; got != 120*watt {
			t.Errorf("stored %v, want 120.0 W: it may have stored that", got)
		}
	}
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: process + 2, Number: 1, Seq: 3, Effective: 90 * watt, Stored: 90 * watt}}})
	wantCharge(t, s, 90, "it has not")
}

// Process ids have no order: a heartbeat of a process that was replaced may
// arrive last. It may raise the charge, and lowers nothing; nor does the first
// of a process that is alive, until it has taken what only a live one can.
func TestReplacedProcessLowersNothing(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	tick(t, s, target(200)) // seq 2
	live := sighting("n01")
	live.Process = 78
	old := ledger.Ack{Node: "n01", Process: process, Number: 60, Seq: 2, Effective: 95 * watt, Stored: 90 * watt}
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{live}})                                     // seq 3
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}, Acks: []ledger.Ack{old}}) // seq 4
	wantCharge(t, s, 200, "the old process names a target from before its return")
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{live}}) // seq 5
	read := ledger.Ack{Node: "n01", Process: 78, Number: 9, Seq: 3, Effective: 90 * watt, Stored: 90 * watt}
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{read}})
	wantCharge(t, s, 200, "it has not taken seq 5")
	read.Number, read.Effective = 10, 230*watt
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{read}})
	wantCharge(t, s, 230, "bad news needs no proof")
	read.Number, read.Seq, read.Effective = 11, 5, 200*watt
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{read}, Targets: []ledger.Target{{Node: "n01", Cap: 100 * watt}}})
	wantCharge(t, s, 200, "it took seq 5, which was 200 W")
	read.Number, read.Seq, read.Effective = 12, 6, 100*watt
	tick(t, s, ledger.Tick{Acks: []ledger.Ack{read}})
	wantCharge(t, s, 100, "it took seq 6")
}

// A delayed heartbeat does not undo a release (found by simulation, seed 588030179495866).
func TestReplacedProcessUndoesNoRelease(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	live := sighting("n01")
	live.Process = 78
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{live}})
	must(t, s, ledger.Command{Epoch: first(), Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}})
	old := ledger.Ack{Node: "n01", Process: process, Number: 60, Seq: 1, Effective: 90 * watt, Stored: 90 * watt}
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{sighting("n01")}, Acks: []ledger.Ack{old}})
	wantCharge(t, s, 250, "the machine draws what it likes")
}

// However many targets a node missed, the highest that it may still take is charged.
func TestMissedTargetsStayCharged(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	for i := range 40 {
		tick(t, s, target(units.Power(200-i))) // seq 2 to 41
	}
	tick(t, s, ack(2, 2, 90))
	wantCharge(t, s, 200, "it may take any of them")
	tick(t, s, ack(3, 30, 90))
	if got := s.Nodes["n01"].Charge(); got < 172*watt {
		t.Errorf("charged %v, but the target of seq 30 was 172.0 W", got)
	}
	tick(t, s, ack(4, 41, 90))
	wantCharge(t, s, 161, "only the last is left")
}

func ack(number, seq uint64, effective units.Power) ledger.Tick {
	return ledger.Tick{Acks: []ledger.Ack{{
		Node: "n01", Process: process, Number: number, Seq: seq, Effective: effective * watt, Stored: 90 * watt,
	}}}
}

func wantCharge(t *testing.T, s *ledger.State, watts units.Power, why string) {
	t.Helper()
	if got := s.Nodes["n01"].Charge(); got != watts*watt {
		t.Errorf("charged %v, want %v: %s", got, watts*watt, why)
	}
}

// A node waits for room, somebody has raised its limit, and a heartbeat of its process of
// before comes late: which of two processes lives nobody can tell, so that the old
// heartbeat lowers nothing.
func TestLateHeartbeatOfAProcessThatWasReplaced(t *testing.T) {
	t.Parallel()
	s := founded(t, site(100))
	old, fresh := sighting("n01"), sighting("n01")
	fresh.Process = process + 1
	said := func(pid, number, seq uint64, watts units.Power) ledger.Tick {
		return ledger.Tick{Acks: []ledger.Ack{{Node: "n01", Process: pid, Number: number, Seq: seq, Effective: watts * watt, Stored: 90 * watt}}}
	}
	tick(t, s, ledger.Tick{Seen: []ledger.Sighting{old}})
	tick(t, s, said(old.Process, 4, 0, 240))
	k := said(fresh.Process, 2, 0, 240)
	k.Seen = []ledger.Sighting{fresh}
	tick(t, s, k)
	wantCharge(t, s, 240, "as the process of before has read back")
	k = said(old.Process, 3, 0, 90)
	k.Seen = []ledger.Sighting{old}
	tick(t, s, k)
	if got := s.Nodes["n01"].Charge(); got < 240*watt {
		t.Errorf("charged %v by a heartbeat of a process that was replaced, and it holds 240 W", got)
	}
	k = said(fresh.Process, 3, 0, 240)
	k.Seen = []ledger.Sighting{fresh}
	tick(t, s, k)
	tick(t, s, said(fresh.Process, 9, s.Nodes["n01"].Seq, 90))
	wantCharge(t, s, 90, "the process that lives names its lease")
}
