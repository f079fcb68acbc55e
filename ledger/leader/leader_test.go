// Claims (P3, P5, P8 and the brake): a leadership grants nothing before its epoch has begun
// and before the log knows of every brake that it knows of itself; a heartbeat is answered
// by no entry that was proposed before it came; one entry is in flight, what waits is
// bounded and goes in its order; a cut waits for no tick; whoever waits when the leadership
// ends is told so; a read is answered by a proof that was asked for after it.
package leader

import (
	"errors"
	"slices"
	"testing"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

const second = time.Second

// seat is one leadership over a log that commits what it is told to.
type seat struct {
	t     *testing.T
	s     *ledger.State
	l     *Leader
	now   time.Duration
	beat  uint64
	out   []Output
	flown []ledger.Command // proposed, newest last
	open  bool             // the newest is not committed yet
}

func newSeat(t *testing.T) *seat {
	t.Helper()
	x := &seat{t: t, s: ledger.New(), now: 100 * second}
	x.lead(1)
	return x
}

// lead begins a leadership of that term; nothing is committed yet.
func (x *seat) lead(term uint64) {
	domains := ledger.PlainDomains([]budget.Domain{{Name: "site/lab", Budget: 900 * w}, {Name: "rack/r1", Parent: "site/lab", Budget: 900 * w}})
	x.l = New(Config{
		Server: "c1", Epoch: lease.Epoch{Incarnation: 1, Term: term}, Timing: ledger.DefaultTiming(),
		Found: &ledger.Found{Domains: domains}, Rules: ledger.Rules, Gap: time.Duration(term-1) * 40 * second,
	}, x.moment())
	x.out, x.flown, x.open = nil, nil, false
	x.took(x.l.Start(x.s, x.moment()))
}

func (x *seat) moment() Moment {
	return Moment{Mono: x.now, Wall: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC).Add(x.now)}
}

// took keeps the outputs. Two entries in flight at once are a fault in every test.
func (x *seat) took(out []Output) {
	x.t.Helper()
	for _, o := range out {
		if p, ok := o.(Propose); ok {
			if x.open {
				x.t.Fatalf("a second entry in flight: %+v", p.Command)
			}
			x.flown, x.open = append(x.flown, p.Command), true
		}
	}
	x.out = append(x.out, out...)
}

// commit commits the entry in flight; with err it is not known what came of it.
func (x *seat) commit(err error) {
	x.t.Helper()
	if !x.open {
		x.t.Fatal("nothing in flight")
	}
	var res ledger.Result
	if err == nil {
		if res, err = x.s.Apply(x.flown[len(x.flown)-1]); err != nil {
			x.t.Fatalf("%+v: %v", x.flown[len(x.flown)-1], err)
		}
	}
	x.open = false
	x.took(x.l.Committed(x.s, x.moment(), res, err))
}

// settle commits what comes until nothing is in flight.
func (x *seat) settle() {
	x.t.Helper()
	for range 20 {
		if !x.open {
			return
		}
		x.commit(nil)
	}
	x.t.Fatal("it proposes without end")
}

// after lets time pass and has the timer called when it is due.
func (x *seat) after(d time.Duration) {
	x.t.Helper()
	x.now += d
	if x.now >= x.l.Due() {
		x.took(x.l.Timer(x.s, x.moment()))
	}
}

// hear is a heartbeat of n01 that holds what it was given, and has stored this brake.
func (x *seat) hear(brake uint64) {
	x.t.Helper()
	x.beat++
	n := x.s.Nodes["n01"]
	x.l.Heard(x.s, x.moment(), ledger.Report{
		Sighting: ledger.Sighting{
			Node: "n01", MachineID: "m1", Process: 7, Domain: "rack/r1", Rated: 250 * w, Floor: 70 * w, Max: 220 * w, FailSafe: 90 * w,
			Weight: 1, Controlled: true,
		},
		Number: x.beat, Highest: lease.Stamp{Epoch: x.s.Epoch, Seq: n.Seq}, Effective: max(90*w, n.Target), EffectiveKnown: true,
		Stored: 90 * w, Demand: new(200 * w), Brake: brake,
	})
}

// grants are the leases that were given since the last call.
func (x *seat) grants() []Grant {
	var out []Grant
	for _, o := range x.out {
		if g, ok := o.(Grant); ok {
			out = append(out, g)
		}
	}
	x.out = nil
	return out
}

// answered are the errors of the requests that were answered, nil ones too.
func (x *seat) answered() map[*Request]error {
	out := map[*Request]error{}
	for _, o := range x.out {
		if a, ok := o.(Answer); ok {
			out[a.Request] = a.Err
		}
	}
	return out
}

