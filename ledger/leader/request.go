package leader

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"headroom/ledger"
	"headroom/units"
)

var (
	// ErrBusy means that too many requests wait for the log.
	ErrBusy = errors.New("too many requests wait for the log")
	// ErrHeard means that a node cannot be taken for gone that has just been heard.
	ErrHeard = errors.New("the node may be alive")
	// ErrAboveParent means a budget that its domain could never use up.
	ErrAboveParent = errors.New("above the domain that it lies in")
	// errSame ends a request that changes nothing.
	errSame = errors.New("nothing changes")
)

// RefusedError is a command that the ledger refused, tried out or committed: nothing was changed.
type RefusedError struct{ Err error }

// Error is the ledger's reason.
func (e RefusedError) Error() string { return e.Err.Error() }

// Unwrap gives the ledger's reason.
func (e RefusedError) Unwrap() error { return e.Err }

// View is what a request is planned on.
type View struct {
	State *ledger.State
	Now   Moment
	l     *Leader
}

// Request is what somebody asks for. It is planned on the committed state when its turn
// comes, and carried out by one entry.
type Request struct {
	// Command names who asks, why and under which key; Build completes it, nil where it is whole.
	Command ledger.Command
	Build   func(v View, c *ledger.Command) error
	// Trial has the command tried on a copy first, and Tried told what it would do; with
	// DryRun nothing is proposed.
	Trial, DryRun bool
	Tried         Trial
	// Quiet: its entry brings no leases; what it changes goes out with the next tick, which
	// is an early one where Urgent says so.
	Quiet, Urgent bool
	// Done is the caller's: who waits for the answer.
	Done any

	clock  *byClock // set for a change of a budget by the clock
	dating string   // schedule that is dated anew
}

// Trial is what a command would do.
type Trial struct {
	// Command as it was tried, on the state of Revision.
	Command  ledger.Command
	Revision uint64
	// Before and After are the sums of every domain.
	Before, After map[string]ledger.Totals
	// Already says that nothing would change; What is the record of the change.
	Already bool
	What    string
	// Moves are the caps that a dry run's change moves, and Missing the watts that it leaves
	// missing, by domain. A change of a budget has its own plan.
	Moves   []ledger.Move
	Missing map[string]units.Power
}

// Ask takes in a request, which is carried out at once when nothing is in flight.
func (l *Leader) Ask(s *ledger.State, now Moment, r *Request) []Output {
	if len(l.queue) >= queueMost {
		return []Output{Answer{Request: r, Err: ErrBusy}}
	}
	l.queue = append(l.queue, r)
	return l.next(s, now)
}

// carryOut plans a request on the state of now and proposes it, or answers it.
func (l *Leader) carryOut(s *ledger.State, now Moment, r *Request) []Output {
	c := r.Command
	c.Epoch, c.Rules, c.At = s.Epoch, cmp.Or(s.Rules, l.cfg.Rules), now.Wall.UnixMicro()
	c = c.UnderRules()
	again, err := s.Asked(c)
	switch {
	case err != nil:
		err = RefusedError{err}
	case again.Already:
		_ = r.plan(View{s, now, l}, &c) // for the view of it: what it would be refused for now was checked then
		r.Tried.Already, r.Tried.What = true, again.What
	default:
		err = r.plan(View{s, now, l}, &c)
	}
	if err == nil && !r.DryRun && !again.Already {
		return l.propose(s, now, r, c)
	}
	out := Answer{Request: r, Result: again, Err: err}
	if errors.Is(err, errSame) {
		out.Err, out.Result = nil, ledger.Result{Revision: s.Revision, Already: true}
	}
	if r.clock != nil {
		l.clockDone(now, r, out.Err)
	}
	return append([]Output{out}, l.next(s, now)...)
}

// plan completes the command and tries it out where that is asked for.
func (r *Request) plan(v View, c *ledger.Command) error {
	same := false
	if r.Build != nil {
		err := r.Build(v, c)
		if same = errors.Is(err, errSame); err != nil && !same {
			return err
		}
	}
	if r.Trial || r.DryRun || same {
		if err := r.try(v, *c); err != nil {
			return err
		}
	}
	if same {
		return errSame
	}
	return nil
}

// try carries a command out on a copy of the state.
func (r *Request) try(v View, c ledger.Command) error {
	s := v.State
	trial := s.Clone()
	r.Tried = Trial{Command: c, Revision: s.Revision, Before: trial.Totals()}
	res, err := trial.Apply(c)
	if err != nil {
		return RefusedError{err} // nothing was sent
	}
	r.Tried.After, r.Tried.Already = trial.Totals(), res.Already || trial.Revision == s.Revision
	if n := len(trial.Events); n > 0 && !r.Tried.Already {
		r.Tried.What = trial.Events[n-1].What
	}
	if r.DryRun && c.Budget == nil && !r.Tried.Already {
		r.Tried.Moves, r.Tried.Missing = ledger.PlanMoves(s, trial, v.l.table, v.Now.Mono)
	}
	return nil
}

