// Package yarn is the engine for jobs on Hadoop. It monitors the MapReduce and
// Spark applications of YARN's queues, reports them to the coordinators, and
// carries out their decisions: how much of the cluster each queue may hold, and
// which map tasks may be dropped.
//
// The one idea: Hadoop runs the jobs, and would run them the same way without the
// engine. The engine reads (REST of the ResourceManager, and of the application
// masters through its proxy), keeps the last known state, and changes only two
// things: the maximum of the named queues, and the answers to the hooks.
//
// Guarantees:
//   - the coordinators commit what a hook may do before the hook learns it;
//   - a task that was told to run is never dropped; a dropped one never runs;
//   - in the capacity scheduler's configuration only maximum-capacity of the named
//     queues changes; the operator's own values are restored when the engine stops,
//     even after a kill;
//   - a job's end states how many tasks were really done: dropped ones do not count;
//   - when Hadoop is unreachable nothing fails: the last state stays, and its age
//     is reported.
//
// It never starts, moves or kills an application, and never answers for a job
// that it does not know.
package yarn
