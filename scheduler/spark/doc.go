// Package spark is the engine that runs jobs on a Spark cluster: it starts each run of a
// job as a driver of its own (spark-submit, client mode), tells the hook inside of it
// which part of its input to drop, hears its progress from there, and ends it on command.
//
// The one idea: a driver belongs to its supervisor, not to the scheduler. The supervisor
// (Drive) is a small process that starts the driver, waits for it and writes down, durably
// and by rename, how it ended. So a scheduler may be killed and started again: it finds
// its runs by their folders, alive or with their ends written.
//
// Guarantees:
//   - a run that was started has one end, told once by each scheduler that knows it;
//   - a kill asks the driver to end (SIGTERM) and ends it after kill_after (SIGKILL) with
//     everything that it has started on its machine, whoever else has died meanwhile;
//   - a hook learns the drop ratio that its run has, and nothing of other runs: it must
//     show the run's token;
//   - the drop ratio of a run only rises, and never beyond what the job's floor leaves;
//   - a driver whose hook is silent goes on: Spark then computes everything.
//
// Supervisors outlive Run's end on purpose. Whoever wants a driver's end kills it first.
package spark
