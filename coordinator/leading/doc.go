// Package leading is what a server does while it leads: one loop that takes in heartbeats,
// operators' changes and the clock, and hands one command after the other to the log.
//
// The one idea: a single goroutine decides. Every decision about watts is a function of
// package ledger over the committed state and what was heard (ledger/leader); every decision
// about jobs is one of package arbitration. So no two decisions are made on the same
// state, and a lease goes out only after an entry that was appended after the heartbeat's
// arrival has committed (promise P3). What the leader knows beside the log (Known) is in its
// memory alone: the next leader begins anew.
//
// A loop that stands still gives up the lead and ends the process (watchdog.go).
//
// What it never does: act on a report without the log, grant from a state that is not
// committed, or let commits about jobs hold up a tick by more than one of them.
package leading
