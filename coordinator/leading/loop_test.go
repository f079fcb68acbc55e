// Claims: a heartbeat is answered only by an entry that was appended after it; what did not
// commit answers nobody; a cut is its own entry; many read-backs share one.
package leading

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/alarms"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/metrics"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"
	"headroom/gossip/brake"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
	"headroom/units"
)

const w = units.Watt

// bubble runs f in a bubble whose clock only moves while everybody waits.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// scriptedLog is a log of one server that does as it is told with the next entries.
type scriptedLog struct {
	m *statemachine.Machine

	mu      sync.Mutex
	entries []ledger.Command
	during  func(c ledger.Command) // called once, while the next entry is under way
	fail    error                  // instead of committing
	slow    time.Duration          // how long an entry takes
}

func (l *scriptedLog) ProposeIn(_ context.Context, _ uint64, data []byte) (any, error) {
	c, err := ledger.Decode(data)
	if err != nil {
		return nil, err
	}
	var during func(ledger.Command)
	var slow time.Duration
	l.set(func(l *scriptedLog) {
		during, l.during = l.during, nil
		err, slow = l.fail, l.slow
	})
	if during != nil {
		during(c)
	}
	time.Sleep(slow)
	if err != nil {
		return nil, err
	}
	l.set(func(l *scriptedLog) { l.entries = append(l.entries, c) })
	return l.m.Apply(0, data), nil
}

func (l *scriptedLog) set(f func(l *scriptedLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *scriptedLog) ticks() (n int) {
	l.set(func(l *scriptedLog) {
		for _, c := range l.entries {
			if c.Tick != nil {
				n++
			}
		}
	})
	return n
}

// outbox remembers what the loop sent.
type outbox struct {
	mu     sync.Mutex
	grants []ledger.NodeGrant
	waits  map[string]string
	caps   []leader.Cap
	orders []streams.Order
	gone   func(subject string) bool
}

func (o *outbox) Grant(g ledger.NodeGrant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.grants = append(o.grants, g)
}

func (o *outbox) Wait(x leader.Wait) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waits[x.Node] = x.Reason
}

func (o *outbox) Lead(lease.Epoch) {}

func (o *outbox) Conflicts() map[string]string          { return map[string]string{} }
func (o *outbox) CertificateEnds() map[string]time.Time { return nil }

func (o *outbox) PushCaps(_ lease.Epoch, caps []leader.Cap) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.caps = append(o.caps, caps...)
}

func (o *outbox) PushOrders(_ lease.Epoch, orders []streams.Order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.orders = append(o.orders, orders...)
}