// granted is a seat whose node has been admitted and holds a lease.
func granted(t *testing.T) *seat {
	t.Helper()
	x := newSeat(t)
	x.settle()
	for range 6 {
		x.hear(0)
		x.after(second)
		x.settle()
	}
	if got := x.grants(); len(got) == 0 || x.s.Nodes["n01"].Target == 0 {
		t.Fatalf("%d grants, %+v", len(got), x.s.Nodes["n01"])
	}
	return x
}

func budgetOf(watts units.Power) *Request {
	return &Request{Build: (&Budget{Domain: "rack/r1", To: watts * w}).Build}
}

func TestBeginningComesFirst(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	read, cut := &Request{}, budgetOf(500)
	x.took(x.l.Read(read))
	x.took(x.l.Ask(x.s, x.moment(), cut))
	x.hear(0)
	for i, want := range []func(ledger.Command) bool{
		func(c ledger.Command) bool { return c.Lead != nil },
		func(c ledger.Command) bool { return c.Found != nil },
		func(c ledger.Command) bool { return c.SetLease != nil },
	} {
		if c := x.flown[i]; !want(c) || x.l.Began() || len(x.answered()) > 0 || len(x.grants()) > 0 {
			t.Fatalf("entry %d is %+v; began %v, out %+v", i, c, x.l.Began(), x.out)
		}
		x.commit(nil)
	}
	if !x.l.Began() || !slices.ContainsFunc(x.out, func(o Output) bool { _, ok := o.(Prove); return ok }) {
		t.Errorf("began %v; a read waits for its proof: %+v", x.l.Began(), x.out)
	}
	x.settle()
	if err, ok := x.answered()[cut]; !ok || err != nil || x.s.Domains["rack/r1"].Budget != 500*w {
		t.Errorf("the cut: %v %v", ok, err)
	}
}

// An entry of the beginning that fails is tried again, no sooner than after a pause.
func TestBeginningIsTriedAgain(t *testing.T) {
	t.Parallel()
	x := newSeat(t)
	x.commit(errors.New("the disk hangs"))
	if x.after(retryBegin / 2); x.open {
		t.Error("tried again at once")
	}
	if x.after(retryBegin); !x.open || x.flown[1].Lead == nil {
		t.Errorf("%+v", x.flown)
	}
}

// P3: an entry that was proposed before a heartbeat came does not answer it.
func TestEntryAnswersWhatCameBeforeIt(t *testing.T) {
	t.Parallel()
	x := granted(t)
	x.after(second)
	if x.hear(0); !x.open {
		t.Fatal("no tick")
	}
	x.commit(nil)
	for _, g := range x.grants() {
		if g.Grant.Heartbeat == x.beat {
			t.Errorf("answered by an entry that was there before it: %+v", g)
		}
	}
	x.after(second)
	x.settle()
	if got := x.grants(); len(got) != 1 || got[0].Grant.Heartbeat != x.beat {
		t.Errorf("%+v, heartbeat %d", got, x.beat)
	}
}

// Nobody is granted anything while the log has not heard of a brake that is known, from the
// gossip or a node, though other entries commit; and nothing that was asked for goes first.
func TestUnknownBrakeGrantsNothing(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(x *seat){
		"by gossip": func(x *seat) { x.l.Brake(Brake{Generation: 3, Actor: "mia"}) },
		"by a node": func(x *seat) { x.hear(3) },
	} {
		x := granted(t)
		x.hear(0)
		x.after(second) // an entry that would answer the heartbeat is in flight
		tell(x)
		raise := budgetOf(950)
		x.took(x.l.Ask(x.s, x.moment(), raise))
		x.commit(nil)
		if got := x.grants(); len(got) > 0 || x.flown[len(x.flown)-1].Brake == nil {
			t.Fatalf("%s: %d grants, then %+v", name, len(got), x.flown[len(x.flown)-1])
		}
		x.commit(errors.New("no majority")) // unknown outcome: still not in the log
		if _, told := x.answered()[raise]; !told {
			t.Errorf("%s: who waits is not told that the brake did not commit", name)
		}
		x.hear(3)
		x.after(50 * time.Millisecond)
		if got := x.grants(); len(got) > 0 || x.open {
			t.Fatalf("%s: %d grants, open %v", name, len(got), x.open)
		}
		x.after(second)
		if c := x.flown[len(x.flown)-1]; c.Brake == nil || c.Brake.Generation != 3 {
			t.Fatalf("%s: %+v", name, c)
		}
		x.settle()
		for range 3 {
			x.hear(3)
			x.after(second)
			x.settle()
		}
		for _, g := range x.grants() {
			if g.Grant.BrakeLifted >= 3 || g.Grant.Cap > 90*w {
				t.Errorf("%s: %+v while the brake is set", name, g)
			}
		}
	}
}

