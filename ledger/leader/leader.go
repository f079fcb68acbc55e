package leader

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/lease"
	"headroom/ledger"
	"headroom/units"
)

const (
	// batching is how long urgent read-backs are gathered after a tick before an early
	// one, so that a thousand acknowledgements of one cut make a few entries, not a thousand.
	batching = 50 * time.Millisecond
	// retryBegin is the pause before an entry that begins the leadership is proposed again.
	retryBegin = 200 * time.Millisecond
	// queueMost bounds the requests that wait for the entry in flight.
	queueMost = 4096
)

// Moment is the time of an input.
type Moment struct {
	// Mono is the server's own monotonic time; the gaps between moments count, not its origin.
	Mono time.Duration
	// Wall is the server's wall clock: for the audit log, and for what is due by the clock.
	Wall time.Time
}

// Config is what a leadership knows from the start.
type Config struct {
	// Server is the id of this coordinator, Epoch that of the leadership.
	Server string
	Epoch  lease.Epoch
	Timing ledger.Timing
	// Found gives an empty cluster its power tree.
	Found *ledger.Found
	// Rules are the newest that this server knows: those of a log that is empty.
	Rules int
	// Gap is the server's monotonic time since it applied the newest tick; 0 where unknown.
	Gap time.Duration
}

// Brake is a brake as the gossip has proven it.
type Brake struct {
	Generation    uint64
	Actor, Reason string
}

// Leader is one leadership. It belongs to one goroutine.
//
// Invariant: flight is the one entry that was proposed and not answered; what is in queue
// was accepted and not proposed.
type Leader struct {
	cfg   Config
	table *ledger.Table
	led   bool // the epoch has begun
	over  bool

	flight *flight
	queue  []*Request
	ticked time.Duration // when the last tick entry was made
	rested time.Duration // when it was done
	urgent bool          // an early tick is due
	first  bool          // the first tick has not been made
	retry  time.Duration // no beginning is tried before

	brake      Brake
	brakeRetry time.Duration // a brake that did not commit is not tried again before
	caps       map[string]units.Power
	waits      confirmations
	clock      clock
	scheduler  schedulerWatch
	reads      []*Request // asked before a proof was asked for
	proving    []*Request // whose proof is under way
}

// flight is the entry in flight.
type flight struct {
	command ledger.Command
	request *Request
}

// New is a leadership that begins now; Start has it begin its epoch.
func New(c Config, now Moment) *Leader {
	return &Leader{
		cfg: c, table: ledger.NewTable(c.Timing, now.Mono), ticked: now.Mono, rested: now.Mono, first: true, caps: map[string]units.Power{},
		scheduler: schedulerWatch{heard: now.Mono},
	}
}

// Start proposes the entry that begins the epoch.
func (l *Leader) Start(s *ledger.State, now Moment) []Output { return l.next(s, now) }

// Table is what was heard, for lists; nobody but the leader changes it.
func (l *Leader) Table() *ledger.Table { return l.table }

// Ticking is when the newest tick entry was made.
func (l *Leader) Ticking() time.Duration { return l.ticked }

// Began reports whether the epoch has begun.
func (l *Leader) Began() bool { return l.led }

// Heard takes in a heartbeat. A read-back that changes a charge, a node that is new, or one
// that has had no lease from this leadership yet makes the next tick early.
func (l *Leader) Heard(s *ledger.State, now Moment, r ledger.Report) {
	l.table.Heard(r, now.Mono)
	if n := s.Nodes[r.Node]; n.Process == r.Process {
		l.waits.heard(r, r.Seq(s, &n), n.Target, now.Mono)
	}
	l.urgent = l.urgent || ledger.Urgent(s, l.table, r.Node) || l.unanswered(s, now, r)
}

// unanswered reports whether the node has had no lease from this leadership yet: after a
// failover nobody waits out a second.
func (l *Leader) unanswered(s *ledger.State, now Moment, r ledger.Report) bool {
	n := s.Nodes[r.Node]
	v, _ := l.table.View(r.Node, now.Mono)
	return n.Grantable() && n.Process == r.Process && v.Lease == 0
}

// Brake takes in the newest brake that the gossip has proven. The log hears of it before
// anybody is granted anything.
func (l *Leader) Brake(b Brake) {
	if b.Generation > l.brake.Generation {
		l.brake, l.urgent = b, true
	}
}

