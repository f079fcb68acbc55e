// Package simulation runs a whole Headroom cluster inside one event loop, from
// one seed, in virtual time, and judges the promises at every event.
//
// The one idea: the decisions of a cluster are pure functions (ledger, budget,
// lease, capping's sprints), so the very code that coordinators and nodes run can
// be driven by a loop that owns the clock, the network, the disks and the
// hardware. Nothing is re-implemented here but what surrounds those functions: a
// small consensus (terms, votes, a replicated log that loses what was not yet
// durable), gossip of the brake, a network that delays, loses, doubles, reorders
// and cuts, nodes whose hardware obeys late, and operators who change everything:
// budgets, schedules, domains, moves, removals, sprints, the brake, the length of
// leases; and schedulers that drop tasks of jobs. The whole site may go dark.
//
// What is judged is what the nodes HOLD and DRAW, not what they report: the limit
// that stands in a node's hardware at that moment, and its joules, known to the
// loop alone. After every single event the sums of all domains are held against
// the budget that the log has in force (P1), every lease against the true time at
// which its heartbeat was sent (P2), every grant against what was appended after
// its heartbeat arrived and had committed (P3), every node's limit against what
// the log charges it, and that charge against a second account kept from the
// entries alone and against every lease that may still arrive (P4), every cut against whom it could have lowered and every raise
// by the clock against the true clocks (P5), every pot of joules against what was
// drawn (P8), every dropped task against the floor of its job (P9), and every lease
// against the brakes that its node has stored.
//
// Guarantees: the same seed gives the same events, byte for byte; there is no
// goroutine, no clock and no map order in a run; each schedule of a run can be
// replayed alone by its own seed. Each schedule enables its own random subset
// of the faults (swarm testing; Groce et al., ISSTA 2012) and counts how often
// each was hit. Every occurrence of a fault has chances of its own, so that a
// schedule can be run without it and is otherwise the same: that is how Shrink
// makes a schedule that breaks a promise small.
//
// A Sabotage breaks one rule of the design on purpose. It is what tells that the
// judges would see it.
//
// Three things are outside the judgement, and said so: a rebooted node draws up
// to its rated watts until its powerd has written the first limit (a domain's
// boot reserve is for that), so until then it counts with its charge; the lease of
// a process that is stopped ends on hardware when it runs again, which is why
// charges outlive leases; and of a node that has not said what it drew of its
// sprint nobody can know more than that its whole escrow is spent.
//
// The package is part of the lab: nothing that runs on a production node
// imports it. docs/robustness.md tells what it does and what it has found.
package simulation
