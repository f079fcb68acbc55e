// Package faults runs Headroom's programs as a small cluster, injects random faults for a
// bounded time, and checks the guarantees from outside.
//
// The one idea: it shares no code with the programs that it checks, and imports no package
// of this project. It uses only the operators' command line, the power of the emulated
// machines (run/plant.json of each node), and the guarantees: power stays within the budget,
// a lease ends by itself, and an acknowledged change is kept and applied exactly once. So it
// also finds a rule that the ledger and its tests both misunderstand.
//
// Run must be the first process of its own process id and mount namespaces, which the
// sub-package command creates. Each host is a network namespace behind a bridge. Everything
// ends with the process. It never runs on a production node, and opens no port outside its
// namespaces.
package faults
