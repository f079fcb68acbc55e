// Package scaling is `powerlab scale`: how far a job should scale out, from measured speed-ups, from the event logs of Spark, or
// from the history files of MapReduce; `powerlab scale run` makes such logs on a real engine, and judges what the models predict.
//
// The one idea: logs that the engines write anyway have everything that the scaling models need. A run is one log: how
// many tasks and units it had, and what its launch, its stages and its tasks took (Table 3.2 of Li's dissertation). Runs of one job at
// several degrees become speed-ups, package jobs/scaling fits them, and the advice is the number of containers beyond which the
// job's watts are wasted.
//
// Guarantees: a file is read strictly and within bounds, mistakes come with their place; the same files give the same bytes. Only
// real runs write, into the folder of --out, and no process of theirs outlives them.
package scaling
