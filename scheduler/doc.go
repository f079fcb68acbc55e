// Package scheduler implements the scheduler: it accepts jobs, keeps them in one
// buffer per priority class, assigns their tasks to the workers of the nodes, and
// uses fewer slots on nodes with a low cap.
//
// The one idea: no essential state is only here. A job is in the coordinators' log
// before it is acknowledged; a finished task is a file in the job's own output
// folder; workers know what runs. So a scheduler may be killed at any moment and
// restarted, here or elsewhere, and continues.
//
// Package dispatch makes the decisions (events and the time in, actions out). The
// loop gathers events, lets its core decide and carries the actions out. Package
// buffers decides when jobs start, by one of its disciplines. "shared" leaves it to
// the core, which assigns free slots to the running jobs by class and arrival, up to
// each job's own bound, and starts another job when they leave slots unused. The
// others are those of DIAS and run a fixed number of jobs at a time. Jobs run as
// tasks on the workers, or as a whole on an engine (scheduler/spark).
//
// Guarantees:
//   - an acknowledged job runs to an end (done, failed, cancelled), and its end is
//     committed;
//   - a job never ends as done with fewer map tasks than its min_tasks; dropped
//     tasks are recorded durably, each once, before they have any effect;
//   - no task of a run starts before the run's drop ratio is committed; the job's
//     seed alone determines which tasks it drops, in every run and after every restart;
//   - a running job is preempted by another only under the discipline "p"; it goes
//     back to the head of its buffer, and nothing of the killed run counts;
//   - what a run needs to continue (its number, dispatch time, drop ratio, seed,
//     dropped tasks) is in the log before it has any effect;
//   - no file of a user is touched on the loop, and one folder that hangs delays only
//     its own jobs; a start survives any job in the log and anything in its folder;
//   - no task starts on a node beyond the slots that its cap allows; running tasks
//     are not killed for a lower cap;
//   - a result consists of complete outputs of one run of this job, each task's once;
//   - a directive older than the newest one carried out is refused;
//   - a refused job leaves no files behind.
//
// It commits no sprint (it only reports that one is due), starts nothing on a node
// itself (workers pull; drivers of Spark run beside it), and does not know how a
// node enforces its cap.
package scheduler
