// Package scheduler is the body of the scheduler: it takes jobs, keeps them in
// one buffer per priority class, hands their tasks to the workers of the nodes,
// and uses fewer slots where a node's cap is low.
//
// The one idea: what must not be lost is never kept here. A job is in the
// coordinators' log before it is acknowledged; a finished task is a file in the
// job's own output folder; what runs is known by the workers. So a scheduler may
// be killed at any moment and started again, here or elsewhere, and goes on.
//
// The decisions are pure (Core: events and the time go in, actions come out); the
// loop gathers events, lets the core decide and carries the actions out. The
// rules are those of DIAS: K buffers, first come first served inside a class, the
// head of the highest non-empty buffer next, nothing evicted. Free slots go to the
// running jobs by class and arrival, up to each job's own bound; a further job
// starts when they leave slots unused.
//
// Guarantees:
//   - an acknowledged job runs to an end (done, failed, cancelled), and its end is
//     committed;
//   - a job never ends as done on fewer map tasks than its min_tasks; the tasks
//     given up are recorded durably, each once, before anything follows from it;
//   - no task is started on a node beyond the slots that its cap leaves; tasks
//     that run already are not killed for a lower cap;
//   - a result is made of whole outputs of this very job, each task's once;
//   - a directive older than the newest one carried out is refused;
//   - a refused job leaves nothing behind.
//
// It never evicts a running job, never starts anything on a node by itself
// (workers pull), and knows nothing of how a node holds its cap.
package scheduler
