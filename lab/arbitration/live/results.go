package live

import (
	"io"
	"strconv"
	"strings"

	"headroom/internal/cli"
	"headroom/lab/arbitration"
	"headroom/lab/papers"
	"headroom/lab/runs"
)

// Figures that only real runs have.
const (
	speedUp     = "speed_up"
	sprintCount = "sprints"
)

// report is what came of all runs.
type report struct {
	*runs.Report

	results []result
}

func columns() []runs.Column {
	return []runs.Column{
		{Head: "URGENT", Figure: arbitration.UrgentMean, Scale: 1, Digits: 1, Sign: 1},
		{Head: "P95", Figure: arbitration.UrgentP95, Scale: 1, Digits: 1, Sign: 1},
		{Head: "MISSED", Figure: arbitration.UrgentMissed, Scale: 100, Digits: 1, Sign: 1},
		{Head: "TOLERANT", Figure: arbitration.TolerantMean, Scale: 1, Digits: 1, Sign: 1},
		{Head: "P95", Figure: arbitration.TolerantP95, Scale: 1, Digits: 1, Sign: 1},
		{Head: "QUALITY", Figure: arbitration.TolerantQuality, Scale: 100, Digits: 1, Sign: -1},
		{Head: "ENERGY", Figure: arbitration.EnergyJ, Scale: 1e-3, Digits: 1, Sign: 1},
		{Head: "SPRINTS", Figure: arbitration.SprintJ, Scale: 1e-3, Digits: 1},
		{Head: "SPEED-UP", Figure: speedUp, Scale: 1, Digits: 2},
		{Head: "WEIGHTED", Figure: arbitration.WeightedS, Scale: 1, Digits: 2, Sign: 1},
	}
}

// reportOf sums the results of all runs up.
func reportOf(e *engine, seed uint64, load string, results []result) *report {
	c := &runs.Comparison{
		Engine: e.name, Seed: seed, Load: load, Columns: columns(),
		Note: "latencies in s, missed deadlines and quality in %, energy and sprints in kJ; speed-up: tasks a second in sprints over those without",
		Versus: "the arbiter against the others (how much worse it is, below 0 better, run by run; in the figure's unit above; verdicts\n" +
			"by bounds that hold for all of these figures at once, and by a figure's own in brackets where they say something else):",
	}
	for _, v := range e.variants {
		c.Variants = append(c.Variants, runs.Variant{Name: v.name, Says: v.says})
	}
	of := make([]runs.Result, len(results))
	for i := range results {
		of[i] = runs.Result{Variant: results[i].variant, Run: results[i].run, Figures: results[i].figures}
	}
	return &report{c.Report(of), results}
}

// print writes the report as JSON, or as two tables.
func (r *report) print(w io.Writer, out *cli.Output) error { return r.Print(w, out, r) }

// verdict is the error of an arbiter that is behind in what it works for: the objective and its urgent jobs. That it gives
// up tasks, and spends joules on sprints, is in the objective's price or its purpose.
func (r *report) verdict() error {
	return r.Behind("the arbiter", func(figure string) bool {
		return figure == arbitration.WeightedS || strings.HasPrefix(figure, string(arbitration.Urgent))
	})
}

// files are the tables and the plot.
func (r *report) files() papers.Files {
	return papers.Files{"figures.csv": r.FiguresCSV, "jobs.csv": r.jobsCSV, "latency.svg": r.draw}
}

// jobsCSV has a row for each job of each run.
func (r *report) jobsCSV(w io.Writer) error {
	rows := [][]string{{"run", "variant", "job", "stream", "class", "arrival_s", "latency_s", "deadline_s", "tasks", "done", "sprinted"}}
	for i := range r.results {
		x := &r.results[i]
		for k := range x.jobs {
			s, deadline := &x.watch.served[k], ""
			if s.Deadline > 0 {
				deadline = runs.Number(s.Deadline.Seconds())
			}
			rows = append(rows, []string{
				strconv.Itoa(x.run + 1), x.variant, strconv.Itoa(k), x.jobs[k].stream, string(s.Class), runs.Number(s.Arrival.Seconds()), runs.Number(s.Took.Seconds()),
				deadline, strconv.Itoa(s.Tasks), strconv.Itoa(s.Done), strconv.FormatBool(x.watch.sprinted[k]),
			})
		}
	}
	return papers.WriteCSV(w, rows)
}

// draw draws the mean latencies of both classes, a dot for each run.
func (r *report) draw(w io.Writer) error {
	return r.Draw(w, "Engine "+r.Engine+": latencies, a dot for each run",
		runs.Axis{Figure: arbitration.TolerantMean, Says: "mean latency of tolerant jobs (s)"}, runs.Axis{Figure: arbitration.UrgentMean, Says: "mean latency of urgent jobs (s)"})
}