// Budget is a change of a domain's budget.
type Budget struct {
	// Domain; empty for the root.
	Domain string
	To     units.Power
	// Force lets it go below what the nodes can be lowered to; Until is when it ends by the
	// clock, microseconds since the Unix epoch, 0 for never.
	Force bool
	Until int64
	// Plan is what it does, once it has been built; Highest is the highest budget that the
	// domain has had before.
	Plan    ledger.BudgetPlan
	Highest units.Power
}

// Build plans the change: lowers are in the same entry as the budget.
func (b *Budget) Build(v View, c *ledger.Command) error {
	s := v.State
	if t := s.Tree(); b.Domain == "" && t != nil {
		b.Domain = t.Root().Name
	}
	var err error
	if b.Plan, err = ledger.PlanBudget(s, v.l.table, v.Now.Mono, b.Domain, b.To); err != nil {
		if errors.Is(err, ledger.ErrUnknownDomain) {
			return fmt.Errorf("domain %q: %w", b.Domain, err)
		}
		return err
	}
	c.Budget = &ledger.SetBudget{Domain: b.Domain, Budget: b.To, Force: b.Force, Until: b.Until, Targets: b.Plan.Lowers()}
	d := s.Domains[b.Domain]
	b.Highest = d.Highest
	if d.Budget == b.To && b.Until == 0 && d.Back == nil {
		return errSame
	}
	if b.Force {
		return nil
	}
	return AboveParent(s, d.Parent, b.Domain, d.Budget, b.To)
}

// AboveParent refuses a raise of a domain above the budget of the domain it lies in:
// whoever asks for it takes the sum for another. A cut further up is no reason, nor is one
// that ends by itself.
func AboveParent(s *ledger.State, parent, domain string, was, to units.Power) error {
	up, ok := s.Domains[parent]
	if !ok || to <= was || to <= up.Budget || up.Back != nil {
		return nil
	}
	return fmt.Errorf("%s may draw %v at most, and lies in %s, which may draw %v: %w", domain, to, parent, up.Budget, ErrAboveParent)
}

// Silent refuses to take a node for gone that has just been heard, or that may speak and
// could not be heard by this leader yet.
func (v View) Silent(node string) error { return v.l.silent(v.Now, node) }

func (l *Leader) silent(now Moment, node string) error {
	silent, lost := l.table.Silent(node, now.Mono), l.cfg.Timing.Lost
	led := l.table.Led(now.Mono)
	switch {
	case silent > lost:
		return nil
	case led <= lost:
		return fmt.Errorf("this server leads for %.1fs only, and hears who is there within %.1fs: %w", led.Seconds(), lost.Seconds(), ErrHeard)
	default:
		return fmt.Errorf("%s was heard %.1fs ago: %w", node, silent.Seconds(), ErrHeard)
	}
}

// Remove takes a node out of the cluster that is gone.
func Remove(node string, poweredOff bool) func(View, *ledger.Command) error {
	return func(v View, c *ledger.Command) error {
		c.Remove = &ledger.RemoveNode{Node: node, PoweredOff: poweredOff}
		return v.Silent(node)
	}
}

// PowerOff says that the machine of a node that is gone is off; by says who knows.
func PowerOff(node, by string) func(View, *ledger.Command) error {
	return func(v View, c *ledger.Command) error {
		c.PowerOff = &ledger.PowerOff{Node: node, By: by}
		return v.Silent(node)
	}
}

// Suspects are the lost nodes whose BMC is known, by name: its address.
func (l *Leader) Suspects(s *ledger.State, now Moment) map[string]string {
	out := map[string]string{}
	for _, n := range s.Nodes {
		if n.Settings.BMC != "" && n.Off == "" && l.silent(now, n.Name) == nil {
			out[n.Name] = n.Settings.BMC
		}
	}
	return out
}

// Evidence takes in the nodes whose BMCs say that they are off; one that was heard
// meanwhile is left alone.
func (l *Leader) Evidence(s *ledger.State, now Moment, off []string) []Output {
	var out []Output
	for _, node := range off {
		out = append(out, l.Ask(s, now, &Request{
			Command: ledger.Command{Reason: fmt.Sprintf("the BMC of %s says that it is off", node)}, Build: PowerOff(node, "bmc"), Quiet: true,
		})...)
	}
	return out
}

// Read takes in a question, which is answered (Answer) once this server has proven that it
// led after the question came. Before the epoch has begun nothing is proven: what earlier
// leaderships committed may not have been applied here yet.
func (l *Leader) Read(r *Request) []Output {
	l.reads = append(l.reads, r)
	return l.prove()
}

func (l *Leader) prove() []Output {
	if len(l.reads) == 0 || l.proving != nil || !l.led {
		return nil // the next proof is for it
	}
	l.proving, l.reads = l.reads, nil
	return []Output{Prove{}}
}

// Proven takes the proof that this server leads, or why there is none.
func (l *Leader) Proven(err error) []Output {
	var out []Output
	for _, r := range l.proving {
		out = append(out, Answer{Request: r, Err: err})
	}
	l.proving = nil
	return append(out, l.prove()...)
}

// Awaited is a node that a budget change has lowered.
type Awaited struct {
	Node string
	// To is the target, and the sequence that it came with.
	To ledger.Pending
	// After is how long it took until the node had read it back; 0 while outstanding.
	After time.Duration
}
