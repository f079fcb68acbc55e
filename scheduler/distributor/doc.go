// Package distributor sends the tasks of jobs to the masters of groups of workers (Li 2019, chapter 4).
//
// The one idea: a distributor knows groups, never workers. The pure pigeon.Distributor splits the tasks of a job over
// the groups. This package keeps one stream to each master, sends what the masters' windows permit, and returns the
// result of each task to its submitter.
//
// Guarantees:
//   - each task of a job has exactly one result, or its job was cancelled;
//   - an attempt is sent to one group only: on a new stream, and to a standby that has become active, it is sent
//     again as the same attempt, and a task that moves to another group is a new attempt;
//   - a duplicate result, or one of an attempt that was not sent, is ignored;
//   - the waiting tasks are bounded: a job that exceeds the limit is refused as a whole;
//   - a group without an active master for too long loses its tasks to other groups.
//
// It never retries a failed task, never stores anything on disk, and does not know what a task does.
package distributor
