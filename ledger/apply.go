package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"headroom/budget"
	"headroom/lease"
	"headroom/units"
)

// Result is what an applied command made.
type Result struct {
	// Revision after the command (the earlier one when Already).
	Revision uint64
	// Already: the same request was carried out before; nothing was done now.
	Already bool
	// What is the record of a request that was carried out before.
	What string
}

// Apply carries out one committed command. On an error the state is unchanged.
// A request that was carried out before is no conflict, whatever it was checked
// against: it is asked again because its answer was lost.
//
//headroom:apply
func (s *State) Apply(c Command) (Result, error) {
	if c.Ignorable && c.Rules > s.newest() {
		return Result{Revision: s.Revision}, nil
	}
	if err := s.admissible(c); err != nil {
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", err)
	}
	if was, err := s.Asked(c); err != nil {
		return was, fmt.Errorf("ledger: %w", err)
	} else if was.Already {
		return was, nil
	}
	if c.Check != nil && s.PowerRevision > *c.Check {
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", &ConflictError{Planned: *c.Check, Now: s.Revision, Last: s.lastPowerEvent()})
	}
	t, before := begin(s), s.Revision
	if err := t.dispatch(c); err != nil {
		t.rollback()
		return Result{Revision: s.Revision}, fmt.Errorf("ledger: %w", err)
	}
	if c.RequestID != "" {
		what := ""
		if n := len(s.Events); s.Revision > before && n > 0 {
			what = s.Events[n-1].What
		}
		s.remember(c, what)
	}
	return Result{Revision: s.Revision}, nil
}

// admissible checks what holds for every command: its rules, the epoch (P3), and that there is a power tree.
func (s *State) admissible(c Command) error {
	order := c.Epoch.Compare(s.Epoch)
	written := cmp.Or(c.Rules, s.Rules)
	switch {
	case c.parts() != 1:
		return fmt.Errorf("command of %d parts: %w", c.parts(), ErrUnknownCommand)
	case max(len(c.Actor), len(c.Reason), len(c.RequestID), len(c.Caller), len(c.User), len(c.Content)) > maxText:
		return fmt.Errorf("actor, reason and request id have %d, %d and %d bytes, at most %d are kept: %w",
			len(c.Actor), len(c.Reason), len(c.RequestID), maxText, ErrText)
	case c.Upgrade == nil && written > s.Rules:
		return fmt.Errorf("command of rules %d; rules %d are in force: %w", written, s.Rules, ErrRules)
	case c.Lead != nil && order <= 0, c.Lead == nil && order != 0:
		return fmt.Errorf("command of epoch %v; epoch %v is current: %w", c.Epoch, s.Epoch, ErrEpoch)
	case s.Epoch.Incarnation > 0 && c.Epoch.Incarnation != s.Epoch.Incarnation:
		return fmt.Errorf("leadership of incarnation %d; incarnation %d is current: %w", c.Epoch.Incarnation, s.Epoch.Incarnation, ErrEpoch)
	case c.SchedulerEpoch != 0 && c.SchedulerEpoch != s.SchedulerEpoch():
		return fmt.Errorf("command of a scheduler of epoch %d; epoch %d is current: %w", c.SchedulerEpoch, s.SchedulerEpoch(), ErrSchedulerEpoch)
	case (c.HoldScheduler != nil || c.ReleaseScheduler != nil) && s.Rules < RulesOfScheduler:
		return fmt.Errorf("rules %d know no lease of a scheduler: %w", s.Rules, ErrRules)
	case c.Lead == nil && c.Found == nil && c.Server == nil && c.Upgrade == nil && len(s.Domains) == 0:
		return ErrNotFounded
	}
	return nil
}

