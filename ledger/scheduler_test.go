// Claims (two schedulers of one cluster): a scheduler's epoch rises with every holder and never
// repeats, in a restored group either; a command of an older one is refused, also one that was
// carried out before; the key of task attempts stays, and no listing of the log shows it.
package ledger_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"headroom/ledger"
)

// key is one of task attempts.
var key = ledger.Secret("0123456789abcdef0123456789abcdef")

// holds is a scheduler's wish to replace an epoch.
func holds(process string, after uint64) *ledger.HoldScheduler {
	return &ledger.HoldScheduler{
		SchedulerHolder: ledger.SchedulerHolder{Name: "s1", ID: "s-c0ffee", Process: process, Place: "boot/8:1/77", Address: "10.0.0.20:7410"},
		After:           after, Key: key,
	}
}

// An epoch begins once, whoever asks for it again, and commands of the one before are refused from then on.
func TestSchedulerEpochs(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	finish := func(epoch uint64) ledger.Command {
		return ledger.Command{SchedulerEpoch: epoch, RequestID: "finish-j1", Finish: &ledger.FinishJob{ID: "j1", State: ledger.JobDone}}
	}
	do(t, s, ledger.Command{Job: &ledger.Job{ID: "j1", State: ledger.JobAccepted}}) // of an older version
	refused(t, s, finish(7), ledger.ErrSchedulerEpoch)
	refused(t, s, ledger.Command{HoldScheduler: &ledger.HoldScheduler{Key: key}}, ledger.ErrScheduler)
	short := holds("p1", 0)
	short.Key = key[1:]
	refused(t, s, ledger.Command{HoldScheduler: short}, ledger.ErrScheduler)

	do(t, s, ledger.Command{HoldScheduler: holds("p1", 0)})
	first := s.SchedulerEpoch()
	before := snapshot(t, s)
	do(t, s, ledger.Command{HoldScheduler: holds("p1", first-1)}) // its answer was lost
	if snapshot(t, s) != before || first != 1<<32+1 {
		t.Errorf("epoch %d, then %+v", first, s.Scheduler)
	}
	refused(t, s, ledger.Command{HoldScheduler: holds("p2", first-1)}, ledger.ErrSchedulerEpoch)
	do(t, s, finish(first))

	other := holds("p2", first)
	other.Key = ledger.Secret(strings.Repeat("x", 32))
	do(t, s, ledger.Command{HoldScheduler: other})
	if s.SchedulerEpoch() != first+1 || string(s.Scheduler.Key) != string(key) {
		t.Errorf("%+v", s.Scheduler)
	}
	refused(t, s, finish(first), ledger.ErrSchedulerEpoch) // although it was carried out
	refused(t, s, ledger.Command{ReleaseScheduler: &ledger.ReleaseScheduler{Epoch: first}}, ledger.ErrSchedulerEpoch)
	do(t, s, ledger.Command{ReleaseScheduler: &ledger.ReleaseScheduler{Epoch: first + 1}})
	if !s.Scheduler.Released {
		t.Error("not released")
	}
	for epoch, want := range map[uint64]error{0: nil, first: ledger.ErrSchedulerEpoch, first + 1: nil} {
		if err := s.Outdated(epoch); !errors.Is(err, want) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	do(t, s, ledger.Command{HoldScheduler: holds("p3", first+1)})
	if err := s.Outdated(0); !errors.Is(err, ledger.ErrSchedulerEpoch) {
		t.Errorf("a scheduler without an epoch beside one that holds the lease: %v", err)
	}
	if back := restored(t, s); back.SchedulerEpoch() != first+2 {
		t.Errorf("restored with epoch %d", back.SchedulerEpoch())
	}
	if _, err := ledger.Restore([]byte(strings.Replace(snapshot(t, s), `"attempts_key":"`, `"attempts_key":"AAAA`, 1))); !errors.Is(err, ledger.ErrSnapshot) {
		t.Errorf("restored with a long key: %v", err)
	}
}

// A restored group's schedulers are above any that its workers have seen.
func TestSchedulerEpochOfIncarnation(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	do(t, s, ledger.Command{HoldScheduler: holds("p1", 0)})
	was := s.SchedulerEpoch()
	s.Epoch.Incarnation = 3
	do(t, s, ledger.Command{HoldScheduler: holds("p2", was)})
	if s.SchedulerEpoch() != 3<<32+1 {
		t.Errorf("epoch %d after %d", s.SchedulerEpoch(), was)
	}
}

// Older servers of a group cannot read the commands: none is written for them.
func TestSchedulerUnderOldRules(t *testing.T) {
	t.Parallel()
	s := ledger.New()
	must(t, s, ledger.Command{Rules: 2, Epoch: first(), Lead: &ledger.Lead{Server: "c1"}})
	must(t, s, ledger.Command{Rules: 2, Epoch: first(), Found: &ledger.Found{Domains: ledger.PlainDomains(site(800))}})
	refused(t, s, ledger.Command{Rules: 2, HoldScheduler: holds("p1", 0)}, ledger.ErrRules)
	c := ledger.Command{Rules: 2, SchedulerEpoch: 5}
	if c.UnderRules().SchedulerEpoch != 0 {
		t.Error("an older server would be sent an epoch")
	}
}

// What lists commands or states hides the key.
func TestSchedulerKeyIsHidden(t *testing.T) {
	t.Parallel()
	s := admitted(t, 800, "n01")
	c := ledger.Command{Epoch: first(), HoldScheduler: holds("p1", 0)}
	do(t, s, c)
	entry, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(entry), snapshot(t, s)} {
		shown := ledger.Redacted(json.RawMessage(text))
		if !json.Valid(shown) || !strings.Contains(string(shown), `"attempts_key":"(secret)"`) || len(shown) >= len(text) {
			t.Errorf("%s", shown)
		}
	}
	if plain := json.RawMessage(`{"tick":{}}`); string(ledger.Redacted(plain)) != string(plain) || key.String() == string(key) {
		t.Error("other entries are changed, or the key is printed")
	}
}