func (o *outbox) DropOrders(gone func(string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = gone
}

func (o *outbox) Subject(uint64) (string, bool) { return "", true }

// take empties the box.
func (o *outbox) take() []ledger.NodeGrant {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer func() { o.grants = nil }()
	return o.grants
}

// noBrakes knows of no brake.
type noBrakes struct{}

func (noBrakes) Known() brake.Signed { return brake.Signed{} }

// heardBrake is a brake that was heard.
type heardBrake struct{ brake.Signed }

func (h heardBrake) Known() brake.Signed { return h.Signed }

func (heardBrake) Alarms() []alarms.Alarm { return nil }

// testConfig is a loop on a log, with brain as its arbiter.
func testConfig(log Log, m *statemachine.Machine, out *outbox, brain arbitration.Decider) Config {
	return Config{
		Server: "c1", Epoch: lease.Epoch{Incarnation: 1, Term: 2}, Wall: time.Now, Timing: ledger.DefaultTiming(),
		Found: &ledger.Found{Domains: ledger.PlainDomains([]budget.Domain{
			{Name: "site/lab", Budget: 700 * w, Unmanaged: 40 * w}, {Name: "rack/r1", Parent: "site/lab", Budget: 700 * w},
		})},
		Log: log, Machine: m, Nodes: out, Schedulers: out, Announce: out.Lead, Verify: func(context.Context) error { return nil },
		Brakes: noBrakes{}, Alarms: func(*ledger.State) []alarms.Alarm { return nil }, Decider: brain, Counts: metrics.NewCounts(), Missed: func() {}, Logger: slog.New(slog.DiscardHandler),
	}
}

// openLoop runs a loop on a scripted log until the test ends.
func openLoop(t *testing.T) (*Loop, *scriptedLog, *outbox, chan error) {
	t.Helper()
	m := statemachine.New()
	log, out := &scriptedLog{m: m}, &outbox{waits: map[string]string{}}
	d := New(testConfig(log, m, out, arbitration.New()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return d, log, out, ended
}

// budgetAnswer is what a change of the budget does, or would do.
type budgetAnswer struct {
	already bool
	moves   []ledger.Move
}

// setBudget changes a budget as the service does.
func (l *Loop) setBudget(ctx context.Context, r *headroomv1.SetBudgetRequest) (budgetAnswer, error) {
	b := &leader.Budget{Domain: r.GetDomain(), To: units.Power(r.GetBudgetUw())}
	q := &leader.Request{Command: ledger.Command{Actor: "operator", RequestID: r.GetChange().GetRequestId()}, DryRun: r.GetDryRun(), Build: b.Build}
	if r.GetChange() != nil {
		q.Command.Check = r.GetChange().CheckRevision
	}
	a, err := l.Request(ctx, q)
	return budgetAnswer{a.Result.Already, b.Plan.Moves}, errors.Join(err, a.Err)
}

// sighting is what a test node declares: 60 to 200 W, rated 250 W, fail-safe 80 W.
func sighting(name string) ledger.Sighting {
	return ledger.Sighting{
		Node: name, MachineID: "machine-" + name, Process: uint64(len(name)) + 1000, Domain: "rack/r1",
		Rated: 250 * w, Floor: 60 * w, Max: 200 * w, FailSafe: 80 * w, Weight: 1, Controlled: true,
	}
}

func beat(number uint64, effective units.Power, seq uint64) ledger.Report {
	return ledger.Report{
		Sighting: sighting("n01"), Number: number, Highest: lease.Stamp{Seq: seq}, Stored: 80 * w, Effective: effective, EffectiveKnown: effective > 0,
	}
}

// admitted runs a loop until node n01 has been granted its most, with heartbeats 1 to 9.
func admitted(t *testing.T) (*Loop, *scriptedLog, *outbox, chan error) {
	t.Helper()
	d, log, out, ended := openLoop(t)
	for i := range uint64(9) {
		var n ledger.Node
		d.machine.View(func(s *ledger.State) { n = s.Nodes["n01"] })
		if err := d.Hear(t.Context(), beat(i+1, max(n.Target, 80*w), n.Seq)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	if g := out.take(); len(g) == 0 || g[len(g)-1].Grant.Cap != 200*w {
		t.Fatalf("after nine heartbeats: %+v", g)
	}
	return d, log, out, ended
}

// P3: a heartbeat that arrives while an entry is under way is not answered by
// that entry, only by the next one.
func TestHeartbeatDuringAnEntryWaitsForTheNext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		before := log.ticks()
		log.set(func(l *scriptedLog) {
			l.during = func(ledger.Command) {
				go func() { _ = d.Hear(context.Background(), beat(10, 200*w, 2)) }()
				time.Sleep(100 * time.Millisecond)
			}
		})
		for log.ticks() == before {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		for _, g := range out.take() {
			if g.Grant.Heartbeat > 9 {
				t.Errorf("heartbeat %d was answered by an entry that was older", g.Grant.Heartbeat)
			}
		}
		time.Sleep(time.Second)
		if g := out.take(); len(g) == 0 || g[len(g)-1].Grant.Heartbeat != 10 {
			t.Errorf("the next entry answered %+v", g)
		}
	})
}

// P3: an entry that did not commit, may not have, or was refused, answers nobody;
// the loop goes on and the next entry answers. A log that leads no more ends the loop.
func TestNothingIsAnsweredWithoutTheEntry(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"unknown": consensus.ErrUnknownOutcome, "busy": consensus.ErrBusy, "deadline": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				d, log, out, ended := admitted(t)
				log.set(func(l *scriptedLog) { l.fail = err })
				_ = d.Hear(t.Context(), beat(10, 200*w, 2))
				time.Sleep(5 * time.Second)
				if g := out.take(); len(g) != 0 {
					t.Errorf("answered %+v", g)
				}
				log.set(func(l *scriptedLog) { l.fail = nil })
				time.Sleep(1100 * time.Millisecond)
				if g := out.take(); len(g) == 0 {
					t.Error("nobody is answered after the log came back")
				}
				log.set(func(l *scriptedLog) { l.fail = consensus.ErrNotLeader })
				if err := <-ended; !errors.Is(err, consensus.ErrNotLeader) {
					t.Errorf("ended with %v", err)
				}
				if g := out.take(); len(g) != 0 {
					t.Errorf("answered by a server that leads no more: %+v", g)
				}
				if err := d.Ask(t.Context(), func(*Known) {}); !errors.Is(err, ErrDeposed) {
					t.Errorf("a closed loop answers %v", err)
				}
			})
		})
	}
}

