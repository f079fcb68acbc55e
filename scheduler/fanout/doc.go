// Package fanout runs jobs whose tasks the masters of groups dispatch (dispatch: pigeon in a job file).
//
// The one idea: a run is one goroutine that owns the state of its tasks. Tasks are sent through a distributor, and
// results come back. The run decides what counts: which tasks are retried, which are dropped, and when the job is
// over.
//
// Guarantees:
//   - a task counts once;
//   - a failed task is retried up to the job's max_attempts;
//   - a task is dropped only after its record is on disk;
//   - a run never succeeds with fewer tasks than the job's floor;
//   - attempts of one task have different numbers in one scheduler process, and so have those of different processes.
//
// It never chooses a worker, and copies no task: masters decide where tasks run.
package fanout