// Hasten asks for an early tick.
func (l *Leader) Hasten() { l.urgent = true }

// Due is when Timer wants to be called, on the server's monotonic time.
func (l *Leader) Due() time.Duration {
	switch {
	case !l.led:
		return l.retry
	case l.brakeRetry > 0:
		return l.brakeRetry
	case l.first:
		return l.ticked
	case l.urgent:
		return min(l.ticked+l.cfg.Timing.Tick, l.rested+batching)
	}
	return l.ticked + l.cfg.Timing.Tick
}

// Timer is the moment that Due has named.
func (l *Leader) Timer(s *ledger.State, now Moment) []Output { return l.next(s, now) }

// next proposes what comes first: the beginning, what must be in the log before anybody is
// granted anything, the tick when it is due, then requests as they came.
func (l *Leader) next(s *ledger.State, now Moment) []Output {
	if l.flight != nil || l.over {
		return nil
	}
	heard := l.table.Epoch()
	switch {
	case !l.led:
		if now.Mono < l.retry {
			return nil
		}
		return l.begin(s, now)
	case s.Restored && heard.Compare(l.cfg.Epoch) > 0:
		return l.propose(s, now, nil, ledger.Command{
			Reincarnate: &ledger.Reincarnate{Above: heard.Incarnation}, Reason: "a node was granted in epoch " + heard.String(),
		})
	case l.generation() > s.Brake.Set:
		if now.Mono < l.brakeRetry {
			return nil
		}
		return l.propose(s, now, nil, l.brakeCommand())
	case now.Mono >= l.Due():
		return l.tick(s, now)
	case len(l.queue) > 0:
		r := l.queue[0]
		l.queue = l.queue[1:]
		return l.carryOut(s, now, r)
	}
	return nil
}

// begin proposes what a leadership starts with: its epoch, an empty cluster's power tree,
// the length of leases where none is committed.
func (l *Leader) begin(s *ledger.State, now Moment) []Output {
	c := ledger.Command{Lead: &ledger.Lead{Server: l.cfg.Server, Gap: l.cfg.Gap}}
	switch begun := s.Epoch == l.cfg.Epoch; {
	case begun && len(s.Domains) == 0:
		c = ledger.Command{Found: l.cfg.Found, Reason: "first start with this configuration"}
	case begun && s.Leases.Length == 0:
		c = ledger.Command{
			SetLease: &ledger.SetLease{Length: l.cfg.Timing.Lease, Settle: l.cfg.Timing.Settle}, Reason: "as this server's configuration has it",
		}
	case begun:
		l.led = true
		return append(append([]Output{Began{}}, l.prove()...), l.next(s, now)...)
	}
	return l.propose(s, now, nil, c)
}

// generation is the newest brake that is known.
func (l *Leader) generation() uint64 { return max(l.brake.Generation, l.table.Brake()) }

func (l *Leader) brakeCommand() ledger.Command {
	c := ledger.Command{Brake: &ledger.SetBrake{Generation: l.generation()}}
	if l.brake.Generation == l.generation() {
		c.Actor, c.Reason = l.brake.Actor, l.brake.Reason
	}
	return c
}

// tick proposes the entry of this second.
func (l *Leader) tick(s *ledger.State, now Moment) []Output {
	t := ledger.Decide(s, l.table, now.Mono)
	t.Elapsed = now.Mono - l.ticked
	l.ticked, l.urgent, l.first = now.Mono, false, false
	return l.propose(s, now, nil, ledger.Command{Tick: &t})
}

// propose marks what was heard, which this entry may answer, and hands a command out.
func (l *Leader) propose(s *ledger.State, now Moment, r *Request, c ledger.Command) []Output {
	c.Epoch, c.At, c.Rules = l.cfg.Epoch, now.Wall.UnixMicro(), cmp.Or(s.Rules, l.cfg.Rules)
	if c.Actor == "" {
		c.Actor = "coordinator/" + l.cfg.Server
	}
	l.table.Mark()
	c = c.UnderRules()
	l.flight = &flight{command: c, request: r}
	return []Output{Propose{c}}
}

