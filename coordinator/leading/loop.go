package leading

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/alarms"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/metrics"
	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"
	"headroom/coordinator/traces"
	"headroom/gossip/brake"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// inboxMost bounds the heartbeats and questions waiting for the loop; a sender
	// waits when it is full, which slows streams down instead of losing reports.
	inboxMost = 4096
	// proposeDeadline bounds how long one entry may take to commit before its outcome counts as unknown.
	proposeDeadline = 5 * time.Second
)

// ErrDeposed is returned if the loop ends before it has answered.
var ErrDeposed = errors.New("coordinator: this server lost leadership")

// Log is the loop's view of the log.
type Log interface {
	// ProposeIn commits data in the given term, or not at all.
	ProposeIn(ctx context.Context, term uint64, data []byte) (any, error)
}

// NodeStreams is the loop's view of the streams to nodes. Its methods never wait.
type NodeStreams interface {
	// Grant pushes a lease to a node.
	Grant(g ledger.NodeGrant)
	// Wait sends a node the reason why it is charged but gets no lease.
	Wait(leader.Wait)
	// Conflicts returns, by node name, why another machine that used the name lately was refused.
	Conflicts() map[string]string
	// CertificateEnds returns the ends of the certificates that nodes have shown last, by node.
	CertificateEnds() map[string]time.Time
}

// SchedulerStreams is the loop's view of the streams to schedulers. Its methods never wait.
type SchedulerStreams interface {
	// PushCaps pushes the caps of nodes.
	PushCaps(e lease.Epoch, caps []leader.Cap)
	// PushOrders pushes orders about jobs, and keeps each for schedulers to come.
	PushOrders(e lease.Epoch, orders []streams.Order)
	// DropOrders forgets the orders about subjects that are over.
	DropOrders(over func(subject string) bool)
	// Subject is what the directive of that sequence is about, and whether it is the newest about it.
	Subject(seq uint64) (subject string, newest bool)
}

// Config has the loop's dependencies.
type Config struct {
	// Server is this server's id; Epoch is the leadership's.
	Server string
	Epoch  lease.Epoch
	// Timing and Found are of a group that has none in its log yet.
	Timing ledger.Timing
	Found  *ledger.Found
	// Log takes the entries, and Machine has them applied.
	Log     Log
	Machine *statemachine.Machine
	// Nodes and Schedulers are the streams; Announce announces the leadership on all of them.
	Nodes      NodeStreams
	Schedulers SchedulerStreams
	Announce   func(lease.Epoch)
	// Verify proves that this server leads, and Clocks reads every voter's wall clock, in microseconds since the
	// Unix epoch. Both may take their time: they run beside the loop.
	Verify func(context.Context) error
	Clocks func(context.Context) (read map[string]int64, voters int)
	// Wall is this server's wall clock.
	Wall func() time.Time
	// PoweredOff asks the BMC at an address whether its machine is off; nil where none may be asked.
	PoweredOff func(ctx context.Context, address string) (bool, error)
	// Brakes is this server's view of the brake.
	Brakes Brakes
	// Alarms returns what other parts of this server raise while it leads. It is called on the loop's goroutine
	// and must not wait.
	Alarms func(*ledger.State) []alarms.Alarm
	// Decider decides about jobs.
	Decider arbitration.Decider
	// Counts are this server's metrics, Traces its spans; Missed asks for a recording of the process.
	Counts *metrics.Counts
	Traces *traces.Tracer
	Missed func()
	Logger *slog.Logger
}

// Brakes is the loop's view of the brake.
type Brakes interface {
	// Known returns the newest brake that this server has received; generation 0 for none.
	Known() brake.Signed
}

// Loop drives one leadership (leader.Leader): it carries its outputs out, and brings it
// heartbeats, requests, and the time. It is the only proposer. What is not exported runs on
// its own goroutine.
type Loop struct {
	*leadership

	server   string
	found    *ledger.Found
	log      Log
	nodes    NodeStreams
	caps     SchedulerStreams
	announce func(lease.Epoch)
	verify   func(context.Context) error
	clocks   func(context.Context) (read map[string]int64, voters int)
	brakes   Brakes
	traces   *traces.Tracer
	missed   func()

	inbox   chan func()
	closed  chan struct{}
	turns   atomic.Uint64 // the watchdog reads it
	waiting int           // nodes that were told to wait since the last tick

	jobs     *jobLoop
	known    *Known
	evidence evidence
}