func (t *tx) dispatch(c Command) error { //nolint:gocyclo // one line for each command
	switch {
	case c.Lead != nil:
		t.lead(c, c.Lead)
		return nil
	case c.Found != nil:
		return t.found(c, c.Found)
	case c.Tick != nil:
		return t.tick(c, c.Tick)
	case c.Budget != nil:
		return t.setBudget(c, c.Budget)
	case c.Release != nil:
		return t.release(c, c.Release)
	case c.Job != nil:
		return t.acceptJob(c, *c.Job)
	case c.Finish != nil:
		return t.finishJob(c, c.Finish)
	case c.Upgrade != nil:
		return t.upgrade(c, c.Upgrade)
	case c.Domain != nil:
		return t.setDomain(c, c.Domain)
	case c.RemoveDomain != nil:
		return t.removeDomain(c, c.RemoveDomain.Name)
	case c.Node != nil:
		return t.setNode(c, c.Node)
	case c.Move != nil:
		return t.moveNode(c, c.Move)
	case c.Drain != nil:
		return t.drainNode(c, c.Drain)
	case c.Remove != nil:
		return t.removeNode(c, c.Remove)
	case c.PowerOff != nil:
		return t.powerOff(c, c.PowerOff)
	case c.Policy != nil:
		return t.setPolicy(c, c.Policy.Name)
	case c.Brake != nil:
		return t.setBrake(c, c.Brake)
	case c.LiftBrake != nil:
		return t.liftBrake(c, c.LiftBrake)
	case c.SprintBudget != nil:
		return t.setSprintBudget(c, c.SprintBudget)
	case c.Sprint != nil:
		return t.grantSprint(c, c.Sprint)
	case c.EndSprint != nil:
		return t.endSprint(c, c.EndSprint)
	case c.Schedule != nil:
		return t.setSchedule(c, c.Schedule)
	case c.RemoveSchedule != nil:
		return t.removeSchedule(c, c.RemoveSchedule.Name)
	case c.Reincarnate != nil:
		return t.reincarnate(c, c.Reincarnate)
	case c.Token != nil:
		return t.setToken(c, *c.Token)
	case c.RevokeToken != nil:
		return t.revokeToken(c, c.RevokeToken.Name)
	case c.Server != nil:
		return t.setServer(c, *c.Server)
	case c.RemoveServer != nil:
		return t.removeServer(c, c.RemoveServer.Name)
	case c.AckAlarm != nil:
		return t.ackAlarm(c, c.AckAlarm.Name)
	case c.SetUncapped != nil:
		return t.setUncapped(c.SetUncapped)
	case c.StopJob != nil:
		return t.stopJob(c, c.StopJob)
	case c.DropTasks != nil:
		return t.dropTasks(c, c.DropTasks)
	case c.ContainerPolicy != nil:
		return t.setContainerPolicy(c, c.ContainerPolicy.Name)
	case c.DeflateJob != nil:
		return t.deflateJob(c, c.DeflateJob)
	case c.Deny != nil:
		return t.deny(c, *c.Deny)
	case c.SetLease != nil:
		return t.setLease(c, c.SetLease)
	case c.SkipBrake != nil:
		return t.skipBrake(c, c.SkipBrake)
	case c.RunJob != nil:
		return t.runJob(c, c.RunJob)
	case c.HoldScheduler != nil:
		return t.holdScheduler(c, c.HoldScheduler)
	case c.ReleaseScheduler != nil:
		return t.releaseScheduler(c, c.ReleaseScheduler)
	}
	return ErrUnknownCommand
}

// lead begins a leadership. The first one of all says which rules the group began
// under: a server that reads the whole log again must not take newer ones for granted.
func (t *tx) lead(c Command, x *Lead) {
	if t.Epoch == (lease.Epoch{}) {
		t.Rules = cmp.Or(c.Rules, t.newest())
	}
	t.Epoch = c.Epoch
	gap := max(x.Gap, time.Duration(min(max(0, c.At-t.Ticked), maxGap.Microseconds()))*time.Microsecond)
	t.passed(c.At, gap+untold)
	t.record(c, "leader "+x.Server+" begins epoch "+c.Epoch.String())
}

func (t *tx) found(c Command, f *Found) error {
	if len(t.Domains) > 0 {
		return ErrFounded
	}
	if len(f.Domains) > maxDomains {
		return fmt.Errorf("%d domains: %w", len(f.Domains), ErrFull)
	}
	plain := make([]budget.Domain, 0, len(f.Domains))
	for _, d := range f.Domains {
		if err := d.Validate(); err != nil {
			return err
		}
		plain = append(plain, d.Domain)
	}
	if _, err := budget.NewTree(plain); err != nil {
		return err
	}
	for _, d := range f.Domains {
		if d.Sprint != nil { // it starts empty, whatever the command says
			d.Sprint = d.Sprint.anew(nil)
		}
		put(t, t.Domains, d.Name, d.marked())
	}
	t.recordPower(c, fmt.Sprintf("cluster founded with %d domains", len(f.Domains)))
	t.ChangesFrom = t.Revision // the history of budgets is complete from here on
	return nil
}

// upgrade raises the rules by one: the leader has seen that every server knows them.
func (t *tx) upgrade(c Command, x *Upgrade) error {
	switch {
	case x.Rules <= t.Rules:
		return nil
	case x.Rules != t.Rules+1 || x.Rules > t.newest():
		return fmt.Errorf("from rules %d to %d: %w", t.Rules, x.Rules, ErrRules)
	}
	t.Rules = x.Rules
	if t.Rules == rulesRequests {
		t.ageRequests()
	}
	t.record(c, fmt.Sprintf("rules %d in force", x.Rules))
	return nil
}

