package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"headroom/budget"
	"headroom/consensus"
	"headroom/coordinator/metrics"
	"headroom/coordinator/traces"
	"headroom/jobs/energy"
	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

const (
	// batching is how long the desk gathers urgent read-backs before an early tick,
	// so that a thousand acknowledgements of one cut make a few entries, not a thousand.
	batching = 50 * time.Millisecond
	// deskQueue bounds the heartbeats and questions waiting for the desk; a sender
	// waits when it is full, which slows streams down instead of losing reports.
	deskQueue = 4096
	// proposeDeadline bounds how long one entry may take to commit before its outcome counts as unknown.
	proposeDeadline = 5 * time.Second
	// keptConfirmations is how many budget changes are followed until every node has confirmed.
	keptConfirmations = 64
)

// errDeposed is what a question gets when the desk closes before answering.
var errDeposed = errors.New("coordinator: this server leads no more")

// proposer is what the desk needs of the log.
type proposer interface {
	// ProposeIn commits data in the given term, or not at all.
	ProposeIn(ctx context.Context, term uint64, data []byte) (any, error)
}

// postbox is what the desk needs of the streams.
type postbox interface {
	// grant pushes a lease to a node; it never waits.
	grant(g ledger.NodeGrant)
	// wait tells a node that it is charged but not granted a lease, and why; it never waits.
	wait(node, reason string)
	// lead announces the leadership on every stream.
	lead(e lease.Epoch)
	// conflicts are the nodes under whose name another machine has tried to connect lately, each in words.
	conflicts() map[string]string
	// direct pushes the caps of nodes to the scheduler.
	direct(e lease.Epoch, caps []capDirective)
	// command pushes orders about jobs to the scheduler, and keeps each for schedulers to come.
	command(e lease.Epoch, orders []order)
	// forget drops the orders about subjects that are over.
	forget(gone func(subject string) bool)
	// subject is what the order of that sequence is about; empty for caps and what is long ago. newest is false for an
	// order in whose place another of its subject is, or that is over.
	subject(seq uint64) (subject string, newest bool)
}

// desk is one leadership: it owns the table of heard nodes and is the only
// proposer. All its methods but ask and hear run on its own goroutine.
type desk struct {
	server  string
	epoch   lease.Epoch
	timing  ledger.Timing
	found   *ledger.Found
	log     proposer
	machine *machine
	out     postbox
	logger  *slog.Logger

	inbox  chan func()
	closed chan struct{}
	began  time.Time
	turns  atomic.Uint64 // of the loop; watchdog reads it
	table  *ledger.Table
	ticked time.Duration // when the last tick entry was made
	rested time.Duration // when it was done
	early  bool          // an early tick is due
	due    bool          // an early look at the jobs is due
	waits  *confirmations
	caps   map[string]units.Power // caps that the scheduler was told in this leadership
	board  *jobBoard
	jobs   *jobLoop
	energy energy.Book
	alarms *alarmBook
	clock  clockwork
	wall   func() time.Time
	meters map[string]reading // by domain
	moves  *moveBook
	// witness asks the BMCs of lost nodes.
	witness witness
	// counts and recorder are this server's; recorder is nil while it is off.
	counts   *metrics.Counts
	recorder *recorder
	traces   *traces.Tracer
	looked   time.Duration // when the domains were last held against their budgets
	brakes   *brakes
}

// now is the leader's monotonic time since the desk opened.
func (d *desk) now() time.Duration { return time.Since(d.began) }

