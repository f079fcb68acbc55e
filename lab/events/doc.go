// Package events is the discrete-event core of the lab's simulations on traces: a queue of timed events, and a machine of
// slots on which copies of tasks run.
//
// The one idea: everything that takes time is a copy of a task on a slot with a speed. A node under a power cap is a slow
// slot; a job with perfect speed-up that holds 12.5 slots is one task on a slot of speed 12.5; a paused one has speed 0.
// The machine knows when copies end. All that a simulation adds, arrivals, deadlines, messages between schedulers and workers,
// are events of its own type in the same queue.
//
// A simulation asks for the next event and does what its policy decides about it: Start, Kill, SetSpeed, Drop, Schedule.
// The first copy of a task to end ends the task: the machine kills the others and frees their slots at that instant.
//
// Guarantees: time never goes back; of events of one time the ends of copies come first, then the simulation's own by their
// rank, then those that were scheduled first; the same calls give the same events; nothing is allocated once the number of
// events, slots, jobs and tasks has been reached before. Times are in seconds, work in seconds at speed 1.
//
// The package decides nothing, draws no random numbers and does no I/O. A call that makes no sense, such as a copy on a slot
// in use, is a mistake of the simulation and panics.
package events
