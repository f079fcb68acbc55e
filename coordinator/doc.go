// Package coordinator is the body of the coordinator program: one server of the
// group that holds the budget. It wires the parts together and serves the RPCs of
// nodes, operators, schedulers and the other servers.
//
// The one idea: only the leader decides, in one loop (package leading), and every
// decision is a pure function of package ledger over the committed state and what was
// heard. Followers take no decisions: they keep their streams open and say who
// leads. The brake alone waits for no leader (package brakes).
//
// A watt's way: Exchange stream (exchange.go, package streams) -> leading.Loop ->
// ledger.Decide -> consensus -> statemachine -> lease on the stream.
//
// Every request goes to the loop through requests, which turns what comes of it into
// answers and refusals. Services show what leading.Known knows, through packages view
// and alarms. Which servers belong to the group stands in the ledger too, and
// package members makes it so; package recovery begins a group anew on one stopped server.
//
// What it never does: act on a report without the log, grant from a state that
// is not committed, or start a program.
package coordinator
