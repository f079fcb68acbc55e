// Package traces reads published traces of clusters, job by job.
//
// The one idea: a trace is an external file, so nothing in it is trusted. Each job is checked
// before it is returned, and an error has the file, the line, the rule and the numbers.
//
// There are two formats. Tasks are the traces of Hawk, Eagle and Pigeon: a line per job, with its
// arrival in seconds, the number of its tasks, their mean time and the time of each. Volumes are
// those of SWIM: a line per job, with its name, its arrival, the gap to the job before it, and the
// bytes that its maps read, its shuffle moves and its reducers write. Volume.Tasks and Volume.Work
// convert them to map tasks. A folder has a fixed layout: Open opens one of its traces.
// lab/docs/traces.md names the public source and the checksum of each.
//
// Guarantees: a reader holds one line at a time; lines, tasks and jobs are bounded. It stops at the
// first error, and no input makes it panic. A job is valid until the next one is read.
package traces
