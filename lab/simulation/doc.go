// Package simulation runs a whole Headroom cluster inside one event loop, from one seed, in virtual
// time, and checks the guarantees after every event.
//
// The one idea: the decisions of a cluster are pure functions, so the code that coordinators and
// nodes run can be driven by a loop that owns the clock, the network, the disks and the hardware.
// The checks use what the nodes HOLD and USE, which only the loop can read, not what they report.
//
// Guarantees: the same seed gives the same events, byte for byte. A run has no goroutine, no clock
// and no map order. Each schedule of a run can be replayed alone by its own seed. Every occurrence
// of a fault has its own random stream, so a schedule can be run without it and is otherwise the
// same: this is how a schedule that breaks a guarantee is reduced.
//
// A breach breaks one rule of the design on purpose, to test that the checks detect it.
//
// The package is part of the lab: nothing that runs on a production node imports it.
// docs/robustness.md describes the faults, the checks, what is not checked, and what was found.
package simulation
