package dias

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"

	"headroom/jobs/buffers"
	"headroom/lab/report"
)

func numCPU() int { return runtime.NumCPU() }

// realResults is what came of all policies.
type realResults []realResult

func (r realResults) of(d buffers.Discipline) *realResult {
	for i := range r {
		if r[i].policy == d {
			return &r[i]
		}
	}
	return nil
}

// mean is the mean of a quantity over the jobs of a class; nothing where it is unknown of one.
func (r *realResult) mean(class int, of func(*realEnded) (float64, bool)) report.Stat {
	if r == nil {
		return report.Stat{}
	}
	sum, n := 0.0, 0.0
	for i := range r.jobs {
		if e := &r.jobs[i]; e.class == class || class < 0 {
			v, known := of(e)
			if !known {
				return report.Stat{}
			}
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return report.Stat{}
	}
	return report.Once(sum / n)
}

func response(e *realEnded) (float64, bool)  { return e.response, true }
func execution(e *realEnded) (float64, bool) { return e.exec, true }
func drawn(e *realEnded) (float64, bool) {
	if e.joules == nil {
		return 0, false
	}
	return *e.joules, true
}

func missed(e *realEnded) (float64, bool) {
	if e.wrong == nil {
		return 0, false
	}
	return *e.wrong, true
}

const allClasses = -1

// against is by how many percent a policy's mean differs from another's.
func (r realResults) against(d, than buffers.Discipline, class int, of func(*realEnded) (float64, bool)) report.Stat {
	a, b := r.of(d).mean(class, of), r.of(than).mean(class, of)
	if !a.Known || !b.Known || b.Mean == 0 {
		return report.Stat{}
	}
	x := (a.Mean/b.Mean - 1) * 100
	return report.Once(x)
}

// realRounds are the runs of one program, each with all policies.
type realRounds []realResults

// over is the mean of a figure over the runs; unknown where it is unknown of one.
func (r realRounds) over(of func(realResults) report.Stat) report.Stat {
	var values []float64
	for _, x := range r {
		v := of(x)
		if !v.Known {
			return report.Stat{}
		}
		values = append(values, v.Mean)
	}
	return report.Of(values)
}

// judge judges a figure by what is to hold of it: met where that holds within the bounds
// over the runs, order where it holds of the mean alone, or of the only run.
func (r realRounds) judge(id, what, unit string, of func(realResults) report.Stat, holds func(float64) bool, note string) report.Target {
	if len(r) == 0 {
		return report.Left(id, what, unit, "this run does not have it")
	}
	got := r.over(of)
	t := report.Judge(id, what, unit, got, holds(got.Mean), note)
	switch {
	case t.Verdict != report.Met:
	case len(r) == 1:
		t.Verdict, t.Note = report.Order, note+"; one run has no bounds"
	case !holds(got.Low) || !holds(got.High):
		t.Verdict, t.Note = report.Order, note+"; not within the bounds"
	}
	return t
}

// change is by how many percent a policy's mean over the jobs of a class differs from another's.
func change(d, than buffers.Discipline, class int, of func(*realEnded) (float64, bool)) func(realResults) report.Stat {
	return func(r realResults) report.Stat { return r.against(d, than, class, of) }
}

func below(most float64) func(float64) bool  { return func(x float64) bool { return x < most } }
func above(least float64) func(float64) bool { return func(x float64) bool { return x > least } }

// targets are orderings, with room for what else the machine does. ids begins theirs, and
// power is with which power of the kept part a result that is not scaled grows.
func (r realRounds) targets(ids, program string, power int) []report.Target {
	const slack = 5. // percent
	named := func(text string) string { return program + ": " + text }
	return []report.Target{
		r.wasted(ids+"1", named("p: machine time of killed runs")),
		r.judge(ids+"2", named("np against p: mean response of the high class"), "%", change(buffers.NP, buffers.P, high, response), above(0), "to be a rise; "+r.means()),
		r.judge(ids+"3", named("da(0,20) against np: mean response of the low class"), "%", change(buffers.DA, buffers.NP, low, response), below(slack), "to fall, or rise by less than 5 %"),
		r.judge(ids+"4", named("da(0,20) against np: mean execution of the low class"), "%", change(buffers.DA, buffers.NP, low, execution), below(0), "to fall: a fifth of the map tasks is dropped"),
		r.quicker(ids+"5", named("nps against np: mean execution of the high class")),
		r.judge(ids+"6", named("dias(0,20) against p: mean response of the low class"), "%", change(buffers.DIAS, buffers.P, low, response), below(0), "to fall"),
		r.judge(ids+"7", named("dias(0,20) against p: energy of all jobs, from the nodes' counters"), "%", change(buffers.DIAS, buffers.P, allClasses, drawn), below(slack),
			"to fall, or rise by less than 5 %: sprints draw more for a shorter time"),
		r.sprinted(ids+"10", named("nps: high jobs that sprinted")),
		r.judge(ids+"11", named("nps: joules of a sprint above the caps, by the nodes' counters"), "J", func(x realResults) report.Stat { return x.of(buffers.NPS).spent() }, above(0),
			"to be above 0; no sprint, no number"),
		r.misses(ids+"12", named("da(0,20) and dias(0,20): error of the low class's results"), power),
	}
}

// wasted is that only p kills, and every killed job has ended all the same.
func (r realRounds) wasted(id, what string) report.Target {
	others, kills, odd := 0, 0, 0
	for _, x := range r {
		for i := range x {
			n := x[i].reruns()
			if x[i].policy != buffers.P {
				others += n
				continue
			}
			if kills += n; (n == 0) != (x[i].killed == 0) {
				odd++
			}
		}
	}
	return r.judge(id, what, "%", realResults.wasted, func(x float64) bool { return others == 0 && odd == 0 && kills > 0 },
		fmt.Sprintf("%d runs killed by p, which is to kill some, %d by the others, which are to kill none; all jobs ended", kills, others))
}

// wasted is the part of the machine time that p lost to killed runs, percent.
func (r realResults) wasted() report.Stat {
	p := r.of(buffers.P)
	if p == nil || p.total == 0 {
		return report.Stat{}
	}
	return report.Once(100 * p.killed / p.total)
}

// means are the policies' mean responses of both classes in words.
func (r realRounds) means() string {
	words := []string{}
	for _, d := range realPolicies() {
		class := func(class int) float64 {
			return r.over(func(x realResults) report.Stat { return x.of(d).mean(class, response) }).Mean
		}
		words = append(words, fmt.Sprintf("%s %.1f/%.1f s", d, class(high), class(low)))
	}
	return "high/low: " + strings.Join(words, ", ")
}

// quicker is what sprints gain, which is short where nobody sprinted, whatever the times are.
func (r realRounds) quicker(id, what string) report.Target {
	n, of := r.sprints(buffers.NPS), r.count(buffers.NPS, high)
	note := fmt.Sprintf("to fall; %d of %d high jobs sprinted", n, of)
	if n == 0 {
		note = fmt.Sprintf("NO SPRINT WAS SEEN: what the times say is not by sprints; 0 of %d high jobs sprinted", of)
	}
	return r.judge(id, what, "%", change(buffers.NPS, buffers.NP, high, execution), func(x float64) bool { return x < 0 && n > 0 }, note)
}

// sprinted is that high jobs sprint under nps, and nobody under p, np and da.
func (r realRounds) sprinted(id, what string) report.Target {
	others := r.sprints(buffers.P) + r.sprints(buffers.NP) + r.sprints(buffers.DA)
	n, of := r.sprints(buffers.NPS), r.count(buffers.NPS, high)
	note := fmt.Sprintf("%d of %d, to be some; %d under dias; %d under p, np and da, which is to be none", n, of, r.sprints(buffers.DIAS), others)
	if n == 0 {
		note = "NO SPRINT WAS SEEN; " + note
	}
	return r.judge(id, what, "%", func(x realResults) report.Stat {
		if of := x.of(buffers.NPS).count(high); of > 0 {
			return report.Once(100 * float64(x.of(buffers.NPS).sprints()) / float64(of))
		}
		return report.Stat{}
	}, func(x float64) bool { return x > 0 && others == 0 }, note)
}

// misses is that dropped tasks cost some accuracy, less than if what was found were not
// scaled up, and that nothing else does.
func (r realRounds) misses(id, what string, power int) report.Target {
	most := 100 * (1 - math.Pow(1-realTheta/100., float64(power)))
	asked, inexact := false, 0
	for _, x := range r {
		for i := range x {
			for k := range x[i].jobs {
				e := &x[i].jobs[k]
				asked = asked || e.wrong != nil
				if e.wrong != nil && e.theta == 0 && *e.wrong > exactError {
					inexact++
				}
			}
		}
	}
	if !asked {
		return report.Left(id, what, "%", "asked of jobs on Spark alone; target 9 has a count's error")
	}
	of := func(x realResults) report.Stat {
		a, b := x.of(buffers.DA).mean(low, missed), x.of(buffers.DIAS).mean(low, missed)
		if !a.Known || !b.Known {
			return report.Stat{}
		}
		return report.Once((a.Mean + b.Mean) / 2)
	}
	return r.judge(id, what, "%", of, func(x float64) bool { return x > 0 && x < most && inexact == 0 },
		fmt.Sprintf("to be above 0 and below the %.0f %% of a result that is not scaled; %d of the jobs that drop nothing have an error", most, inexact))
}

// exactError is how many percent a result may miss by that drops nothing: sums of doubles.
const exactError = 1e-6

func (r realRounds) sprints(d buffers.Discipline) (n int) {
	for _, x := range r {
		n += x.of(d).sprints()
	}
	return n
}

func (r realRounds) count(d buffers.Discipline, class int) (n int) {
	for _, x := range r {
		n += x.of(d).count(class)
	}
	return n
}

func (r *realResult) reruns() (n int) {
	for i := range r.jobs {
		n += max(0, r.jobs[i].runs-1)
	}
	return n
}

func (r *realResult) count(class int) (n int) {
	if r == nil {
		return 0
	}
	for i := range r.jobs {
		if r.jobs[i].class == class {
			n++
		}
	}
	return n
}

// sprints is how many jobs sprinted.
func (r *realResult) sprints() (n int) {
	if r == nil {
		return 0
	}
	for i := range r.jobs {
		if r.jobs[i].sprints > 0 {
			n++
		}
	}
	return n
}

// spent is what a sprint took above the caps, in the mean, in joules; unknown without one.
func (r *realResult) spent() report.Stat {
	if r.sprints() == 0 {
		return report.Stat{}
	}
	n, joules := 0, 0.0
	for i := range r.jobs {
		n, joules = n+r.jobs[i].sprints, joules+r.jobs[i].spent
	}
	return report.Once(joules / float64(n))
}

// runsHead are the columns of runs.csv.
func runsHead() []string {
	return []string{
		"policy", "job", "class", "response_s", "exec_s", "runs", "theta", "sprinted", "joules", "program", "run", "sprints", "sprint_joules", "error_percent", "killed_s", "total_s",
	}
}

// writeRuns is every job of every policy of every run.
func writeRuns(w io.Writer, all []realResult) error {
	rows := [][]string{runsHead()}
	for _, x := range all {
		for i, e := range x.jobs {
			rows = append(rows, []string{
				string(x.policy), strconv.Itoa(i), []string{"high", "low"}[e.class], report.Number(e.response), report.Number(e.exec), strconv.Itoa(e.runs),
				report.Number(e.theta), strconv.FormatBool(e.sprints > 0), numberOrNone(e.joules),
				x.program, strconv.Itoa(x.round), strconv.Itoa(e.sprints), report.Number(e.spent), numberOrNone(e.wrong), report.Number(x.killed), report.Number(x.total),
			})
		}
	}
	return report.CSV(w, rows)
}

// numberOrNone is a number as tables have it, empty if it not measured.
func numberOrNone(x *float64) string {
	if x == nil {
		return ""
	}
	return report.Number(*x)
}
