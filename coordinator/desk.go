package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"headroom/coordinator/alarms"
	"headroom/coordinator/view"

	"headroom/coordinator/statemachine"
	"headroom/coordinator/streams"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/metrics"
	"headroom/coordinator/traces"
	"headroom/jobs/energy"
	"headroom/lease"
	"headroom/ledger"
	"headroom/ledger/leader"
)

const (
	// deskQueue bounds the heartbeats and questions waiting for the desk; a sender
	// waits when it is full, which slows streams down instead of losing reports.
	deskQueue = 4096
	// proposeDeadline bounds how long one entry may take to commit before its outcome counts as unknown.
	proposeDeadline = 5 * time.Second
)

// errDeposed is what a question gets when the desk closes before answering.
var errDeposed = errors.New("coordinator: this server leads no more")

// proposer is what the desk needs of the log.
type proposer interface {
	// ProposeIn commits data in the given term, or not at all.
	ProposeIn(ctx context.Context, term uint64, data []byte) (any, error)
}

// nodeStreams is what the desk needs of the streams to nodes; nothing of it waits.
type nodeStreams interface {
	// Grant pushes a lease to a node.
	Grant(g ledger.NodeGrant)
	// Wait tells a node that it is charged but not granted a lease, and why.
	Wait(node, reason string)
	// Conflicts are the nodes under whose name another machine has tried to connect lately, each in words.
	Conflicts() map[string]string
}

// schedulerStreams is what the desk needs of the streams to schedulers; nothing of it waits.
type schedulerStreams interface {
	// PushCaps pushes the caps of nodes.
	PushCaps(e lease.Epoch, caps []leader.Cap)
	// PushOrders pushes orders about jobs, and keeps each for schedulers to come.
	PushOrders(e lease.Epoch, orders []streams.Order)
	// DropOrders forgets the orders about subjects that are over.
	DropOrders(over func(subject string) bool)
	// Subject is what the directive of that sequence is about, and whether it is the newest about it.
	Subject(seq uint64) (subject string, newest bool)
}

// desk drives one leadership (leader.Leader): it carries its outputs out, and brings it
// heartbeats, requests, and the time. It is the only proposer. All its methods but ask and
// hear run on its own goroutine.
type desk struct {
	server     string
	epoch      lease.Epoch
	timing     ledger.Timing
	found      *ledger.Found
	log        proposer
	machine    *statemachine.Machine
	nodes      nodeStreams
	schedulers schedulerStreams
	// announce announces the leadership on every stream.
	announce func(lease.Epoch)
	logger   *slog.Logger

	inbox  chan func()
	closed chan struct{}
	began  time.Time
	turns  atomic.Uint64 // of the loop; watchdog reads it
	lead   *leader.Leader
	over   error // why this leadership is over; nil while it is not
	due    bool  // an early look at the jobs is due
	board  *jobBoard
	jobs   *jobLoop
	energy energy.Book
	alarms *alarms.Tracker
	wall   func() time.Time
	meters meters // by domain
	moves  *moveBook
	// proof proves that this server leads; clocks reads every server's wall clock. Both run beside the desk.
	proof  func(ctx context.Context) error
	clocks func(ctx context.Context) (servers map[string]int64, voters int)
	// witness asks the BMCs of lost nodes.
	witness witness
	counts  *metrics.Counts
	missed  func() // asks for a recording of the process
	traces  *traces.Tracer
	looked  time.Duration // when the domains were last held against their budgets
	brakes  *brakes
	waiting int // nodes that were told to wait since the last tick
}

// now is the leader's monotonic time since the desk opened.
func (d *desk) now() time.Duration { return time.Since(d.began) }

func (d *desk) moment() leader.Moment { return leader.Moment{Mono: d.now(), Wall: d.wall()} }

// open makes the leadership, which has begun nothing yet.
func (d *desk) open() {
	d.began = time.Now()
	d.lead = leader.New(leader.Config{
		Server: d.server, Epoch: d.epoch, Timing: d.timing, Found: d.found, Rules: int(d.machine.Rules), Gap: d.machine.Gap(),
	}, d.moment())
}

// run leads until ctx ends or the leadership is over. The first entry begins the epoch;
// the first tick follows at once.
func (d *desk) run(ctx context.Context) error {
	d.open()
	d.step(ctx, d.lead.Start)
	timer, jobs := time.NewTimer(0), time.NewTimer(jobsFirst)
	defer timer.Stop()
	defer jobs.Stop()
	for d.over == nil {
		d.turns.Add(1)
		timer.Reset(max(0, d.lead.Due()-d.now()))
		select {
		case <-ctx.Done():
			return nil
		case f := <-d.inbox:
			f()
		case <-timer.C:
			d.catchUp()
			d.onTime(ctx)
		case <-jobs.C:
			next, err := d.jobTurn(ctx)
			if err != nil {
				return err
			}
			jobs.Reset(next)
		}
		if d.due {
			d.due = false
			jobs.Reset(max(0, jobsSoonest-(d.now()-d.jobs.looked)))
		}
	}
	return d.over
}

