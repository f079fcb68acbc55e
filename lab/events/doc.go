// Package events is the discrete-event core of the lab's simulations on traces: a queue of timed
// events, and a machine with slots on which copies of tasks run.
//
// The one idea: everything that takes time is a copy of a task on a slot with a speed. A node under
// a power cap is a slow slot; a job with perfect speed-up that holds 12.5 slots is one task on a
// slot of speed 12.5; a paused one has speed 0. The machine determines when copies end. Everything
// else in a simulation, such as arrivals, deadlines and messages between schedulers and workers, is
// an event of its own type in the same queue.
//
// A simulation takes the next event and applies the decision of its policy: Start, Kill, SetSpeed,
// Drop, Schedule. The first copy of a task to end also ends the task: the machine kills the other
// copies and frees their slots at that time.
//
// Guarantees: time never goes back. Of events at the same time, ends of copies come first, then the
// simulation's own by rank, then by order of scheduling. The same calls give the same events.
// Nothing is allocated once the number of events, slots, jobs and tasks has been reached before.
// Times are in seconds, work in seconds at speed 1.
//
// The package makes no decisions, draws no random numbers and does no I/O. An invalid call, such as
// a copy on a slot in use, is a bug of the simulation and panics.
package events
