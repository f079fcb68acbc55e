package simulation

import (
	"errors"

	"headroom/lease"
)

// marks are the names of everything a schedule counts. A run that never took
// one of them proved nothing about it, so all are reported, also at zero.
func marks() []string {
	names := []string{
		"message_lost", "message_doubled", "message_delayed", "message_overtakes",
		"clock_off", "disk_slow", "limit_applied_late", "limit_stuck", "configuration_changed", "state_lost",
		"leader_elected", "leader_lost_majority", "unsynced_entries_lost", "entries_overwritten", "snapshot_restored",
		"entry_refused", "budget_cut", "budget_raised", "budget_forced", "budget_refused", "release_refused", "originals_restored", "grant_while_leaving", "order_repeated",
	}
	for _, f := range disruptions() {
		names = append(names, f.name)
	}
	for why := lease.RanOut; why <= lease.Suspended; why++ {
		names = append(names, endMark(why))
	}
	for _, r := range refusals() {
		names = append(names, r.mark)
	}
	return names
}

// endMark counts a lease that ended.
func endMark(why lease.Ended) string {
	if why == lease.Suspended {
		return "lease_ended_by_suspend"
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
