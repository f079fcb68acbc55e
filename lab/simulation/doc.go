// Package simulation runs a whole Headroom cluster inside one event loop, from one seed, in virtual
// time, and checks the guarantees after every event.
//
// The one idea: the decisions of a cluster are pure functions (ledger, budget, lease, capping's
// sprints), so the code that coordinators and nodes run can be driven by a loop that owns the
// clock, the network, the disks and the hardware. Only the environment of those functions is
// implemented here: a small consensus (terms, votes, a replicated log that loses unsynced entries);
// gossip of the brake; a network that delays, loses, duplicates, reorders and partitions; nodes
// whose hardware applies limits late; operators who change budgets, schedules, domains, moves,
// removals, sprints, the brake and the length of leases; and schedulers that drop tasks of jobs.
// The whole site may stop at once.
//
// The checks use what the nodes HOLD and USE, not what they report: the limit in a node's hardware
// at that moment, and its joules, which only the loop can read. After every event they compare: the
// sums of all domains with the current budget of the log (P1); every lease with the true time at
// which its heartbeat was sent (P2); every grant with what was appended after its heartbeat arrived
// and had committed (P3); every node's limit with its charge, and that charge with a second account
// kept from the entries alone and with every lease that may still arrive (P4); every cut with the
// nodes that it could have lowered, and every scheduled raise with the true clocks (P5); every
// sprint budget with the energy used (P8); every dropped task with the floor of its job (P9); and
// every lease with the brakes that its node has stored.
//
// Guarantees: the same seed gives the same events, byte for byte. A run has no goroutine, no clock
// and no map order. Each schedule of a run can be replayed alone by its own seed. Each schedule
// enables its own random subset of the faults (swarm testing; Groce et al., ISSTA 2012) and counts
// how often each occurred. Every occurrence of a fault has its own random stream, so a schedule can
// be run without it and is otherwise the same: this is how Shrink reduces a schedule that breaks a
// guarantee.
//
// A Sabotage breaks one rule of the design on purpose, to test that the checks detect it.
//
// Three things are not checked. A rebooted node may use up to its rating until its powerd has
// written the first limit (a domain's boot reserve covers that), so until then it counts with its
// charge. The lease of a stopped process ends in hardware only when the process continues, which is
// why charges outlive leases. If a node has not reported the energy of its sprint, nothing more
// than its whole escrow can be known to be used.
//
// The package is part of the lab: nothing that runs on a production node imports it.
// docs/robustness.md describes what it does and what it has found.
package simulation