// New is a loop that does not run yet.
func New(c Config) *Loop {
	shared := &leadership{epoch: c.Epoch, timing: c.Timing, machine: c.Machine, wall: c.Wall, counts: c.Counts, logger: c.Logger}
	l := &Loop{
		leadership: shared, server: c.Server, found: c.Found, log: c.Log, nodes: c.Nodes, caps: c.Schedulers, announce: c.Announce,
		verify: c.Verify, clocks: c.Clocks, brakes: c.Brakes, traces: c.Traces, missed: c.Missed,
		inbox: make(chan func(), inboxMost), closed: make(chan struct{}), evidence: evidence{poweredOff: c.PoweredOff},
	}
	l.jobs = newJobLoop(shared, c.Decider, c.Schedulers, l.do)
	l.known = newKnown(c, shared, l.jobs)
	return l
}

// open makes the leadership, which has begun nothing yet.
func (l *Loop) open() {
	l.began = time.Now()
	l.lead = leader.New(leader.Config{
		Server: l.server, Epoch: l.epoch, Timing: l.timing, Found: l.found, Rules: int(l.machine.Rules), Gap: l.machine.Gap(),
	}, l.moment())
}

// Watch watches the loop from outside it until ctx ends: one that stands still calls giveUp to hand the lead
// to another server, and later end to end the process.
func (l *Loop) Watch(ctx context.Context, giveUp func(context.Context) error, end func(error)) {
	(&watchdog{turns: &l.turns, giveUp: giveUp, end: end, logger: l.logger}).run(ctx)
}

// Run leads until ctx ends or the leadership is over. The first entry begins the epoch;
// the first tick follows at once.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.closed)
	l.open()
	l.step(ctx, l.lead.Start)
	timer, jobs := time.NewTimer(0), time.NewTimer(jobsFirst)
	defer timer.Stop()
	defer jobs.Stop()
	for l.over == nil {
		l.turns.Add(1)
		timer.Reset(max(0, l.lead.Due()-l.now()))
		select {
		case <-ctx.Done():
			return nil
		case f := <-l.inbox:
			f()
		case <-timer.C:
			l.catchUp()
			l.onTime(ctx)
		case <-jobs.C:
			jobs.Reset(l.jobs.turn(ctx))
		}
		if wait, due := l.jobs.early(); due {
			jobs.Reset(wait)
		}
	}
	return l.over
}

// catchUp takes in what waits already, so that an entry answers all of it: with
// many nodes an entry takes longer than their read-backs take to come.
func (l *Loop) catchUp() {
	for range len(l.inbox) {
		f := <-l.inbox
		f()
	}
}

// onTime is the moment that the leadership has asked for: most often a tick.
//
//headroom:control
func (l *Loop) onTime(ctx context.Context) {
	b := l.brakes.Known()
	l.lead.Brake(leader.Brake{Generation: b.Generation, Actor: b.Actor, Reason: b.Reason})
	if l.now() < l.lead.Due() {
		return // what waited has been answered by an entry meanwhile
	}
	l.punctual(l.lead.Ticking(), l.now())
	l.step(ctx, l.lead.Timer)
}

// step brings the leadership one input and carries out what follows from it. An entry is
// waited for, so that none is in flight afterwards.
func (l *Loop) step(ctx context.Context, in func(*ledger.State, leader.Moment) []leader.Output) {
	var outputs []leader.Output
	began := time.Now()
	l.machine.View(func(s *ledger.State) { outputs = in(s, l.moment()) })
	for len(outputs) > 0 {
		o := outputs[0]
		outputs = outputs[1:]
		p, ok := o.(leader.Propose)
		if !ok {
			l.carryOut(ctx, o)
			continue
		}
		res, err := l.decided(ctx, p.Command, time.Since(began))
		if deposed(err) && !errors.Is(err, ledger.ErrEpoch) {
			l.over = err
		}
		began = time.Now()
		l.machine.View(func(s *ledger.State) { outputs = append(outputs, l.lead.Committed(s, l.moment(), res, err)...) })
		if l.over != nil {
			outputs = slices.DeleteFunc(outputs, func(o leader.Output) bool { _, answer := o.(leader.Answer); return !answer })
		}
	}
}

// decided proposes a command that took this long to decide.
func (l *Loop) decided(ctx context.Context, c ledger.Command, took time.Duration) (ledger.Result, error) {
	if c.Tick == nil {
		return l.propose(ctx, c)
	}
	l.planned(took)
	ctx, span := l.traces.Begin(ctx, "tick")
	res, err := l.propose(ctx, c)
	span.End(err)
	return res, err
}

// planned counts how long it took to decide a tick.
func (l *Loop) planned(took time.Duration) {
	var policy string
	l.machine.View(func(s *ledger.State) { policy = s.Policy })
	l.counts.Planned(cmp.Or(policy, string(budget.Weighted)), took)
}

