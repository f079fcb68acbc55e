// Package scaling measures how jobs run on different numbers of slots, cores or containers, and keeps what that teaches
// about jobs of the same name: a file in the scheduler's folder. Jobs of the workers, of Spark and of YARN are measured
// in one way, from what the scheduler sees of them anyway.
//
// The one idea: a Meter follows each running job; its run goes into a book (jobs/scaling/runs) when the job is done;
// what the book advises is committed with the next job of the name.
//
// Guarantees:
//   - the file is replaced as a whole; what was learned before a crash is there after it, but for the newest runs;
//   - an invalid file is logged and moved aside, and learning starts without it;
//   - nothing waits for a fit or for the disk; runs that arrive faster than they can be stored are skipped.
package scaling
