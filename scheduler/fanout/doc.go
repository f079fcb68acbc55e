// Package fanout runs jobs whose tasks the masters of groups dispatch (dispatch: pigeon in a job file).
//
// The one idea: a run is one goroutine that owns what is known of its tasks. Tasks go out through a distributor, results
// come back; what counts is decided here: which tasks are tried again, which are given up, and when the job is over.
//
// Guarantees: a task counts once; a task that fails is tried again up to the job's max_attempts; a task is given up only
// after the record of it is on the disk; a run never ends well on fewer tasks than the job's floor; attempts of one task have
// different numbers in one scheduler process, and so have those of different processes.
//
// It never chooses a worker, and copies no task: where tasks run is decided by masters.
package fanout
