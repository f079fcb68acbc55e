// Package master is the master of a group of workers: it takes tasks from distributors and runs them on its workers
// (Li 2019, chapter 4). What runs where is decided by package pigeon; this package is its edge.
//
// The one idea: one goroutine owns the group, and the master keeps no state that its workers and distributors could not restore.
// Workers report at the beginning of each stream what they run, and distributors hand over again what they wait for. So a standby,
// or the master itself after a crash, is rebuilt from them within seconds.
//
// A group follows the power tree: its name is a domain, and once a second the master asks the coordinators for the caps of the nodes
// below it. A worker on another node is refused. A lower cap leaves a node fewer slots, by the rule of package dispatch: no task
// is killed for it, and fewer low-priority ones begin. Without news the caps last known stay, and the state of the group reports it.
//
// Of the two masters of a group one is active and stays active. The other one asks it four times a second, and becomes active once
// it has been silent for two seconds. When a partition between them makes both active, nothing is lost and nothing counts
// twice: a worker has one stream, so each slot is given by one master; a distributor hands an attempt to one master at a time, and
// one that was handed over before is adopted by the next master or answered as lost, but never begun there; so an attempt runs
// once, of several attempts of a task the first keeps its output (package local), and the distributor counts one result.
// When they hear of each other again, the one that was active for longer stays so, and the other one sends its workers there.
//
// Guarantees: a task that was accepted gets a result or is reported lost, provided that its distributor comes back within a minute.
// Either is repeated until the distributor acknowledges it. An attempt is begun once. Nothing waits without bound: tasks beyond twice
// the window are refused, and a peer that does not read is cut off. Each peer shows a certificate: workers run tasks as their own node,
// and distributors act for themselves only.
//
// It never writes a task to disk, never resolves a name while it dispatches a task, and never decides whether a failed task runs
// again: its distributor does.
package master