// run leads until ctx ends or the log refuses. The first entry begins the epoch;
// the first tick follows at once.
func (d *desk) run(ctx context.Context) error {
	d.began = time.Now()
	d.table = ledger.NewTable(d.timing, 0)
	if err := d.begin(ctx); err != nil {
		return err
	}
	d.logger.Info("leading", slog.String("epoch", d.epoch.String()))
	d.out.lead(d.epoch)
	timer, jobs := time.NewTimer(0), time.NewTimer(jobsFirst)
	defer timer.Stop()
	defer jobs.Stop()
	for {
		d.turns.Add(1)
		select {
		case <-ctx.Done():
			return nil
		case f := <-d.inbox:
			f()
			if d.early {
				d.early = false
				timer.Reset(max(0, batching-(d.now()-d.rested)))
			}
			if d.due {
				d.due = false
				jobs.Reset(max(0, jobsSoonest-(d.now()-d.jobs.looked)))
			}
		case <-timer.C:
			d.catchUp()
			during, span := d.traces.Begin(ctx, "tick")
			err := d.tick(during)
			span.End(err)
			if err != nil {
				return err
			}
			d.followClock(ctx)
			d.askBMCs(ctx)
			d.early, d.rested = false, d.now()
			timer.Reset(max(0, d.timing.Tick-(d.now()-d.ticked)))
		case <-jobs.C:
			next, err := d.jobTurn(ctx)
			if err != nil {
				return err
			}
			jobs.Reset(next)
			if d.early {
				d.early = false
				timer.Reset(max(0, batching-(d.now()-d.rested)))
			}
		}
	}
}

// catchUp takes in what waits already, so that an entry answers all of it: with
// many nodes an entry takes longer than their read-backs take to come.
func (d *desk) catchUp() {
	for range len(d.inbox) {
		f := <-d.inbox
		f()
	}
}

// begin commits the entry that begins the epoch, and gives an empty cluster its
// power tree. It tries until this server leads no more: an entry whose outcome
// was unknown shows in the state once it has committed.
func (d *desk) begin(ctx context.Context) error {
	for {
		d.turns.Add(1)
		begun, empty, lengthless := false, false, false
		d.machine.view(func(s *ledger.State) {
			begun, empty, lengthless = s.Epoch == d.epoch, len(s.Domains) == 0, s.Leases.Length == 0
		})
		c := ledger.Command{Lead: &ledger.Lead{Server: d.server, Gap: d.machine.gap()}}
		switch {
		case begun && !empty && !lengthless:
			return nil
		case begun && !empty:
			c = ledger.Command{SetLease: &ledger.SetLease{Length: d.timing.Lease, Settle: d.timing.Settle}, Reason: "as this server's configuration has it"}
		case begun:
			c = ledger.Command{Found: d.found, Reason: "first start with this configuration"}
		}
		if _, err := d.propose(ctx, c); deposed(err) || ctx.Err() != nil {
			return err
		} else if err != nil {
			d.logger.Warn("entry not committed, trying again", slog.Any("error", err))
			pause(ctx, deskPause)
		}
	}
}

// deposed tells whether the log refuses because this server leads no more.
func deposed(err error) bool {
	return errors.Is(err, consensus.ErrNotLeader) || errors.Is(err, consensus.ErrClosed) || errors.Is(err, ledger.ErrEpoch)
}

