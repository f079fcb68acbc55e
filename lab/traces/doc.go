// Package traces reads published traces of clusters, job by job.
//
// The one idea: a trace is somebody else's file, so nothing in it is believed. Each job is checked before it is handed on, and
// what is wrong comes with file and line, the rule, and the numbers.
//
// Two formats are read. Tasks are the traces of Hawk, Eagle and Pigeon: a line a job, with its arrival in seconds, the number
// of its tasks, their mean time and the time of each. Volumes are those of SWIM: a line a job, with its name, its arrival, the
// gap to the job before it, and the bytes that its maps read, its shuffle moves and its reducers write; Volume.Tasks and Volume.Work
// make map tasks of them. A folder has a layout: Open opens one of the traces that it may have.
//
// Guarantees: a reader holds one line at a time, and lines, tasks and jobs are bounded; it ends at the first error; no input
// makes it panic. A job is valid until the next one is read.
package traces