// P5: the entry of a cut is itself what grants the lower caps: no tick comes between.
func TestCutIsItsOwnEntry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		_ = d.Hear(t.Context(), beat(10, 200*w, 2))
		time.Sleep(200 * time.Millisecond)
		out.take()
		ticks := log.ticks()
		log.set(func(l *scriptedLog) { l.slow = 100 * time.Millisecond }) // a tick that follows is still under way
		answer, err := d.setBudget(t.Context(), &headroomv1.SetBudgetRequest{BudgetUw: int64(150 * w)})
		if err != nil {
			t.Fatal(err)
		}
		pushed, ticks := out.take(), log.ticks()-ticks
		if len(pushed) != 1 || pushed[0].Grant.Cap != 110*w || ticks != 0 {
			t.Errorf("pushed %+v after %d ticks", pushed, ticks)
		}
		if len(answer.moves) != 1 || answer.moves[0].To != 110*w {
			t.Errorf("told %v", answer.moves)
		}
		if i := slices.IndexFunc(out.caps, func(c leader.Cap) bool { return c.Cap == 110*w }); i < 0 {
			t.Error("the scheduler was not told")
		}
		time.Sleep(time.Second - 50*time.Millisecond)
	})
}

// Lesson 18: hundreds of nodes that read back at once, on a log that takes its time,
// make a few entries and not one each.
func TestReadBacksShareEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, _, _ := openLoop(t)
		log.set(func(l *scriptedLog) {
			l.slow = 200 * time.Millisecond
			l.during = func(ledger.Command) { // they come while an entry is under way
				for i := range 200 {
					who := sighting(fmt.Sprintf("n%04d", i))
					go func() { _ = d.Hear(context.Background(), ledger.Report{Sighting: who, Number: 1}) }()
				}
			}
		})
		time.Sleep(time.Second) // until the next entry
		before, began, known := log.ticks(), time.Now(), 0
		for known < 200 && time.Since(began) < time.Minute {
			time.Sleep(10 * time.Millisecond)
			d.machine.View(func(s *ledger.State) { known = len(s.Nodes) })
		}
		if n, took := log.ticks()-before, time.Since(began); n > 3 || took > time.Second {
			t.Errorf("%d entries in %v for %d nodes", n, took, known)
		}
	})
}

// A change that was not made is neither told as made nor followed: a dry run, a
// budget below the floor, the budget that is in force already.
func TestPlansChangeNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, _, _ := admitted(t)
		entries := len(log.entries)
		ask := func(req *headroomv1.SetBudgetRequest) (budgetAnswer, error) {
			return d.setBudget(t.Context(), req)
		}
		if out, err := ask(&headroomv1.SetBudgetRequest{BudgetUw: int64(150 * w), DryRun: true}); err != nil || len(out.moves) != 1 {
			t.Errorf("dry run: %v %v", out, err)
		}
		if out, err := ask(&headroomv1.SetBudgetRequest{BudgetUw: int64(700 * w)}); err != nil || !out.already {
			t.Errorf("the same budget: %v %v", out, err)
		}
		for _, dry := range []bool{true, false} {
			_, err := ask(&headroomv1.SetBudgetRequest{BudgetUw: int64(100 * w), DryRun: dry})
			if _, ok := errors.AsType[*ledger.FloorError](err); !ok {
				t.Errorf("below the floor, dry run %v: %v", dry, err)
			}
			if _, err := ask(&headroomv1.SetBudgetRequest{Domain: "rack/r9", BudgetUw: int64(w), DryRun: dry}); !errors.Is(err, ledger.ErrUnknownDomain) {
				t.Errorf("unknown domain, dry run %v: %v", dry, err)
			}
			if _, err := ask(&headroomv1.SetBudgetRequest{DryRun: dry}); !errors.Is(err, budget.ErrAmount) {
				t.Errorf("no budget, dry run %v: %v", dry, err)
			}
		}
		d.machine.View(func(s *ledger.State) {
			if s.Domains["site/lab"].Budget != 700*w {
				t.Errorf("the budget is %v", s.Domains["site/lab"].Budget)
			}
		})
		for _, c := range log.entries[entries:] {
			if c.Budget != nil && c.Budget.Budget == 150*w {
				t.Error("a dry run was committed")
			}
		}
	})
}

