// Package local is the engine that runs tasks as ordinary processes: the worker of one node.
//
// The one idea: the worker pulls. It opens one stream to the scheduler, reports what it still runs, receives tasks
// and reports how they end; the scheduler never connects to a node. If the masters of a group assign the tasks, it
// moves to the next one when one is lost or on standby. A worker knows neither caps nor power: it gets fewer tasks if
// the cap is low.
//
// Guarantees:
//   - a task's output appears under its final name only when the task succeeded and the bytes are on disk, complete,
//     and once: of several successful attempts the output of the first stays;
//   - at most as many tasks as slots run at once;
//   - a broken stream or a restarted scheduler ends no task;
//   - a result is repeated until it has certainly arrived;
//   - no process of a task outlives its attempt, in whatever session it is: each attempt has a cgroup
//     (internal/cgroup), made where the task is started. The attempts end with their worker; if the worker itself is
//     killed, the runner ends them, and without a runner the kernel ends their first processes and the worker's next
//     start the rest.
//
// Without cgroups, processes that a task left in other sessions are found by a mark in their environment and by
// adopting orphans, which a task can evade until the worker ends. The worker logs this once; `scheduler job list
// --workers` shows what each worker can do.
//
// Tasks may run as other users: the worker sends each to a runner, a process of the task's user behind a socket that
// only the worker may open (Serve). Over the socket a running task is frozen, thawed and measured; no decision
// freezes one yet. No process of ours changes its user; the service manager starts a runner as the right one.
//
// It never uses a shell, never removes anything but its own unfinished output, and never decides which task to run.
package local
