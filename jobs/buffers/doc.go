// Package buffers is the dispatcher of DIAS as a state machine: one buffer per
// priority class, first come first served inside a class, and the head of the
// highest buffer that is not empty runs next.
//
// The one idea: whoever runs the jobs, real engines or a simulation, reports what
// happened and carries out what Step returns. So the scheduler and the paper's
// experiments run the very same decisions.
//
// The disciplines are those of the paper (DIAS, section 3.2, and its baselines in
// section 5): "p" kills the running job for one of a higher class, puts it back at
// the head of its buffer and later starts it from the beginning; "np" lets it
// finish; "da" is np with a drop ratio per class; "nps" is np with a sprint timer per
// class; "dias" is both. "shared" is none of the paper's: jobs share the slots, and
// whoever holds the slots decides when the next begins.
//
// Guarantees: no more jobs run at once than Settings.Width; without "p" a running job
// is never killed by the dispatcher; a job that was added stays, in its buffer or
// running, until Ended or Cancel names it; inside a class jobs begin in the order of
// their submission, a killed one first; a run's sprint timer fires at most once. The
// same calls at the same times give the same actions.
//
// The package reads no clock and starts nothing. Drop ratios and timers are found by
// package deflation.
package buffers
