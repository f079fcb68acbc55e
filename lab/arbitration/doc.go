// Package arbitration compares the arbiter with other policies on simulated machines: `powerlab
// arbitrate`.
//
// The one idea: every policy runs the same jobs on the same machines, under the same budget, with
// the same sprint joules and decisions at the same times. Only three things differ: which jobs are
// served, which sprint, and which drop tasks. Ours is arbiter.Arbiter and arbiter.Movers, as the
// coordinators run them.
//
// A comparison is meaningful only at equal cost. Therefore the arbiter takes part as a family, over
// prices of quality and reserves of joules. Each other policy is compared with the member that
// drops no more tasks and uses no more joules. Members, like the sprint timers of the others, are
// chosen on seeds that are not judged.
//
// Guarantees: the same seeds give the same results, whatever the number of CPUs, and runs are
// bounded. The package reads only the given file, and writes only to the folder of --out.
// Production code does not use it.
package arbitration
