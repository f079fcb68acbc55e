// Package grass repeats the experiments of GRASS (Ananthanarayanan et al., NSDI 2014): jobs with a deadline or an error
// bound whose tasks straggle, and policies that decide in each free slot between a new task and another copy of one that
// runs.
//
// The one idea: what decides is jobs/speculation, as in production; what it decides on is the lab's discrete-event
// machine. A job runs on the slots that a fair share of 200 machines gives it, and every policy runs the same jobs: the
// same sizes of inputs, and the same time of the k-th copy of a task, whichever policy starts it.
//
// Guarantees: the same seed gives the same numbers; estimates come from progress reports and from tasks that have ended,
// for all policies alike, and none sees a task before it has ended, but for the oracle, which is only shown; samples of
// past jobs come from a history of other jobs. There is no clock, no sleep and no network.
package grass