// catchUp takes in what waits already, so that an entry answers all of it: with
// many nodes an entry takes longer than their read-backs take to come.
func (d *desk) catchUp() {
	for range len(d.inbox) {
		f := <-d.inbox
		f()
	}
}

// onTime is the moment that the leadership has asked for: most often a tick.
//
//headroom:control
func (d *desk) onTime(ctx context.Context) {
	b := d.brakes.known()
	d.lead.Brake(leader.Brake{Generation: b.Generation, Actor: b.Actor, Reason: b.Reason})
	if d.now() < d.lead.Due() {
		return // what waited has been answered by an entry meanwhile
	}
	d.punctual(d.lead.Ticking(), d.now())
	d.step(ctx, d.lead.Timer)
}

// step brings the leadership one input and carries out what follows from it. An entry is
// waited for, so that none is in flight afterwards.
func (d *desk) step(ctx context.Context, in func(*ledger.State, leader.Moment) []leader.Output) {
	var outputs []leader.Output
	began := time.Now()
	d.machine.View(func(s *ledger.State) { outputs = in(s, d.moment()) })
	for len(outputs) > 0 {
		o := outputs[0]
		outputs = outputs[1:]
		p, ok := o.(leader.Propose)
		if !ok {
			d.carryOut(ctx, o)
			continue
		}
		res, err := d.decided(ctx, p.Command, time.Since(began))
		if deposed(err) && !errors.Is(err, ledger.ErrEpoch) {
			d.over = err
		}
		began = time.Now()
		d.machine.View(func(s *ledger.State) { outputs = append(outputs, d.lead.Committed(s, d.moment(), res, err)...) })
		if d.over != nil {
			outputs = slices.DeleteFunc(outputs, func(o leader.Output) bool { _, answer := o.(leader.Answer); return !answer })
		}
	}
}

// decided proposes a command that took this long to decide.
func (d *desk) decided(ctx context.Context, c ledger.Command, took time.Duration) (ledger.Result, error) {
	if c.Tick == nil {
		return d.propose(ctx, c)
	}
	d.planned(took)
	ctx, span := d.traces.Begin(ctx, "tick")
	res, err := d.propose(ctx, c)
	span.End(err)
	return res, err
}

// planned counts how long it took to decide a tick.
func (d *desk) planned(took time.Duration) {
	var policy string
	d.machine.View(func(s *ledger.State) { policy = s.Policy })
	d.counts.Planned(cmp.Or(policy, string(budget.Weighted)), took)
}

// carryOut does one thing that the leadership asks for.
func (d *desk) carryOut(ctx context.Context, o leader.Output) {
	switch o := o.(type) {
	case leader.Began:
		d.logger.Info("leading", slog.String("epoch", d.epoch.String()))
		d.announce(d.epoch)
	case leader.Grant:
		d.countGrant(ctx, o.NodeGrant)
		d.nodes.Grant(o.NodeGrant)
	case leader.Wait:
		d.waiting++
		d.nodes.Wait(o.Node, o.Reason)
	case leader.Caps:
		d.schedulers.PushCaps(d.epoch, o.Nodes)
	case leader.Ticked:
		d.ticked(ctx, o.Err)
	case leader.Answer:
		d.answer(o)
	case leader.Prove:
		go func() {
			err := d.proof(ctx)
			_ = d.post(ctx, func() { d.step(ctx, func(*ledger.State, leader.Moment) []leader.Output { return d.lead.Proven(err) }) })
		}()
	case leader.AskClocks:
		go func() {
			clocks, voters := d.clocks(ctx)
			_ = d.post(ctx, func() { // a desk that has closed leaves it to the next leader
				d.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return d.lead.Clocks(s, now, clocks, voters) })
			})
		}()
	case leader.Braked:
		if o.Err != nil {
			d.logger.Error("the brake is not in the log: nobody is granted anything", slog.Any("error", o.Err))
			return
		}
		d.logger.Warn("the brake is set in the log", slog.Uint64("generation", o.Brake.Generation), slog.String("reason", o.Brake.Reason))
	case leader.Over:
		d.over = o.Err
	}
}

// ticked is the end of a tick.
func (d *desk) ticked(ctx context.Context, err error) {
	d.counts.NotAdmitted(d.waiting)
	d.waiting = 0
	if err != nil {
		// The log is slow, or Decide and Apply disagree (a fault of ours). Nobody is
		// answered: nodes fall to their fail-safe caps rather than run on a wrong decision.
		d.logger.Error("tick not committed", slog.Any("error", err))
		return
	}
	d.note()
	d.askBMCs(ctx)
}

