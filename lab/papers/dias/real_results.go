package dias

import (
	"fmt"
	"io"
	"runtime"
	"strconv"

	"headroom/jobs/buffers"
	"headroom/lab/papers"
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
func (r *realResult) mean(class int, of func(*realEnded) (float64, bool)) papers.Stat {
	if r == nil {
		return papers.Stat{}
	}
	sum, n := 0.0, 0.0
	for i := range r.jobs {
		if e := &r.jobs[i]; e.class == class || class < 0 {
			v, known := of(e)
			if !known {
				return papers.Stat{}
			}
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return papers.Stat{}
	}
	return papers.Once(sum / n)
}

func response(e *realEnded) (float64, bool)  { return e.response, true }
func execution(e *realEnded) (float64, bool) { return e.exec, true }
func drawn(e *realEnded) (float64, bool) {
	if e.joules == nil {
		return 0, false
	}
	return *e.joules, true
}

const allClasses = -1

// against is by how many percent a policy's mean differs from another's.
func (r realResults) against(d, than buffers.Discipline, class int, of func(*realEnded) (float64, bool)) papers.Stat {
	a, b := r.of(d).mean(class, of), r.of(than).mean(class, of)
	if !a.Known || !b.Known || b.Mean == 0 {
		return papers.Stat{}
	}
	x := (a.Mean/b.Mean - 1) * 100
	return papers.Once(x)
}

// targets are L1 to L7: orderings, with room for what else the machine does; one run has
// no bounds.
func (r realResults) targets() []papers.Target {
	const slack = 5. // percent
	low1, low2 := r.against(buffers.DA, buffers.NP, low, response), r.against(buffers.DIAS, buffers.P, low, response)
	high1, high2 := r.against(buffers.NP, buffers.P, high, response), r.against(buffers.NPS, buffers.NP, high, execution)
	work, joules := r.against(buffers.DA, buffers.NP, low, execution), r.against(buffers.DIAS, buffers.P, allClasses, drawn)
	seconds := func(d buffers.Discipline) string {
		h, l := r.of(d).mean(high, response), r.of(d).mean(low, response)
		return fmt.Sprintf("%s %.1f/%.1f s", d, h.Mean, l.Mean)
	}
	means := "high/low: " + seconds(buffers.P) + ", " + seconds(buffers.NP) + ", " + seconds(buffers.DA) + ", " + seconds(buffers.NPS) + ", " + seconds(buffers.DIAS)
	return []papers.Target{
		r.wasted(),
		papers.Judge("L2", "np against p: mean response of the high class", "%", high1, high1.Mean > 0, "to be a rise; "+means),
		papers.Judge("L3", "da(0,20) against np: mean response of the low class", "%", low1, low1.Mean < slack, "to fall, or rise by less than 5 %"),
		papers.Judge("L4", "da(0,20) against np: mean execution of the low class", "%", work, work.Mean < 0, "to fall: a fifth of the map tasks is dropped"),
		papers.Judge("L5", "nps against np: mean execution of the high class", "%", high2, high2.Mean < 0, fmt.Sprintf("to fall; %d of %d high jobs sprinted", r.of(buffers.NPS).sprints(), r.of(buffers.NPS).count(high))),
		papers.Judge("L6", "dias(0,20) against p: mean response of the low class", "%", low2, low2.Mean < 0, "to fall"),
		papers.Judge("L7", "dias(0,20) against p: energy of all jobs, from the nodes' counters", "%", joules, joules.Mean < slack, "to fall, or rise by less than 5 %: sprints draw more for a shorter time"),
	}
}

// wasted is L1: only p kills, and every killed job has ended all the same.
func (r realResults) wasted() papers.Target {
	p := r.of(buffers.P)
	if p == nil || p.total == 0 {
		return papers.Judge("L1", "p: machine time of killed runs", "%", papers.Stat{}, false, "")
	}
	others, kills := 0, p.reruns()
	for i := range r {
		if r[i].policy != buffers.P {
			others += r[i].reruns()
		}
	}
	x := 100 * p.killed / p.total
	return papers.Judge("L1", "p: machine time of killed runs", "%", papers.Once(x), others == 0 && (kills == 0) == (p.killed == 0),
		fmt.Sprintf("%d runs killed by p, %d by the others, which are to kill none; all jobs ended", kills, others))
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

func (r *realResult) sprints() (n int) {
	if r == nil {
		return 0
	}
	for i := range r.jobs {
		if r.jobs[i].sprinted {
			n++
		}
	}
	return n
}

// write is every job of every policy.
func (r realResults) write(w io.Writer) error {
	rows := [][]string{{"policy", "job", "class", "response_s", "exec_s", "runs", "theta", "sprinted", "joules"}}
	for _, x := range r {
		for i, e := range x.jobs {
			joules := ""
			if e.joules != nil {
				joules = papers.Number(*e.joules)
			}
			rows = append(rows, []string{
				string(x.policy), strconv.Itoa(i), []string{"high", "low"}[e.class], papers.Number(e.response), papers.Number(e.exec), strconv.Itoa(e.runs),
				papers.Number(e.theta), strconv.FormatBool(e.sprinted), joules,
			})
		}
	}
	return papers.WriteCSV(w, rows)
}
