// Package leading is the work of a leader: one loop that takes heartbeats, operators' changes
// and timers, and proposes one command after the other to the log.
//
// The one idea: a single goroutine decides. Every decision about power is a function of
// package ledger over the committed state and the reports received (ledger/leader); every
// decision about jobs is one of package arbitration. So no two decisions are made on the same
// state, and a lease is sent only after an entry that was appended after the heartbeat's
// arrival has committed (promise P3). What the leader has beside the log (Known) is in memory
// only: a new leader starts without it.
//
// A loop that is stuck transfers leadership, and then ends the process (watchdog.go).
//
// What it never does: act on a report without the log, grant from a state that is not
// committed, or delay a tick by more than one commit about jobs.
package leading
