// Package events is the discrete-event core of the lab's simulations: a clock with a queue of events,
// work that proceeds at a rate, and a machine with slots on which copies of tasks run.
//
// The one idea: a simulation takes the next event from its Clock, applies the decision of its policy,
// and schedules, moves or cancels what follows. Everything that takes time is Work at a rate. A power
// cap lowers the rate; a job with perfect speed-up that holds 12.5 slots has rate 12.5; a paused job
// has rate 0. When the rate changes, the end of the work moves. A Machine does this for tasks of which
// several copies may run: the first copy to end also ends the task and frees the slots of the others.
//
// Guarantees: time never goes back. Events at the same time come by rank, then by order of scheduling.
// The same calls give the same events. Nothing is allocated once the number of events, slots and
// tasks has been reached before. Time is in seconds or a duration; work is in seconds at rate 1.
//
// The package makes no decisions, draws no random numbers and does no I/O. An invalid call, such as
// a copy on a slot in use, is a bug of the simulation and panics.
package events