// A cut goes out with its lowers before any tick; what waits goes in its order.
func TestRequestsGoInTheirOrder(t *testing.T) {
	t.Parallel()
	x := granted(t)
	reads, entries := x.s.Nodes["n01"].Target, len(x.flown)
	cut, more := budgetOf(100), budgetOf(300)
	x.took(x.l.Ask(x.s, x.moment(), cut))
	x.took(x.l.Ask(x.s, x.moment(), more))
	if c := x.flown[entries]; !x.open || c.Budget == nil || len(c.Budget.Targets) != 1 || c.Budget.Targets[0].Cap > 100*w || reads <= 100*w {
		t.Fatalf("%v before: %+v", reads, c)
	}
	x.settle()
	if got := []units.Power{x.flown[entries].Budget.Budget, x.flown[entries+1].Budget.Budget}; got[0] != 100*w || got[1] != 300*w {
		t.Errorf("%v", got)
	}
}

func TestWaitingRequestsAreBounded(t *testing.T) {
	t.Parallel()
	x := granted(t)
	x.hear(0)
	x.after(second)
	for range queueMost {
		x.took(x.l.Ask(x.s, x.moment(), &Request{Quiet: true, Build: func(View, *ledger.Command) error { return errSame }}))
	}
	late := &Request{}
	x.took(x.l.Ask(x.s, x.moment(), late))
	if err := x.answered()[late]; !errors.Is(err, ErrBusy) {
		t.Errorf("%v", err)
	}
	x.commit(nil)
	if got := len(x.answered()); got != queueMost+1 {
		t.Errorf("%d answered", got)
	}
}

// A leadership that meets a newer epoch tells everybody who waits, once, and proposes nothing more.
func TestEndTellsWhoWaits(t *testing.T) {
	t.Parallel()
	x := granted(t)
	flying, queued, read := budgetOf(500), budgetOf(400), &Request{}
	for _, r := range []*Request{flying, queued} {
		x.took(x.l.Ask(x.s, x.moment(), r))
	}
	x.took(x.l.Read(read))
	x.out = nil
	x.commit(ledger.ErrEpoch)
	got := x.answered()
	for name, r := range map[string]*Request{"in flight": flying, "queued": queued, "read": read} {
		if err, ok := got[r]; !ok || !errors.Is(err, ledger.ErrEpoch) {
			t.Errorf("%s: %v %v", name, ok, err)
		}
	}
	over, ok := x.out[len(x.out)-1].(Over)
	if !ok || over.Err == nil || len(got) != 3 {
		t.Errorf("%+v", x.out)
	}
	x.hear(0)
	x.after(10 * second)
	if x.took(x.l.Ask(x.s, x.moment(), budgetOf(300))); x.open {
		t.Errorf("it still proposes %+v", x.flown[len(x.flown)-1])
	}
}

// A proof answers the reads that came before it was asked for, no others; without one they fail.
func TestReadsNeedALaterProof(t *testing.T) {
	t.Parallel()
	x := granted(t)
	first, second := &Request{}, &Request{}
	x.took(x.l.Read(first))
	x.took(x.l.Read(second)) // while the proof for the first is under way
	x.out = nil
	x.took(x.l.Proven(nil))
	if got := x.answered(); len(got) != 1 || got[first] != nil {
		t.Errorf("%+v", got)
	}
	x.out = nil
	lost := errors.New("no majority")
	x.took(x.l.Proven(lost))
	if got := x.answered(); len(got) != 1 || !errors.Is(got[second], lost) {
		t.Errorf("%+v", got)
	}
}

// A new leadership counts no time in which nobody led, and lowers nobody that it has not
// heard yet and that may still hold a lease.
func TestGapRefillsNothing(t *testing.T) {
	t.Parallel()
	x := granted(t)
	passed, charge := x.s.Elapsed, x.s.Nodes["n01"].Charge()
	x.now += 40 * second
	x.lead(2)
	x.settle()
	x.after(0)
	x.settle()
	if got := x.s.Elapsed - passed; got > second {
		t.Errorf("%v of a gap of 40 s counted", got)
	}
	if got := x.s.Nodes["n01"].Charge(); got < charge {
		t.Errorf("charged %v, was %v", got, charge)
	}
}
