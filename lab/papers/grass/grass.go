// Package grass repeats the experiments of GRASS (Ananthanarayanan et al., NSDI 2014): jobs with a
// deadline or an error bound whose tasks straggle, and policies that choose for each free slot
// between a new task and another copy of a running one.
//
// The one idea: the decisions are made by jobs/speculation, as in production, on the lab's
// simulated machine. A job runs on its fair share of the slots of 200 machines. Every policy runs
// the same jobs: the same input sizes, and the same time of the k-th copy of a task, whichever
// policy starts it.
//
// Guarantees: the same seed gives the same numbers. Estimates come from progress reports and ended
// tasks, for all policies alike. No policy sees the time of a task before it has ended, except the
// oracle, which is only shown. Samples of past jobs come from a history of other jobs. There is no
// clock, no sleep and no network.
package grass
