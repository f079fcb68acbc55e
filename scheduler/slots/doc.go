// Package slots lets frameworks that run their tasks in processes of their own, as Spark in its executors, take part in two-layer
// dispatch: the master of a group grants them slots of its workers, and they run one task on each.
//
// The one idea: both sides send whole states. An application reports how many slots it wants and which it holds; the master answers
// which it has granted since. So the next report corrects whatever was lost, be it a message, an answer or the master itself: a standby
// takes over the slots that applications report as held, and a grant that was not seen is repeated.
//
// A wish waits in the master's queues beside the tasks of distributors, and obeys the same rules: priorities, reserved slots, and
// the slots that a node's cap leaves. A slot that is given back is the master's: it decides anew what runs there next, so that a task of
// high priority overtakes those of low priority that wait, whichever application they are of.
//
// A grant carries a proof, which only the masters of the group can make, with a key that the worker of the slot gives to each of them.
// A master believes a slot that it has not granted itself only with that proof, and only while the worker has a free slot.
//
// Guarantees: a slot is held by one application at a time; an application holds no slot that it was not granted; the slots of an
// application that has been silent for ten seconds are granted to others; the number of applications of a caller, of their wishes and
// of the slots that they may hold is bounded.
//
// A Book belongs to one goroutine, the one that owns the master, and reads no clock. It never starts a process, and never learns what
// runs on a slot.
package slots
