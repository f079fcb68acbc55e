// Package dispatch decides which task of which job runs on which node, and when: jobs,
// workers, results and caps go in as events with their time, actions come out.
//
// The one idea: a Core holds everything that the decisions need, and nothing that a
// restart cannot give back. When jobs begin is decided by package buffers, by one of its
// disciplines; the core hands the slots that the nodes' caps leave to the running jobs,
// by class and arrival, and follows each task until it is done or given up.
//
// A job with a deadline or an error bound has its tasks chosen by package speculation, which
// also starts copies of stragglers; it ends once the promise is met.
//
// Guarantees: each task counts once, whatever is lost, copied, repeated or restarted; a job
// never ends as done on fewer map tasks than its MinTasks; a copy never runs on a node with a
// lower cap than the original's; no task of a run starts before the
// run's drop ratio is decided, and which tasks it drops follows from the seed alone; no
// task starts on a node beyond the slots that its cap leaves, and none is killed for a cap.
// What must survive a restart comes out as an action before anything follows from it.
//
// It never reads a clock, starts anything or writes anything: the scheduler carries the
// actions out.
package dispatch
