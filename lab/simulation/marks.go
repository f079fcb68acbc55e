package simulation

import (
	"errors"

	"headroom/lease"
)

// marks are the names of everything a schedule counts. A run that never took
// one of them proved nothing about it, so all are reported, also at zero.
func marks() []string {
	names := []string{
		// Faults of processes and machines.
		"server_killed", "server_paused", "server_disk_frozen", "write_deadline_missed", "disk_slow", "unsynced_entries_lost",
		"node_killed", "node_paused", "node_suspended", "node_rebooted", "node_lost", "node_wedged", "node_powered_off", "node_disk_frozen",
		"limit_applied_late", "limit_stuck", "limit_overwritten", "watchdog_bit",
		"configuration_changed", "control_changed", "state_lost", "clock_off", "wall_clock_stepped", "identity_doubled", "identity_conflict",
		"site_dark", "disk_gone", "server_replaced", "write_failed", "cut_before_disk", "fail_safe_unsynced", "node_joined", "stranger_unheard",
		// Faults of the network.
		"message_cut", "message_lost", "message_doubled", "message_delayed", "message_overtakes",
		"link_cut_one_way", "partition", "leader_isolated", "heartbeat_echoed",
		// Leaderships and the log.
		"leader_elected", "leader_lost_majority", "entries_overwritten", "snapshot_restored", "entry_refused",
		"quorum_lost", "incarnation_begun", "reincarnated",
		// What operators do.
		"order_repeated", "order_known_already", "order_refused", "budget_cut", "budget_raised", "budget_forced", "budget_refused",
		"budget_temporary", "schedule_set", "budget_by_clock", "raise_by_clock", "clock_refused",
		"domain_set", "domain_removed", "node_set", "node_moved", "move_followed", "node_drained", "node_resumed",
		"node_removed", "node_off", "control_again", "lease_changed", "pending_full", "node_back_from_off", "policy_set", "charge_lapsed", "excess_told",
		"release_asked", "release_refused", "originals_restored", "grant_while_leaving",
		// Jobs.
		"job_accepted", "job_stopped", "job_stop_raised", "tasks_dropped", "job_floor_kept", "job_ended",
		"job_deflated", "job_deflation_raised",
		// Sprints.
		"sprint_granted", "sprint_refused", "sprint_run", "sprint_closed", "sprint_cancelled", "sprint_unmeasured", "sprint_overdrawn",
		"sprinter_off", "sprinter_left", "snapshot_in_debt",
		// The brake.
		"brake_set", "brake_in_time", "brake_lifted", "lift_unseen",
	}
	for _, why := range []lease.Ended{lease.RanOut, lease.Suspended, lease.Braked} {
		names = append(names, endMark(why))
	}
	for _, r := range refusals() {
		names = append(names, r.mark)
	}
	return names
}

// endMark counts a lease that ended.
func endMark(why lease.Ended) string {
	switch why {
	case lease.Suspended:
		return "lease_ended_by_suspend"
	case lease.Braked:
		return "lease_ended_by_brake"
	case lease.NeverHeld, lease.RanOut, lease.Dropped:
	}
	return "lease_ran_out"
}

type refusal struct {
	err  error
	mark string
}

func refusals() []refusal {
	return []refusal{
		{lease.ErrOtherProcess, "grant_for_other_process"},
		{lease.ErrStale, "grant_stale"},
		{lease.ErrRanOut, "grant_too_late"},
		{lease.ErrBraked, "grant_under_brake"},
	}
}

// refusalMark counts a grant that a node refused.
func refusalMark(err error) string {
	for _, r := range refusals() {
		if errors.Is(err, r.err) {
			return r.mark
		}
	}
	return "grant_refused_otherwise"
}
