// Package simulation runs a whole Headroom cluster inside one event loop, from
// one seed, in virtual time, and judges the promises at every event.
//
// The one idea: the decisions of a cluster are pure functions (ledger, budget,
// lease), so the very code that coordinators and nodes run can be driven by a
// loop that owns the clock, the network, the disks and the hardware. Nothing
// is re-implemented here but what surrounds those functions: a small consensus
// (terms, votes, a replicated log that loses what was not yet durable), a
// network that delays, loses, doubles, reorders and cuts, nodes whose hardware
// obeys late, and an operator who cuts and raises budgets.
//
// What is judged is what the nodes HOLD, not what they report: the limit that
// stands in a node's hardware at that moment, known to the loop alone. After
// every single event the sums of all domains are held against the budget that
// the log has in force (P1), every lease against the true time at which its
// heartbeat was sent (P2), every grant against what was appended after its
// heartbeat arrived and had committed (P3), and every node's limit against
// what the log charges it (P4).
//
// Guarantees: the same seed gives the same events, byte for byte; there is no
// goroutine, no clock and no map order in a run; each schedule of a run can be
// replayed alone by its own seed. Each schedule enables its own random subset
// of the faults (swarm testing; Groce et al., ISSTA 2012) and counts how often
// each was hit.
//
// Two things are outside the judgement, and said so: a rebooted node draws up
// to its rated watts until its powerd has written the first limit (a domain's
// boot reserve is for that), so until then it counts with its charge; and the
// lease of a process that is stopped ends on hardware when it runs again, which
// is why charges outlive leases.
//
// The package is part of the lab: nothing that runs on a production node
// imports it.
package simulation
