// Package scheduler is the body of the scheduler: it takes jobs, keeps them in
// one buffer per priority class, hands their tasks to the workers of the nodes,
// and uses fewer slots where a node's cap is low.
//
// The one idea: what must not be lost is never kept here. A job is in the
// coordinators' log before it is acknowledged; a finished task is a file in the
// job's own output folder; what runs is known by the workers. So a scheduler may
// be killed at any moment and started again, here or elsewhere, and goes on.
//
// The decisions are those of package dispatch (events and the time go in, actions come
// out); the loop gathers events, lets its core decide and carries the actions out. When jobs
// begin is decided by package buffers, by one of its disciplines: "shared" leaves it
// to the core, which hands free slots to the running jobs by class and arrival, up to
// each job's own bound, and begins a further job when they leave slots unused; the
// others are those of DIAS and run so many jobs at a time. Jobs run as tasks on the
// workers, or as a whole on an engine (scheduler/spark).
//
// Guarantees:
//   - an acknowledged job runs to an end (done, failed, cancelled), and its end is
//     committed;
//   - a job never ends as done on fewer map tasks than its min_tasks; the tasks
//     given up are recorded durably, each once, before anything follows from it;
//   - no task of a run starts before the run's drop ratio is committed; which tasks
//     it drops follows from the job's seed alone, in every run and after every restart;
//   - a running job is killed for another under the discipline "p" alone; it goes
//     back to the head of its buffer, and nothing of the killed run counts;
//   - what a run needs to go on (its number, when it was dispatched, drop ratio, seed)
//     is durable before anything follows from it, and so is that the scheduler is drained;
//   - no task is started on a node beyond the slots that its cap leaves; tasks
//     that run already are not killed for a lower cap;
//   - a result is made of whole outputs of one run of this very job, each task's once;
//   - a directive older than the newest one carried out is refused;
//   - a refused job leaves nothing behind.
//
// It commits no sprint (it only says that one is due), never starts anything on a node
// by itself (workers pull; drivers of Spark run beside it), and knows nothing of how a
// node holds its cap.
package scheduler
