// Package yarn is the engine that runs jobs on Hadoop: it watches the MapReduce
// applications of YARN's queues, tells the coordinators of them, and carries out
// what the coordinators decide: how much of the cluster each queue may hold, and
// which map tasks may be dropped.
//
// The one idea: Hadoop runs the jobs, and would run them the same without us. The
// engine looks (REST of the ResourceManager, and of the application masters
// through its proxy), keeps the last thing it knew, and changes two things only:
// the maximum of the named queues, and the answer that the hooks get.
//
// Guarantees:
//   - what a hook may do is committed by the coordinators before the hook hears of it;
//   - a task that was told to run is told so ever after; a dropped one never is;
//   - of the operator's allocation file only maxResources of the named queues is
//     touched; every other byte stays, and the operator's own values come back
//     when the engine lets go, after a kill too;
//   - a job's end says how many tasks were really done: dropped ones do not count;
//   - when Hadoop does not answer nothing fails: the last state stays, and is
//     said to be old.
//
// It never starts, moves or kills an application, and never answers for a job
// that it does not know.
package yarn
