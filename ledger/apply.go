package ledger

import (
	"fmt"
	"slices"

	"headroom/budget"
	"headroom/lease"
	"headroom/units"
)

// Result is what an applied command made.
type Result struct {
	// Revision after the command (the earlier one when Already).
	Revision uint64
	// Already: a command with the same request id was carried out before; nothing was done now.
	Already bool
}

// Apply carries out one committed command. On an error the state is unchanged.
// A request that was carried out before is no conflict, whatever it was checked
// against: it is asked again because its answer was lost.
func (s *State) Apply(c Command) (Result, error) {
	if err := s.admissible(c); err != nil {
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", err)
	}
	if c.RequestID != "" {
		if i := slices.IndexFunc(s.Requests, func(r Request) bool { return r.ID == c.RequestID }); i >= 0 {
			return Result{Revision: s.Requests[i].Revision, Already: true}, nil
		}
	}
	if c.Check != nil && s.PowerRevision > *c.Check {
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", &ConflictError{Planned: *c.Check, Now: s.Revision, Last: s.lastPowerEvent()})
	}
	if err := s.dispatch(c); err != nil {
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", err)
	}
	if c.RequestID != "" {
		s.Requests = bounded(append(s.Requests, Request{ID: c.RequestID, Revision: s.Revision}), keptRequests)
	}
	return Result{Revision: s.Revision}, nil
}

// admissible checks what holds for every command: the epoch (P3), and that there is a power tree.
func (s *State) admissible(c Command) error {
	order := c.Epoch.Compare(s.Epoch)
	switch {
	case c.parts() != 1:
		return fmt.Errorf("command of %d parts: %w", c.parts(), ErrUnknownCommand)
	case c.Lead != nil && order <= 0, c.Lead == nil && order != 0:
		return fmt.Errorf("command of epoch %v, in force is %v: %w", c.Epoch, s.Epoch, ErrEpoch)
	case c.Lead == nil && c.Found == nil && len(s.Domains) == 0:
		return ErrNotFounded
	}
	return nil
}

func (s *State) dispatch(c Command) error {
	switch {
	case c.Lead != nil:
		s.Epoch = c.Epoch
		s.record(c, "leader "+c.Lead.Server+" begins epoch "+c.Epoch.String())
		return nil
	case c.Found != nil:
		return s.found(c, c.Found)
	case c.Tick != nil:
		return s.tick(c, c.Tick)
	case c.Budget != nil:
		return s.setBudget(c, c.Budget)
	case c.Release != nil:
		return s.release(c, c.Release)
	case c.Job != nil:
		return s.acceptJob(c, *c.Job)
	case c.Finish != nil:
		return s.finishJob(c, c.Finish)
	}
	return ErrUnknownCommand
}

func (s *State) found(c Command, f *Found) error {
	if len(s.Domains) > 0 {
		return ErrFounded
	}
	if _, err := budget.NewTree(f.Domains); err != nil {
		return err
	}
	for _, d := range f.Domains {
		s.Domains[d.Name] = d
	}
	s.recordPower(c, fmt.Sprintf("cluster founded with %d domains", len(f.Domains)))
	return nil
}

// tick applies evidence first (what was seen and read back may raise charges:
// that is the truth, and shows as shortfall), then grants, which must fit.
func (s *State) tick(c Command, t *Tick) error {
	tx := begin(s)
	for _, x := range t.Seen {
		if err := tx.see(c, x); err != nil {
			tx.rollback()
			return err
		}
	}
	for _, a := range t.Acks {
		tx.ack(a)
	}
	before := s.Totals()
	room := map[string]units.Power{}
	if len(t.Admit) > 0 {
		room = s.rooms()
	}
	for _, name := range t.Admit {
		if err := tx.admit(c, name, room); err != nil {
			tx.rollback()
			return err
		}
	}
	for _, g := range t.Targets {
		if err := tx.target(g); err != nil {
			tx.rollback()
			return err
		}
	}
	if err := s.fits(before); len(t.Admit)+len(t.Targets) > 0 && err != nil {
		tx.rollback()
		return err
	}
	s.Elapsed += max(0, t.Elapsed)
	return nil
}

// fits is promise P1: no grant may leave a domain over its budget, unless the
// domain was over it before and is now charged no more.
func (s *State) fits(before map[string]Totals) error {
	after := s.Totals()
	for _, d := range s.Tree().Domains() {
		now, was := after[d.Name], before[d.Name]
		if now.Headroom() < 0 && now.Reserved > was.Reserved {
			return &OverBudgetError{Domain: d.Name, Over: -now.Headroom(), Budget: now.Budget - now.Unmanaged, Reserved: now.Reserved}
		}
	}
	return nil
}

func (s *State) setBudget(c Command, b *SetBudget) error {
	d, ok := s.Domains[b.Domain]
	if !ok {
		return fmt.Errorf("domain %q: %w", b.Domain, ErrUnknownDomain)
	}
	if b.Budget <= 0 {
		return fmt.Errorf("domain %q: %w", b.Domain, budget.ErrAmount)
	}
	if t := s.Totals()[b.Domain]; b.Budget < t.Floor && b.Budget < d.Budget && !b.Force {
		return &FloorError{Domain: b.Domain, Budget: b.Budget, Unmanaged: t.Unmanaged, Floor: t.Floor, Nodes: t.Nodes}
	}
	tx := begin(s)
	for _, g := range b.Targets {
		if err := tx.lower(g); err != nil {
			tx.rollback()
			return err
		}
	}
	was := d.Budget
	d.Budget = b.Budget
	s.Domains[b.Domain] = d
	s.recordPower(c, fmt.Sprintf("budget %s %v -> %v", b.Domain, was, b.Budget))
	return nil
}

func (s *State) release(c Command, r *Release) error {
	n, ok := s.Nodes[r.Node]
	if !ok {
		return fmt.Errorf("node %q: %w", r.Node, ErrUnknownNode)
	}
	if n.MachineID != r.MachineID {
		return fmt.Errorf("node %q: %w", r.Node, ErrIdentity)
	}
	tx := begin(s)
	// Against its target, not its ceiling: a release while a cut is on its way to
	// the node would keep the domain over its budget for good (P5).
	aimed := n
	aimed.Ceiling = n.Target
	tx.put(aimed)
	before := s.Totals()
	n.Released = true
	tx.put(n)
	if err := s.fits(before); err != nil {
		tx.rollback()
		return err
	}
	s.recordPower(c, fmt.Sprintf("node %s released, charged its rated %v", n.Name, n.Rated))
	return nil
}

// record counts the change and writes its audit line.
func (s *State) record(c Command, what string) {
	s.Revision++
	e := Event{Revision: s.Revision, At: c.At, Actor: c.Actor, What: what, Reason: c.Reason, RequestID: c.RequestID}
	s.Events = bounded(append(s.Events, e), keptEvents)
}

func (s *State) recordPower(c Command, what string) {
	s.record(c, what)
	s.PowerRevision = s.Revision
}

func (s *State) lastPowerEvent() Event {
	for _, e := range slices.Backward(s.Events) {
		if e.Revision <= s.PowerRevision {
			return e
		}
	}
	return Event{}
}

func bounded[T any](list []T, most int) []T {
	if over := len(list) - most; over > 0 {
		return slices.Clone(list[over:])
	}
	return list
}

// Stamp is what a lease for the node carries: the leadership in force and the sequence of its target.
func (s *State) Stamp(n Node) lease.Stamp { return lease.Stamp{Epoch: s.Epoch, Seq: n.Seq} }
