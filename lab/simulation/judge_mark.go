package simulation

//headroom:judge

import (
	"strings"

	"headroom/ledger"
)

// marks are the names of everything that a schedule counts, also at zero: a run that never took one proved nothing about it.
func marks() []string {
	return strings.Fields(`
	server_killed server_paused server_disk_frozen write_deadline_missed disk_slow unsynced_entries_lost node_killed node_paused
	node_suspended node_rebooted node_lost node_wedged node_powered_off node_disk_frozen limit_applied_late limit_stuck limit_overwritten
	watchdog_bit configuration_changed control_changed state_lost clock_off wall_clock_stepped identity_doubled identity_conflict site_dark
	disk_gone server_replaced write_failed cut_before_disk fail_safe_unsynced node_joined stranger_unheard message_cut message_lost
	message_doubled message_delayed message_overtakes link_cut_one_way partition leader_isolated heartbeat_echoed leader_elected
	leader_lost_majority entries_overwritten snapshot_restored entry_refused quorum_lost incarnation_begun reincarnated order_repeated
	order_known_already order_refused budget_cut budget_raised budget_forced budget_refused budget_temporary schedule_set budget_by_clock
	raise_by_clock clock_refused domain_set domain_removed node_set node_moved move_followed node_drained node_resumed node_removed node_off
	control_again lease_changed pending_full node_back_from_off policy_set charge_lapsed excess_told release_asked release_refused
	originals_restored grant_while_leaving job_accepted job_stopped job_stop_raised tasks_dropped job_floor_kept job_ended job_deflated
	job_deflation_raised sprint_granted sprint_refused sprint_run sprint_closed sprint_cancelled sprint_unmeasured sprint_overdrawn
	sprinter_off sprinter_left snapshot_in_debt brake_set brake_in_time brake_lifted lift_unseen lease_ran_out lease_ended_by_suspend
	lease_ended_by_brake grant_for_other_process grant_stale grant_too_late grant_under_brake`)
}

// keptPending is how many targets that may still reach a node the log keeps one by one.
const keptPending = 16

// mark counts what an applied entry was about.
func (j *judge) mark(c ledger.Command, b before) {
	for name, n := range j.state.Nodes {
		if len(n.Pending) == keptPending && len(b.nodes[name].Pending) < keptPending {
			j.w.hit("pending_full")
		}
	}
	for name, is := range map[string]bool{
		"schedule_set": c.Schedule != nil, "domain_set": c.Domain != nil, "domain_removed": c.RemoveDomain != nil, "node_set": c.Node != nil,
		"node_moved":   c.Move != nil && len(j.state.Nodes[c.Move.Node].From) > 0,
		"node_resumed": c.Drain != nil && c.Drain.Resume, "node_drained": c.Drain != nil && !c.Drain.Resume,
		"node_removed": c.Remove != nil, "node_off": c.PowerOff != nil, "policy_set": c.Policy != nil, "sprint_cancelled": c.EndSprint != nil,
		"brake_lifted": c.LiftBrake != nil, "lease_changed": c.SetLease != nil && len(b.nodes) > 0,
	} {
		if is {
			j.w.hit(name)
		}
	}
	if c.Budget != nil {
		j.markBudget(c.Budget, b)
	}
	if c.Tick != nil {
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
