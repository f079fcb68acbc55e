package promises

import (
	"io"
	"strconv"

	"headroom/internal/cli"
	"headroom/lab/papers"
	"headroom/lab/runs"
)

// result is what came of one variant's run.
type result struct {
	runs.Result

	watch *watch
}

// report is what came of all runs.
type report struct {
	*runs.Report

	results []result
}

// reportOf sums the results of all runs up.
func reportOf(e *engine, seed uint64, results []result) *report {
	c := &runs.Comparison{
		Engine: e.name, Seed: seed, Load: e.load.says(), Columns: columns(),
		Note: "deadlines met (SDR), work of jobs that met them (PTR), tasks done at the deadline (accuracy) of all submitted jobs and of those that ran, and refused\n" +
			"jobs with deadlines in %; time to the error bound and of exact jobs in s; wasted work in container seconds; energy in kJ",
		Versus: "ours against the others (how much worse it is, below 0 better, run by run; in the figure's unit above; verdicts by bounds\n" +
			"that hold for all of these figures at once, and by a figure's own in brackets where they say something else):",
	}
	for _, v := range e.variants {
		c.Variants = append(c.Variants, runs.Variant{Name: v.name, Says: v.says})
	}
	of := make([]runs.Result, len(results))
	for i := range results {
		of[i] = results[i].Result
	}
	return &report{c.Report(of), results}
}

// print writes the report as JSON, or as two tables.
func (r *report) print(w io.Writer, out *cli.Output) error { return r.Print(w, out, r) }

// verdict is the error of ours where it is behind in what promises are about.
func (r *report) verdict() error { return r.Behind(ours, judges) }

// files are the tables and the plot.
func (r *report) files() papers.Files {
	return papers.Files{"figures.csv": r.FiguresCSV, "jobs.csv": r.jobsCSV, "promises.svg": r.draw}
}

// jobsCSV has a row for each job of each run.
func (r *report) jobsCSV(w io.Writer) error {
	rows := [][]string{{
		"run", "variant", "job", "kind", "arrival_s", "tasks", "need", "deadline_s", "error", "refused", "met", "in_time", "done", "bound_s", "took_s", "work_s", "wasted_s", "copies_most", "why_refused",
	}}
	for i := range r.results {
		x := &r.results[i]
		for k := range x.watch.jobs {
			j, o := &x.watch.jobs[k], &x.watch.outcomes[k]
			row := []string{
				strconv.Itoa(x.Run + 1), x.Variant, j.name, string(j.kind), runs.Number(j.arrival.Seconds()), strconv.Itoa(j.tasks), strconv.Itoa(j.need()),
				known(j.kind.due(), j.deadline.Seconds()), known(j.kind == bounded, j.error), strconv.FormatBool(o.refused), "", "", strconv.Itoa(o.done),
				known(o.reached, o.bound.Seconds()), known(o.ended, o.took.Seconds()), runs.Number(o.work), known(!x.watch.blind, o.wasted), known(!x.watch.blind, float64(o.copies)), o.why,
			}
			if j.kind.due() {
				row[10], row[11] = strconv.FormatBool(o.met(j)), strconv.Itoa(o.inTime)
			}
			rows = append(rows, row)
		}
	}
	return papers.WriteCSV(w, rows)
}

// known is a number, empty where it is not known.
func known(is bool, x float64) string {
	if !is {
		return ""
	}
	return runs.Number(x)
}

// draw draws the accuracy at the deadline over the deadlines met, a dot for each run.
func (r *report) draw(w io.Writer) error {
	return r.Draw(w, "Engine "+r.Engine+": promises, a dot for each run",
		runs.Axis{Figure: figureSDR, Says: "deadlines met, of all submitted jobs with deadlines"}, runs.Axis{Figure: figureAccuracy, Says: "tasks done at the deadline"})
}
