// Package torment is the outside judge: it runs Headroom's programs as a small cluster,
// breaks it at random for a bounded time, and judges what it sees from outside.
//
// The one idea: it shares no code with what it judges. It imports no package of this
// project. It knows the operators' command line, what the emulated machines draw by
// their own physics (run/plant.json of each node), and the promises: never over budget,
// a lease ends by itself, an acknowledged change is kept and carried out once. A rule
// that the ledger and its tests both misunderstand is therefore still found here.
//
// Run needs a process id namespace and a mount namespace of its own, in which it is the
// first process; the sub-package command sees to that. Each host is a network
// namespace behind a bridge, and everything ends with the process.
// It never runs on a production node, and opens no port outside its namespaces.
package torment
