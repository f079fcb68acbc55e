// Package record samples a running cluster and plots it continuously: power under its budget, the
// containers of each job, the jobs' progress, and their predicted end with and without a cap.
//
// The one idea: the plot is complete at every moment. Each sample replaces it atomically, so a reader
// who opens it during the run, or after an interruption, sees everything so far.
//
// It queries the coordinators like any operator, and changes nothing. An unknown value is a gap, never 0.
package record