// carryOut does one thing that the leadership asks for.
func (l *Loop) carryOut(ctx context.Context, o leader.Output) {
	switch o := o.(type) {
	case leader.Began:
		l.logger.Info("leading", slog.String("epoch", l.epoch.String()))
		l.announce(l.epoch)
	case leader.Grant:
		l.countGrant(ctx, o.NodeGrant)
		l.nodes.Grant(o.NodeGrant)
	case leader.Wait:
		l.waiting++
		l.nodes.Wait(o)
	case leader.Caps:
		l.caps.PushCaps(l.epoch, o.Nodes)
	case leader.Ticked:
		l.ticked(ctx, o.Err)
	case leader.Answer:
		l.answer(o)
	case leader.Prove:
		go func() {
			err := l.verify(ctx)
			_ = l.post(ctx, func() { l.step(ctx, func(*ledger.State, leader.Moment) []leader.Output { return l.lead.Proven(err) }) })
		}()
	case leader.AskClocks:
		go func() {
			clocks, voters := l.clocks(ctx)
			_ = l.post(ctx, func() { // a loop that has closed leaves it to the next leader
				l.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return l.lead.Clocks(s, now, clocks, voters) })
			})
		}()
	case leader.Braked:
		if o.Err != nil {
			l.logger.Error("brake not committed; granting no leases", slog.Any("error", o.Err))
			return
		}
		l.logger.Warn("brake committed", slog.Uint64("generation", o.Brake.Generation), slog.String("reason", o.Brake.Reason))
	case leader.Over:
		l.over = o.Err
	}
}

// ticked is the end of a tick.
func (l *Loop) ticked(ctx context.Context, err error) {
	l.counts.NotAdmitted(l.waiting)
	l.waiting = 0
	if err != nil {
		// The log is slow, or Decide and Apply disagree (a fault of ours). Nobody is
		// answered: nodes fall to their fail-safe caps rather than run on a wrong decision.
		l.logger.Error("tick not committed", slog.Any("error", err))
		return
	}
	l.known.note()
	l.askBMCs(ctx)
}

// answer passes an answer to the caller; the leader's own requests are logged.
func (l *Loop) answer(a leader.Answer) {
	if done, ok := a.Request.Done.(func(leader.Answer)); ok {
		done(a)
		return
	}
	x, clock := a.Request.ByClock()
	switch {
	case clock && a.Err == nil:
		l.logger.Info("scheduled budget change committed", slog.String("domain", x.Domain), slog.Float64("budget_w", x.Budget.Watts()), slog.String("schedule", x.Schedule))
	case clock:
		l.logger.Warn("scheduled budget change failed", slog.String("domain", x.Domain), slog.Any("error", a.Err))
	case a.Request.Dated() != "" && a.Err == nil:
		l.logger.Info("schedule reset to the present time; a wrong clock had dated it ahead", slog.String("schedule", a.Request.Dated()))
	case a.Err != nil:
		l.logger.Warn("command not committed", slog.String("reason", a.Request.Command.Reason), slog.Any("error", a.Err))
	}
}

// deposed reports whether the log refused because this server lost leadership.
func deposed(err error) bool {
	return errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrClosed) || errors.Is(err, ledger.ErrEpoch)
}

// propose hands one command to the log and returns after it has been applied here.
func (l *Loop) propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	data, err := c.Encode()
	if err != nil {
		return ledger.Result{}, leader.RefusedError{Err: err} // nothing was sent
	}
	ctx, cancel := context.WithTimeout(ctx, proposeDeadline)
	defer cancel()
	ctx, span := l.traces.Begin(ctx, "commit")
	began := time.Now()
	answer, err := l.log.ProposeIn(ctx, l.epoch.Term, data)
	span.Number("headroom.entry_bytes", uint64(len(data))).End(err)
	if err != nil {
		return ledger.Result{}, fmt.Errorf("coordinator: propose: %w", err)
	}
	a, ok := answer.(statemachine.Applied)
	if !ok {
		return ledger.Result{}, fmt.Errorf("coordinator: propose: the log returned %T", answer)
	}
	l.counts.Committed(time.Since(began), a.Result.Revision)
	if a.Err != nil {
		return a.Result, leader.RefusedError{Err: a.Err}
	}
	return a.Result, nil
}

// Hasten asks for an early tick.
func (l *Loop) Hasten(ctx context.Context) {
	_ = l.post(ctx, func() { l.lead.Hasten() }) // a loop that has closed leaves it to the next one
}

// Hear hands a heartbeat to the loop.
func (l *Loop) Hear(ctx context.Context, r ledger.Report) error {
	return l.post(ctx, func() {
		l.machine.View(func(s *ledger.State) { l.lead.Heard(s, l.moment(), r) })
	})
}

// do has a request carried out while the loop's goroutine waits: for what is decided there
// about jobs. Only a leadership that has begun does it.
func (l *Loop) do(ctx context.Context, r *leader.Request) (ledger.Result, error) {
	a := leader.Answer{Err: ErrDeposed}
	r.Done = func(got leader.Answer) { a = got }
	l.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return l.lead.Ask(s, now, r) })
	return a.Result, a.Err
}

