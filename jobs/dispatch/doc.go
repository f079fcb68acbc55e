// Package dispatch decides which task of which job runs on which node, and when: jobs, workers, results and caps are
// events with their time, and actions are the result.
//
// The one idea: a Core holds everything that the decisions need, and nothing that a restart cannot restore. Package
// buffers decides when jobs start, by one of its disciplines. The core assigns the slots that the nodes' caps leave
// to the running jobs, by class and arrival, and monitors each task until it is done or dropped.
//
// Package speculation chooses the tasks of a job with a deadline or an error bound, and starts copies of stragglers;
// such a job ends once it has what it promised.
//
// Guarantees:
//   - each task counts once, whatever is lost, copied, repeated or restarted;
//   - a job never ends as done with fewer map tasks than its MinTasks;
//   - a copy never runs on a node with a lower cap than the original's;
//   - no task of a run starts before the run's drop ratio is decided, and the seed alone determines which tasks it
//     drops;
//   - no task starts on a node beyond the slots that its cap leaves, and none is killed for a cap.
//
// What must survive a restart is returned as an action before it has any effect.
//
// It never reads a clock, starts anything or writes anything: the scheduler carries the actions out.
package dispatch
