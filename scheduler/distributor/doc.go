// Package distributor hands the tasks of jobs to the masters of groups of workers (Li 2019, chapter 4).
//
// The one idea: a distributor knows groups, never workers. The pure pigeon.Distributor splits the tasks of
// a job over the groups; this package keeps one stream to each master, hands over what the masters' windows
// permit, and gives each task's result to whoever submitted it.
//
// Guarantees:
//   - each task of a job has exactly one result, or its job was cancelled;
//   - an attempt is handed to one group only: on a new stream, and to a standby that has become active, it is
//     handed over again as the same attempt, and a task that moves to another group is a new attempt;
//   - a result that comes twice, or of an attempt that was not handed over, counts for nothing;
//   - the tasks that wait are bounded: a job that does not fit is refused as a whole;
//   - a group that is without an active master for too long gives its tasks to other groups.
//
// It never retries a task that has failed, never keeps anything on a disk, and knows nothing of what a task does.
package distributor