// Request hands a request to the leadership and waits for its answer. Once begun it is
// followed to its end.
func (l *Loop) Request(ctx context.Context, r *leader.Request) (leader.Answer, error) {
	return l.await(ctx, r, func(s *ledger.State, now leader.Moment) []leader.Output { return l.lead.Ask(s, now, r) })
}

// Ask runs f on the loop's goroutine once this server has proven that it leads, and waits
// until it has run.
func (l *Loop) Ask(ctx context.Context, f func(*Known)) error {
	r := &leader.Request{}
	a, err := l.await(ctx, r, func(*ledger.State, leader.Moment) []leader.Output { return l.lead.Read(r) }, func() { f(l.known) })
	if err == nil && a.Err != nil {
		return ErrDeposed
	}
	return err
}

// RenewScheduler takes in a renewal of the scheduler's lease. Once this server has proven that it
// leads, it reports whether the process holds the lease, and the lease.
func (l *Loop) RenewScheduler(ctx context.Context, process string) (bool, ledger.Scheduler, error) {
	var held bool
	var x ledger.Scheduler
	err := l.post(ctx, func() {
		l.machine.View(func(s *ledger.State) { l.lead.RenewScheduler(s, l.moment(), process) })
	})
	if err == nil {
		err = l.Ask(ctx, func(*Known) {
			l.machine.View(func(s *ledger.State) {
				if held = l.lead.HoldsScheduler(s, process); s.Scheduler != nil {
					x = *s.Scheduler
				}
			})
		})
	}
	if err != nil {
		return false, ledger.Scheduler{}, err
	}
	return held, x, nil
}

// Look runs f on the loop's goroutine and waits until it has run: for what may be out of date.
func (l *Loop) Look(ctx context.Context, f func(*Known)) error {
	done := make(chan struct{})
	if err := l.post(ctx, func() { f(l.known); close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-l.closed:
		return ErrDeposed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await brings the leadership a request and waits until it is answered; then runs before
// that, on the loop's goroutine.
func (l *Loop) await(
	ctx context.Context, r *leader.Request, in func(*ledger.State, leader.Moment) []leader.Output, then ...func(),
) (leader.Answer, error) {
	answers := make(chan leader.Answer, 1)
	r.Done = func(a leader.Answer) {
		for _, f := range then {
			if a.Err == nil {
				f()
			}
		}
		answers <- a
	}
	inner := context.WithoutCancel(ctx) // a caller who hangs up must not keep a cut from the nodes
	if err := l.post(ctx, func() { l.step(inner, in) }); err != nil {
		return leader.Answer{}, err
	}
	select {
	case a := <-answers:
		return a, nil
	case <-l.closed:
		select {
		case a := <-answers: // it was answered, and then the loop closed
			return a, nil
		default:
			return leader.Answer{}, ErrDeposed
		}
	case <-ctx.Done():
		return leader.Answer{}, ctx.Err()
	}
}

// Known returns the leader's data beside the log, for the loop's goroutine only.
func (l *Loop) Known() *Known { return l.known }

// Post runs f on the loop's goroutine and does not wait for it.
func (l *Loop) Post(ctx context.Context, f func(*Known)) error {
	return l.post(ctx, func() { f(l.known) })
}

func (l *Loop) post(ctx context.Context, f func()) error {
	select {
	case l.inbox <- f:
		return nil
	case <-l.closed:
		return ErrDeposed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// punctual counts a tick that comes too late, and keeps what the process did before it.
func (l *Loop) punctual(ticked, now time.Duration) {
	if ticked == 0 || now-ticked <= 2*l.timing.Tick {
		return
	}
	l.counts.Missed()
	l.missed()
}

// countGrant counts an answer that is about to go out.
func (l *Loop) countGrant(ctx context.Context, g ledger.NodeGrant) {
	if v, ok := l.report(g.Node); ok {
		l.counts.Granted(v.Age)
		l.traces.Past(ctx, "exchange", v.Age).Text("headroom.node", g.Node).Number("headroom.sequence", g.Grant.Stamp.Seq).End(nil)
	}
}

// askBMCs asks for evidence, when there are lost nodes and it is time.
func (l *Loop) askBMCs(ctx context.Context) {
	if !l.evidence.due(l.now()) {
		return
	}
	var lost map[string]string
	l.machine.View(func(s *ledger.State) { lost = l.lead.Suspects(s, l.moment()) })
	if len(lost) == 0 {
		return
	}
	l.evidence.asking = true
	go func() {
		off := l.evidence.ask(ctx, lost, l.logger)
		_ = l.post(ctx, func() { // a loop that has closed leaves it to the next leader
			l.evidence.asking, l.evidence.next = false, l.now()+bmcEvery
			l.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return l.lead.Evidence(s, now, off) })
		})
	}()
}