// answer hands an answer to whoever asked; what the leadership asked itself is logged.
func (d *desk) answer(a leader.Answer) {
	if done, ok := a.Request.Done.(func(leader.Answer)); ok {
		done(a)
		return
	}
	x, clock := a.Request.ByClock()
	switch {
	case clock && a.Err == nil:
		d.logger.Info("budget changed by the clock", slog.String("domain", x.Domain), slog.Float64("budget_w", x.Budget.Watts()), slog.String("schedule", x.Schedule))
	case clock:
		d.logger.Warn("budget not changed by the clock", slog.String("domain", x.Domain), slog.Any("error", a.Err))
	case a.Request.Dated() != "" && a.Err == nil:
		d.logger.Info("schedule counts from now; a wrong clock had dated it ahead", slog.String("schedule", a.Request.Dated()))
	case a.Err != nil:
		d.logger.Warn("not committed", slog.String("reason", a.Request.Command.Reason), slog.Any("error", a.Err))
	}
}

// deposed reports whether the log refuses because this server leads no more.
func deposed(err error) bool {
	return errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrClosed) || errors.Is(err, ledger.ErrEpoch)
}

// propose hands one command to the log and returns after it has been applied here.
func (d *desk) propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	data, err := c.Encode()
	if err != nil {
		return ledger.Result{}, leader.RefusedError{Err: err} // nothing was sent
	}
	ctx, cancel := context.WithTimeout(ctx, proposeDeadline)
	defer cancel()
	ctx, span := d.traces.Begin(ctx, "commit")
	began := time.Now()
	answer, err := d.log.ProposeIn(ctx, d.epoch.Term, data)
	span.Number("headroom.entry_bytes", uint64(len(data))).End(err)
	if err != nil {
		return ledger.Result{}, fmt.Errorf("coordinator: propose: %w", err)
	}
	a, ok := answer.(statemachine.Applied)
	if !ok {
		return ledger.Result{}, fmt.Errorf("coordinator: propose: the log answered %T", answer)
	}
	d.counts.Committed(time.Since(began), a.Result.Revision)
	if a.Err != nil {
		return a.Result, leader.RefusedError{Err: a.Err}
	}
	return a.Result, nil
}

// note keeps what lists and explanations tell of this leadership.
func (d *desk) note() {
	at := time.Now()
	d.machine.View(func(s *ledger.State) {
		d.lookAtEnergy(s)
		d.moves.look(s, at)
		nodes := view.Nodes(s, d.heard())
		d.alarms.Look(d.allAlarms(s, nodes), at)
		d.watchBudgets(view.Domains(s, d.heard(), nodes))
	})
}

// hasten asks for an early tick.
func (d *desk) hasten() { d.lead.Hasten() }

// hear hands a heartbeat to the desk.
func (d *desk) hear(ctx context.Context, r ledger.Report) error {
	return d.post(ctx, func() {
		d.machine.View(func(s *ledger.State) { d.lead.Heard(s, d.moment(), r) })
	})
}

// do has a request carried out while the desk's goroutine waits: for what is decided there
// about jobs. Only a leadership that has begun does it.
func (d *desk) do(ctx context.Context, r *leader.Request) (ledger.Result, error) {
	a := leader.Answer{Err: errDeposed}
	r.Done = func(got leader.Answer) { a = got }
	d.step(ctx, func(s *ledger.State, now leader.Moment) []leader.Output { return d.lead.Ask(s, now, r) })
	return a.Result, a.Err
}

// request hands a request to the leadership and waits for its answer. Once begun it is
// followed to its end.
func (d *desk) request(ctx context.Context, r *leader.Request) (leader.Answer, error) {
	return d.await(ctx, r, func(s *ledger.State, now leader.Moment) []leader.Output { return d.lead.Ask(s, now, r) })
}

// ask runs f on the desk's goroutine once this server has proven that it leads, and waits
// until it has run.
func (d *desk) ask(ctx context.Context, f func()) error {
	r := &leader.Request{}
	a, err := d.await(ctx, r, func(*ledger.State, leader.Moment) []leader.Output { return d.lead.Read(r) }, f)
	if err == nil && a.Err != nil {
		return errDeposed
	}
	return err
}

// look runs f on the desk's goroutine and waits until it has run: for what may be old.
func (d *desk) look(ctx context.Context, f func()) error {
	done := make(chan struct{})
	if err := d.post(ctx, func() { f(); close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-d.closed:
		return errDeposed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await brings the leadership a request and waits until it is answered; then runs before
// that, on the desk's goroutine.
func (d *desk) await(
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
	if err := d.post(ctx, func() { d.step(inner, in) }); err != nil {
		return leader.Answer{}, err
	}
	select {
	case a := <-answers:
		return a, nil
	case <-d.closed:
		select {
		case a := <-answers: // it was answered, and then the desk closed
			return a, nil
		default:
			return leader.Answer{}, errDeposed
		}
	case <-ctx.Done():
		return leader.Answer{}, ctx.Err()
	}
}

func (d *desk) post(ctx context.Context, f func()) error {
	select {
	case d.inbox <- f:
		return nil
	case <-d.closed:
		return errDeposed
	case <-ctx.Done():
		return ctx.Err()
	}
}
