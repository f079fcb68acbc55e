// Package pigeon dispatches many small tasks in two layers: distributors spread the tasks of each job over groups of workers,
// and the master of a group decides which worker runs what, and when (Li 2019, chapter 4).
//
// The one idea: a distributor needs to know nothing about workers and a master nothing about jobs. With fifty to a hundred
// workers a group, an even split balances the groups by the law of large numbers; where power caps make groups unequal,
// the split follows what each group can really do, which Power learns from the tasks that it ended.
//
// A Master has slots of workers, some of them reserved for high-priority tasks, and two queues. A high-priority task takes
// a slot that is not reserved, or else a reserved one; a low-priority task never takes a reserved slot. When a slot is free and
// tasks of both priorities wait, at least one of every W is of low priority; W of 0 is strict priority.
//
// A Distributor splits the tasks of a job, hands over what each group's window permits, keeps the rest, and follows each task
// until its result. Tasks of a lost group are placed again on other groups.
//
// Both are driven in the same way: calls say what has happened, and Next returns the actions that follow, one by one, until there
// is none:
//
//	id, ok := master.Place(task, high)      // from a distributor
//	for start, more := master.Next(); more; start, more = master.Next() {
//		run(start.Worker, start.ID, start.Task)
//	}
//	master.End(id)                          // the worker has ended it: call Next again
//
// Guarantees: no task is lost or doubled: each is waiting, handed over or running, or has ended; an ID is used once, so what
// is reported twice counts once; queues are bounded, and what does not fit is refused with nothing kept. A high-priority task never
// waits while a slot that may run it is free. No task starts beyond the slots that a worker's cap leaves, and low-priority tasks
// give way first. Calls take constant time, Submit constant time a task and a group; nothing is allocated once the number of tasks
// and workers has been reached before.
//
// The package reads no clock, draws no random numbers of its own and does no I/O. A Master, a Distributor and a Power each belong to
// one goroutine.
package pigeon
