// Package cab repeats the experiments of CAB (Nabavinejad et al., "QoR-Aware Power Capping for
// Approximate Big Data Processing"): three sets of three MapReduce jobs on one server of 28
// containers, under fixed or stepping power caps, with the quality floors of Table I.
//
// The one idea: the decisions are made by the coordinators' own job loop, arbiter.Step, on a
// simulated server. The server is the emulated plant, whose speed follows from its cap. Jobs are
// tasks with random times, in containers that are assigned as by YARN's fair scheduler, within the
// shares that the loop sets. Every variant, from the capped baseline to CAB as printed, is a
// setting of that loop, on the same tasks.
//
// Guarantees: the same seed gives the same numbers. There is one set-up for all targets, and each
// target is judged by the rule written next to it. There is no clock, no sleep and no network.
package cab