// P5: while a cut is on its way to a node, the node is not released: its rated
// watts would keep the domain over its budget for good.
func TestNoReleaseDuringACut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		if _, err := d.setBudget(t.Context(), &headroomv1.SetBudgetRequest{BudgetUw: int64(230 * w)}); err != nil {
			t.Fatal(err)
		}
		a, err := d.Request(t.Context(), &leader.Request{Command: ledger.Command{Release: &ledger.Release{Node: "n01", MachineID: "machine-n01"}}})
		if err != nil || !errors.Is(a.Err, ledger.ErrOverBudget) {
			t.Errorf("release while the node still holds the higher cap: %v, %v", err, a.Err)
		}
	})
}

// A checked change that is asked for again, because its answer was lost, was
// carried out once and is no conflict.
func TestCheckedChangeIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := admitted(t)
		var revision uint64
		d.machine.View(func(s *ledger.State) { revision = s.Revision })
		ask := func(to units.Power, key string) (out budgetAnswer, err error) {
			change := &headroomv1.Change{RequestId: key, CheckRevision: &revision}
			return d.setBudget(t.Context(), &headroomv1.SetBudgetRequest{BudgetUw: int64(to), Change: change})
		}
		first, err := ask(600*w, "key")
		if err != nil || first.already {
			t.Fatal(first, err)
		}
		if again, err := ask(600*w, "key"); err != nil || !again.already {
			t.Errorf("asked again: %v %v", again, err)
		}
		if _, err := ask(590*w, "another key"); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("another change against the old revision: %v", err)
		}
	})
}

// Who has begun to lead has heard nobody yet: nothing is taken for gone before the
// time has passed in which whoever is there speaks.
func TestNewLeaderTakesNobodyForGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, _, _, _ := openLoop(t)
		gone := func() error {
			a, err := d.Request(t.Context(), &leader.Request{Build: leader.PowerOff("n01", "a test")})
			return errors.Join(a.Err, err)
		}
		if err := gone(); !errors.Is(err, leader.ErrHeard) {
			t.Errorf("a leader of no time takes n01 for gone: %v", err)
		}
		time.Sleep(d.timing.Lost + time.Second)
		if err := gone(); errors.Is(err, leader.ErrHeard) {
			t.Errorf("nobody has spoken for longer than a lost node's time: %v", err)
		}
	})
}

// While the log does not take the brake nobody is granted anything.
func TestNothingIsGrantedBeforeTheLogKnows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d, log, out, _ := admitted(t)
		private, _, err := brake.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		out.take()
		log.set(func(l *scriptedLog) { l.fail = errors.New("the disk hangs") })
		signed, err := private.Sign(brake.Message{Generation: 1, At: time.Now(), Actor: "mia", Reason: "fire"})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Look(t.Context(), func(*Known) { d.brakes = heardBrake{signed} }); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(5) {
			if err := d.Hear(t.Context(), beat(100+i, 200*w, 3)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if g := out.take(); len(g) > 0 {
			t.Errorf("granted %+v before the log knows of the brake", g)
		}
		log.set(func(l *scriptedLog) { l.fail = nil })
		if err := d.Hear(t.Context(), beat(200, 200*w, 3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		granted := out.take()
		if len(granted) == 0 {
			t.Fatal("nothing granted afterwards")
		}
		for _, g := range granted {
			if g.Grant.Cap != 80*w {
				t.Errorf("granted %v while the brake is set", g.Grant.Cap)
			}
		}
	})
}
