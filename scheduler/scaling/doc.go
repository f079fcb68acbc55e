// Package scaling measures how the scheduler's jobs run on different numbers of slots, and keeps what that teaches about
// jobs of the same name: a file in the scheduler's folder.
//
// The one idea: a Meter follows each running job; its run goes into a book (jobs/scaling/runs) when the job is done;
// what the book advises is committed with the next job of the name.
//
// Guarantees:
//   - the file is replaced as a whole; what was learned before a crash is there after it, but for the newest runs;
//   - a file that is invalid is said in the log, moved aside, and counts as if nothing were known;
//   - nobody waits for a fit or for the disk; runs that come faster than they can be kept are passed over.
package scaling
