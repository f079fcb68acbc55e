package simulation

//headroom:judge

import "headroom/ledger"

// keptPending is how many targets that may still reach a node the log keeps one by one.
const keptPending = 16

// mark counts what an applied entry was about.
func (j *judge) mark(c ledger.Command, b before) {
	hit := j.w.hit
	for name, n := range j.state.Nodes {
		if len(n.Pending) == keptPending && len(b.nodes[name].Pending) < keptPending {
			hit("pending_full")
		}
	}
	switch {
	case c.Budget != nil:
		j.markBudget(c.Budget, b)
	case c.Schedule != nil:
		hit("schedule_set")
	case c.Domain != nil:
		hit("domain_set")
	case c.RemoveDomain != nil:
		hit("domain_removed")
	case c.Node != nil:
		hit("node_set")
	case c.Move != nil && len(j.state.Nodes[c.Move.Node].From) > 0:
		hit("node_moved")
	case c.Drain != nil && c.Drain.Resume:
		hit("node_resumed")
	case c.Drain != nil:
		hit("node_drained")
	case c.Remove != nil:
		hit("node_removed")
	case c.PowerOff != nil:
		hit("node_off")
	case c.Policy != nil:
		hit("policy_set")
	case c.EndSprint != nil:
		hit("sprint_cancelled")
	case c.LiftBrake != nil:
		hit("brake_lifted")
	case c.SetLease != nil && len(b.nodes) > 0:
		hit("lease_changed")
	case c.Tick != nil:
		j.markTick(c.Tick, b)
	}
}

func (j *judge) markTick(t *ledger.Tick, b before) {
	for _, x := range t.Seen {
		j.changed = j.w.now
		if b.nodes[x.Node].Off != "" {
			j.w.hit("node_back_from_off")
		}
	}
	for _, x := range t.Acks {
		if j.state.Nodes[x.Node].Excess > 0 {
			j.w.hit("excess_told")
		}
	}
	for range t.Lapsed {
		j.w.hit("charge_lapsed")
	}
}

func (j *judge) markBudget(x *ledger.SetBudget, b before) {
	j.changed = j.w.now
	now := j.state.Domains[x.Domain]
	switch was := b.domains[x.Domain].Budget; {
	case now.Budget > was:
		j.w.hit("budget_raised")
	case j.state.Totals()[x.Domain].Floor > now.Budget:
		j.w.hit("budget_forced")
	default:
		j.w.hit("budget_cut")
	}
	if x.Until > 0 {
		j.w.hit("budget_temporary")
	}
	j.w.tracef("budget of %s is %v", x.Domain, now.Budget)
}
