// Package coordinator is the coordinator program: one server of the cluster that holds the
// power budget. It connects the parts and serves the RPCs of nodes, operators, schedulers and
// the other servers.
//
// The one idea: only the leader decides, in one loop (package leading), and every decision is
// a pure function of package ledger over the committed state and the reports received. Followers
// decide nothing: they keep their streams open and name the leader. Only the brake needs no
// leader (package brakes).
//
// The path of a watt: Exchange stream (exchange.go, package streams) -> leading.Loop ->
// ledger.Decide -> consensus -> statemachine -> lease on the stream.
//
// Every request goes to the loop through requests, which converts the result to an answer or
// a refusal. Services show the data of leading.Known, through packages view and alarms. The
// ledger lists the servers of the cluster, and package members changes raft's list to match;
// package recovery starts a new cluster from the state of one stopped server.
//
// What it never does: act on a report without the log, grant from a state that is not
// committed, or start a program.
package coordinator
