// Package record watches a running cluster and draws what it sees while it goes on:
// power under its budget, the containers of each job, how far the jobs are, and when
// they will end beside when they would end without a cap.
//
// The one idea: the files are whole at every moment. Each look appends its rows to
// the CSV and puts a new picture in the old one's place, so that whoever opens
// either while the run goes on, or after it was interrupted, sees all of it so far.
//
// It asks the coordinators as any operator may, and changes nothing. What was not
// known at a look is a gap in the picture and empty in the CSV, never 0.
package record
