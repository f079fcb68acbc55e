// Package scale is `scheduler scale fit`: it determines how far a job should scale out, from measured
// speed-ups, from Spark event logs, or from MapReduce history files.
//
// The one idea: the logs that engines write anyway contain everything that the scaling models need.
// A run is one log: the number of its tasks and units, and the times of its launch, its stages and
// its tasks (Table 3.2 of Li's dissertation). Runs of one job at several degrees become speed-ups,
// package jobs/scaling fits them, and the advice is the number of containers beyond which power is
// wasted.
//
// Guarantees: a file is read strictly and within bounds, and errors have their position. The same
// files give the same bytes. The package writes nothing.
package scale