// Committed takes what came of the entry in flight: its result once it has been applied
// here, the ledger's refusal (RefusedError), or why its outcome is unknown.
func (l *Leader) Committed(s *ledger.State, now Moment, res ledger.Result, err error) []Output {
	f := l.flight
	if f == nil {
		return nil
	}
	l.flight = nil
	l.noteScheduler(now, f.command, err)
	if errors.Is(err, ledger.ErrEpoch) || err == nil && f.command.Reincarnate != nil {
		return l.end(f, overError(f.command, err))
	}
	var out []Output
	switch c := f.command; {
	case f.request != nil:
		out = l.settle(s, now, f, res, err)
	case c.Tick != nil:
		l.rested = now.Mono
		if out = []Output{Ticked{err}}; err == nil {
			out = append(l.answers(s, now), out...)
			l.followClock(s, now, &out)
		}
	case c.Brake != nil:
		out = append(out, Braked{Brake{c.Brake.Generation, c.Actor, c.Reason}, err})
		l.brakeRetry = 0
		if err != nil {
			l.brakeRetry = now.Mono + l.cfg.Timing.Tick
			for _, r := range l.queue { // nobody lifts what the log has not heard of
				out = append(out, Answer{Request: r, Err: fmt.Errorf("brake %d: %w", c.Brake.Generation, err)})
			}
			l.queue = nil
		}
		l.urgent = true
	case err != nil: // an entry of the beginning
		l.retry = now.Mono + retryBegin
	}
	return append(out, l.next(s, now)...)
}

// end gives the leadership up. Whoever waits asks whoever leads next.
func (l *Leader) end(f *flight, err error) []Output {
	l.over = true
	waiting := append(append(l.queue, l.reads...), l.proving...)
	if f.request != nil {
		waiting = append(waiting, f.request)
	}
	l.queue, l.reads, l.proving = nil, nil, nil
	var out []Output
	for _, r := range waiting {
		out = append(out, Answer{Request: r, Err: err})
	}
	return append(out, Over{err})
}

func overError(c ledger.Command, err error) error {
	if c.Reincarnate != nil && err == nil {
		return fmt.Errorf("leader: %s: %w", c.Reason, ledger.ErrEpoch)
	}
	return err
}

// settle answers a request and lets out what it allows.
func (l *Leader) settle(s *ledger.State, now Moment, f *flight, res ledger.Result, err error) []Output {
	r := f.request
	out := []Output{Answer{Request: r, Result: res, Err: err}}
	if r.clock != nil {
		l.clockDone(now, r, err)
	}
	if err != nil {
		return out
	}
	if b := f.command.Budget; b != nil && !res.Already {
		l.waits.follow(s, now.Mono, res.Revision, b.Targets)
	}
	l.urgent = l.urgent || r.Urgent || !r.Quiet
	if r.Quiet {
		return out
	}
	return append(l.answers(s, now), out...)
}

// answers are the leases that the entry just committed allows, and the caps that the
// scheduler should know.
func (l *Leader) answers(s *ledger.State, now Moment) []Output {
	var out []Output
	if l.generation() <= s.Brake.Set {
		for _, g := range l.table.Grants(s, now.Mono) {
			out = append(out, Grant{g})
		}
	}
	waiting := l.table.Waiting(s)
	for _, node := range slices.Sorted(maps.Keys(waiting)) {
		out = append(out, Wait{node, waiting[node], s.Brake.Lifted})
	}
	if caps := l.changedCaps(s); len(caps) > 0 {
		out = append(out, Caps{caps})
	}
	return out
}

// changedCaps are the node targets that the scheduler has not been told in this leadership.
func (l *Leader) changedCaps(s *ledger.State) []Cap {
	var out []Cap
	for _, n := range s.Nodes {
		if n.Grantable() && n.Target > 0 && l.caps[n.Name] != n.Target {
			l.caps[n.Name] = n.Target
			out = append(out, Cap{Node: n.Name, Cap: n.Target, Floor: n.Floor, Most: n.Max})
		}
	}
	slices.SortFunc(out, func(a, b Cap) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// Outgrown says that nodes were granted in a newer incarnation than this group's; empty
// while none was. A group that is not restored must not overtake them.
func (l *Leader) Outgrown() string {
	if top := l.table.Incarnation(); top > l.cfg.Epoch.Incarnation {
		return fmt.Sprintf("nodes have been granted in incarnation %d, this group is in %d: another group leads them, or did", top, l.cfg.Epoch.Incarnation)
	}
	return ""
}