// propose hands one command to the log and returns after it has been applied here.
func (d *desk) propose(ctx context.Context, c ledger.Command) (ledger.Result, error) {
	c.Epoch, c.At, c.Rules = d.epoch, d.wall().UnixMicro(), d.machine.inForce()
	if c.Actor == "" {
		c.Actor = "coordinator/" + d.server
	}
	data, err := c.Encode()
	if err != nil {
		return ledger.Result{}, refusedError{err} // nothing was sent
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
	a, ok := answer.(applied)
	if !ok {
		return ledger.Result{}, fmt.Errorf("coordinator: propose: the log answered %T", answer)
	}
	d.counts.Committed(time.Since(began), a.result.Revision)
	if a.err != nil {
		return a.result, refusedError{a.err}
	}
	return a.result, nil
}

// refusedError is an entry that committed and that Apply refused: nothing was changed.
type refusedError struct{ error }

// Unwrap gives the ledger's reason.
func (e refusedError) Unwrap() error { return e.error }

// tick commits the entry of this second and answers the heartbeats heard before it.
//
//headroom:control
func (d *desk) tick(ctx context.Context) error {
	if err := d.reincarnate(ctx); err != nil {
		return err
	}
	if err := d.heedBrake(ctx); err != nil {
		d.ticked = d.now()
		if deposed(err) {
			return err
		}
		d.logger.Error("the brake is not in the log: nobody is granted anything", slog.Any("error", err))
		return nil
	}
	now := d.now()
	d.punctual(now)
	d.table.Mark()
	var t ledger.Tick
	var policy string
	began := time.Now()
	d.machine.view(func(s *ledger.State) { t, policy = ledger.Decide(s, d.table, now), s.Policy })
	d.counts.Planned(cmp.Or(policy, string(budget.Weighted)), time.Since(began))
	t.Elapsed = now - d.ticked
	d.ticked = now
	if _, err := d.propose(ctx, ledger.Command{Tick: &t}); err != nil {
		if deposed(err) {
			return err
		}
		// The log is slow, or Decide and Apply disagree (a fault of ours). Nobody is
		// answered: nodes fall to their fail-safe caps rather than run on a wrong decision.
		d.logger.Error("tick not committed", slog.Any("error", err))
		return nil
	}
	d.answer(ctx)
	d.note()
	return nil
}

// note keeps what lists and explanations tell of this leadership.
func (d *desk) note() {
	at := time.Now()
	d.machine.view(func(s *ledger.State) {
		d.lookAtEnergy(s)
		d.moves.look(s, at)
		nodes := nodeMessages(s, d)
		d.alarms.look(alarmsOf(s, d, nodes), at)
		d.watchBudgets(domainMessages(s, d, nodes))
	})
}

// answer pushes the leases that the entry just committed allows, and the caps that the scheduler should know.
func (d *desk) answer(ctx context.Context) {
	var grants []ledger.NodeGrant
	var caps []capDirective
	var waiting map[string]string
	d.machine.view(func(s *ledger.State) {
		if !d.unheeded(s) {
			grants = d.table.Grants(s, d.now())
		}
		caps = d.changedCaps(s)
		waiting = d.table.Waiting(s)
	})
	d.countGrants(ctx, grants, len(waiting))
	for _, g := range grants {
		d.out.grant(g)
	}
	for node, reason := range waiting {
		d.out.wait(node, reason)
	}
	if len(caps) > 0 {
		d.out.direct(d.epoch, caps)
	}
}

// changedCaps are the node targets that the scheduler has not been told in this leadership.
func (d *desk) changedCaps(s *ledger.State) []capDirective {
	var out []capDirective
	for _, n := range s.NodesByName() {
		if n.Grantable() && n.Target > 0 && d.caps[n.Name] != n.Target {
			d.caps[n.Name] = n.Target
			out = append(out, capDirective{node: n.Name, cap: n.Target, floor: n.Floor, most: n.Max})
		}
	}
	return out
}

// hear hands a heartbeat to the desk.
func (d *desk) hear(ctx context.Context, r ledger.Report) error {
	return d.post(ctx, func() {
		d.table.Heard(r, d.now())
		d.machine.view(func(s *ledger.State) {
			d.waits.heard(r, s.Nodes[r.Node].Target, time.Now())
			d.early = d.early || ledger.Urgent(s, d.table, r.Node) || d.unanswered(s, r)
		})
	})
}

// unanswered tells whether the node has had no lease from this leadership yet:
// after a failover nobody waits out a second.
func (d *desk) unanswered(s *ledger.State, r ledger.Report) bool {
	n := s.Nodes[r.Node]
	v, _ := d.table.View(r.Node, d.now())
	return n.Grantable() && n.Process == r.Process && v.Lease == 0
}

// ask runs f on the desk's goroutine and waits until it has run.
func (d *desk) ask(ctx context.Context, f func()) error {
	done := make(chan struct{})
	if err := d.post(ctx, func() { f(); close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-d.closed:
		select {
		case <-done: // it ran, and then the desk closed: what came of it is known
			return nil
		default:
			return errDeposed
		}
	case <-ctx.Done():
		return ctx.Err()
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
