// Package buffers is the dispatcher of DIAS as a state machine: one buffer per priority class, first come first
// served inside a class, and the head of the highest buffer that is not empty runs next.
//
// The one idea: the caller, the scheduler or a simulation, reports events and carries out what Step returns. So the
// scheduler and the paper's experiments make the same decisions.
//
// The disciplines are those of the paper (DIAS, section 3.2, and its baselines in section 5): "p" kills the running
// job for one of a higher class, puts it back at the head of its buffer and later restarts it; "np" lets it finish;
// "da" is np with a drop ratio per class; "nps" is np with a sprint timer per class; "dias" is both. "shared" is not
// in the paper: jobs share the slots, and the owner of the slots decides when the next one starts.
//
// Guarantees:
//   - at most Settings.Width jobs run at once;
//   - without "p" the dispatcher never kills a running job;
//   - an added job stays, in its buffer or running, until Ended or Cancel names it;
//   - inside a class jobs start in the order of their submission, a killed one first;
//   - a run's sprint timer fires at most once.
//
// The same calls at the same times give the same actions.
//
// The package reads no clock and starts nothing. Package deflation finds drop ratios and timers.
package buffers
