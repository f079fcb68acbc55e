// Package coordinator is the body of the coordinator program: one server of the
// group that holds the budget, and the operators' command line.
//
// The one idea: there is one desk. While this server leads, a single goroutine
// (desk) takes in heartbeats, operators' changes and the clock, and hands one
// command after the other to the log; every decision is a pure function of
// package ledger over the committed state and what was heard. So no two
// decisions are ever made on the same state, and a lease goes out only after an
// entry that was appended after the heartbeat's arrival has committed (promise
// P3). Followers take no decisions: they keep their streams open and say who
// leads.
//
// The brake alone takes no desk: any server signs one and gossip brings it to every
// node (brake.go); the desk commits it before it grants anything more, and lifts it.
//
// A watt's way through this package: Exchange stream (exchange.go) -> desk ->
// ledger.Decide -> consensus -> ledger.Apply -> lease on the stream.
//
// Which servers belong to the group stands in the ledger too, and the leader makes
// it so (member.go); a group begins anew from a snapshot or a survivor's log on one
// stopped server (recover.go).
//
// What it never does: act on a report without the log, grant from a state that
// is not committed, or start a program.
package coordinator
