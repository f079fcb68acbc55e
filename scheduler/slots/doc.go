// Package slots lets frameworks that run their tasks in processes of their own, as Spark in its executors, take part in two-layer
// dispatch: the master of a group grants them slots of its workers, and they run one task on each.
//
// The one idea: both sides tell whole states. An application says how many slots it wants and which it holds; the master says
// which it has granted since. So whatever is lost, a message, an answer or the master itself, the next report puts it right: a standby
// takes over the slots that applications say they hold, and a slot whose grant was never seen is told again.
//
// A wish waits in the master's queues beside the tasks of distributors, and obeys the same rules: priorities, reserved slots, and
// the slots that a node's cap leaves. A slot that is given back is the master's: it decides anew what runs there next, so that a task of
// high priority overtakes those of low priority that wait, whichever application they are of.
//
// Guarantees: a slot is held by one application at a time; what an application that has been silent for ten seconds held is granted to
// others; the number of applications, of their wishes and of the slots that they may hold is bounded.
//
// A Book belongs to one goroutine, the one that owns the master, and reads no clock. It never starts a process, and never learns what
// runs on a slot.
package slots
