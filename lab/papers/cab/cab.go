// Package cab repeats the experiments of CAB (Nabavinejad et al., "QoR-Aware Power
// Capping for Approximate Big Data Processing"): three sets of three MapReduce jobs on
// one server of 28 containers, under power caps that are fixed or step down, with the
// quality floors of Table I.
//
// The one idea: what decides is the very job loop of the coordinators, arbiter.Step;
// what it decides on is a simulation. The server is the emulated plant, and speed follows
// from its cap; jobs are tasks with times drawn at random, in containers that are handed
// out as YARN's fair scheduler does, within the shares that the loop sets. Every variant,
// from the capped baseline to CAB as printed, is a setting of that loop, on the same
// tasks.
//
// Guarantees: the same seed gives the same numbers; one set-up for all targets; a target
// is met by the rule written beside it, whatever comes out. There is no clock, no
// sleep and no network.
package cab
