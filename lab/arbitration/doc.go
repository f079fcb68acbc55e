// Package arbitration measures the arbiter on simulated machines against other ways to decide: `powerlab arbitrate`.
//
// The one idea: every way to decide runs the same jobs on the same machines, under the same budget, with the same
// joules for sprints and at the same moments. What differs is who is served, who sprints and who gives up tasks. Ours
// is arbiter.Arbiter and arbiter.Movers as the coordinators run them.
//
// A comparison means something only at equal cost. So the arbiter takes part as a family, over prices of quality and
// reserves of joules. Against each other way stands the member that gives up no more tasks and takes no more joules.
// It is chosen, like the sprint timers of the others, on seeds that are not judged.
//
// Guarantees: the same seeds give the same figures, whatever the number of processors; runs are bounded. The package
// reads the file that it is given, and writes only into the folder of --out. It decides nothing that production uses.
package arbitration