// setPolicy names the policy that divides the watts from the next tick on.
func (t *tx) setPolicy(c Command, name string) error {
	p, err := budget.ParsePolicy(name)
	if err != nil {
		return err
	}
	t.Policy = string(p)
	t.recordPower(c, "policy "+string(p))
	return nil
}

// setContainerPolicy names the policy that divides containers from the next look at the jobs on.
func (t *tx) setContainerPolicy(c Command, name string) error {
	if !slices.Contains(ContainerPolicies(), name) {
		return fmt.Errorf("%w: %q is not one of %s", ErrContainerPolicy, name, strings.Join(ContainerPolicies(), ", "))
	}
	t.ContainerPolicy = name
	t.record(c, "container policy "+name)
	return nil
}

// tick applies evidence first (what was seen and read back may raise charges:
// that is the truth, and shows as shortfall), then grants, which must fit.
func (t *tx) tick(c Command, k *Tick) error {
	elapsed := min(max(0, k.Elapsed), maxElapsed)
	t.passed(c.At, elapsed)
	t.nodes = make([]nodeBefore, 0, len(k.Seen)+len(k.Drawn)+len(k.Acks)+len(k.Admit)+len(k.Targets)) // what most ticks change
	for _, x := range k.Seen {
		if err := t.see(c, x); err != nil {
			return err
		}
	}
	for _, x := range k.Drawn {
		if err := t.draw(c, x); err != nil {
			return err
		}
	}
	for _, a := range k.Acks {
		t.ack(a)
	}
	for _, x := range k.Lapsed {
		if err := t.lapse(c, x); err != nil {
			return err
		}
	}
	for _, x := range k.EndSprints {
		if err := t.endSprint(c, &x); err != nil {
			return err
		}
	}
	if err := t.grants(c, k); err != nil {
		return err
	}
	t.refill(elapsed)
	t.proven()
	t.Elapsed += elapsed
	t.leasesPassed()
	return nil
}

// untold is how much time may have passed since the newest tick that no entry tells of: until
// an entry between two ticks, and until a server that takes the lead has applied the tick
// that the leader before it committed with its last breath. The wall clocks tell more where
// they agree.
const untold = 5 * time.Second

// maxGap bounds how long the group is thought to have been without a leader: a wall clock
// that was set wrong must not make the debt of years.
const maxGap = 24 * time.Hour

// passed counts time that may have passed.
func (t *tx) passed(at int64, d time.Duration) {
	if t.Ticked != 0 { // before that there is nothing to count from
		t.Passed += min(max(0, d), maxGap)
	}
	t.Ticked = at
}

// maxElapsed bounds the time between two ticks of one leadership: a leader that
// stood still for longer hardly led.
const maxElapsed = time.Hour

// grants admits and gives targets; together they must fit.
func (t *tx) grants(c Command, k *Tick) error {
	if len(k.Admit)+len(k.Targets) == 0 {
		return nil
	}
	before := t.Totals()
	room := map[string]units.Power{}
	if len(k.Admit) > 0 {
		if err := t.held(); err != nil {
			return err
		}
		room = t.rooms(before)
	}
	for _, name := range k.Admit {
		if err := t.admit(c, name, room); err != nil {
			return err
		}
	}
	var tight map[string]Totals // looked at for each raise
	if short(before) {
		tight = before
	}
	for _, g := range k.Targets {
		if err := t.target(g, tight); err != nil {
			return err
		}
	}
	return t.fits(before)
}

func (t *tx) release(c Command, r *Release) error {
	n, ok := t.node(r.Node)
	if !ok {
		return fmt.Errorf("node %q: %w", r.Node, ErrUnknownNode)
	}
	if n.MachineID != r.MachineID {
		return fmt.Errorf("node %q: %w", r.Node, ErrIdentity)
	}
	if t.Brake.Active() {
		return fmt.Errorf("release of %q: %w", r.Node, ErrBraked) // it would draw all it can
	}
	// Against its target, not its ceiling: a release while a cut is on its way to
	// the node would keep the domain over its budget for good (P5).
	aimed := n
	aimed.Ceiling = n.Target
	t.putNode(aimed)
	before := t.Totals()
	n = t.forfeit(n)
	n.From, n.Unproven, n.Released = "", false, true
	t.putNode(n)
	if err := t.fits(before); err != nil {
		return err
	}
	t.recordPower(c, fmt.Sprintf("node %s released, charged its rated %v", n.Name, n.Rated))
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
