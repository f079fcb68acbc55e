// Claims (two schedulers of one cluster): no scheduler replaces another that may still act. It has
// to wait SchedulerLapse after its last renewal, and as long after a change of the leader, unless
// the one before has released its lease or its process has ended. Nobody is told that it holds the
// lease while an entry that gives it to somebody else may still commit.
package leader

import (
	"errors"
	"strings"
	"testing"

	"headroom/ledger"
)

func asks(process string) ledger.SchedulerHolder {
	return ledger.SchedulerHolder{Name: "s-" + process, ID: "id-" + process, Process: process, Place: "place-" + process, Address: "127.0.0.1:1"}
}

// hold has a scheduler ask for the lease, and returns why it does not get it.
func (x *seat) hold(h ledger.SchedulerHolder) error {
	x.t.Helper()
	x.out = nil
	r := &Request{Build: HoldScheduler(h, ledger.Secret(strings.Repeat("k", 32))), Quiet: true}
	x.took(x.l.Ask(x.s, x.moment(), r))
	x.settle()
	return x.answered()[r]
}

func (x *seat) renew(process string) bool {
	x.l.RenewScheduler(x.s, x.moment(), process)
	return x.l.HoldsScheduler(x.s, process)
}

func TestSchedulerLapses(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	x.settle()
	if err := x.hold(asks("a")); err != nil || !x.renew("a") || x.renew("b") {
		t.Fatalf("%v, %+v", err, x.s.Scheduler)
	}
	x.now += ledger.SchedulerLapse() - 1
	if err := x.hold(asks("b")); !errors.Is(err, ErrHeld) {
		t.Errorf("b replaces a too early: %v", err)
	}
	if !x.renew("a") {
		t.Error("a lost its lease though nobody took it")
	}
	x.now += ledger.SchedulerLapse() - 1
	if err := x.hold(asks("b")); !errors.Is(err, ErrHeld) {
		t.Errorf("b replaces a after a renewal: %v", err)
	}
	x.now++
	if err := x.hold(asks("b")); err != nil || x.renew("a") || !x.renew("b") {
		t.Errorf("%v, %+v", err, x.s.Scheduler)
	}
	if err := x.hold(asks("a")); !errors.Is(err, ErrHeld) {
		t.Errorf("a takes it back at once: %v", err)
	}
}

// The leader before may have answered a renewal just before this one began.
func TestNewLeaderWaitsForTheSchedulersLease(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	x.settle()
	if err := x.hold(asks("a")); err != nil {
		t.Fatal(err)
	}
	x.now += 100 * second
	x.lead(2)
	x.settle()
	x.now += ledger.SchedulerLapse() - 1
	if err := x.hold(asks("b")); !errors.Is(err, ErrHeld) {
		t.Errorf("b replaces a under a new leader: %v", err)
	}
	if !x.renew("a") {
		t.Error("a may go on under the new leader")
	}
	x.now += ledger.SchedulerLapse()
	if err := x.hold(asks("b")); err != nil {
		t.Error(err)
	}
}

// A scheduler that has released its lease, or whose process has ended, is replaced at once.
func TestSchedulerIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	x.settle()
	again := asks("a")
	if err := x.hold(again); err != nil {
		t.Fatal(err)
	}
	again.Process = "a2"
	if err := x.hold(again); err != nil || x.renew("a") {
		t.Errorf("the same folder: %v", err)
	}
	copied := again
	copied.Process, copied.Place = "a3", "another machine"
	if err := x.hold(copied); !errors.Is(err, ErrHeld) {
		t.Errorf("a copy of the folder: %v", err)
	}
	x.took(x.l.Ask(x.s, x.moment(), &Request{Command: ledger.Command{ReleaseScheduler: &ledger.ReleaseScheduler{Epoch: x.s.SchedulerEpoch()}}, Quiet: true}))
	x.settle()
	if x.renew("a2") {
		t.Error("it renews what it has released")
	}
	if err := x.hold(copied); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// The entry of b is on its way for long: a is not told that it holds the lease before it is known whether b does.
func TestSchedulerInDoubt(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	x.settle()
	if err := x.hold(asks("a")); err != nil {
		t.Fatal(err)
	}
	x.after(ledger.SchedulerLapse())
	x.settle()
	x.took(x.l.Ask(x.s, x.moment(), &Request{Build: HoldScheduler(asks("b"), nil), Quiet: true}))
	late := x.flown[len(x.flown)-1]
	x.commit(errors.New("no answer in time"))
	if x.renew("a") {
		t.Error("a was told that it holds the lease")
	}
	if _, err := x.s.Apply(late); err != nil { // it commits after all, before the next tick
		t.Fatal(err)
	}
	x.settle()
	x.after(2 * second)
	x.settle()
	if x.renew("a") || !x.renew("b") {
		t.Errorf("%+v", x.s.Scheduler)
	}
}
