package pigeon

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"

	policies "headroom/jobs/dispatch/pigeon"
	"headroom/lab/dispatch"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// cluster is a group of workers that serves one class of jobs, all with fanout tasks and no more than there are groups. Jobs
// arrive in a Poisson process, execution times are exponential with a mean in any unit; load is the part of the time in which a worker is busy.
type cluster struct {
	workers, fanout int
	load, mean      float64
}

// prediction is what the closed forms of Li's dissertation, chapter 4, give for a cluster: each group is an M/M/n queue of its own.
type prediction struct {
	// taskZero is the probability that a task does not wait, (4.1); wait the mean time that it waits, (4.2).
	taskZero, wait float64
	// zeroSame is the probability that no task of a job waits, (4.3); it takes the groups for independent.
	zeroSame float64
	// zeroVaried is the probability that a job ends as if it were alone, (4.6); it takes the longest task for the one that ends last.
	zeroVaried float64
}

// predict evaluates (4.1), (4.2), (4.3) and (4.6), by the recurrence of Erlang's B formula and from it his C formula.
func predict(c cluster) prediction {
	offered, lost := float64(c.workers)*c.load, 1.0
	for k := 1; k <= c.workers; k++ {
		lost = offered * lost / (float64(k) + offered*lost)
	}
	waits := lost / (1 - c.load*(1-lost))
	p := prediction{taskZero: 1 - waits, wait: waits * c.mean / (float64(c.workers) * (1 - c.load))}
	p.zeroSame = math.Exp(float64(c.fanout) * math.Log1p(-waits))
	p.zeroVaried = p.taskZero * math.Exp(-p.wait/c.mean)
	return p
}

// probed returns the probability that no task of a job waits where Sparrow probes two workers for each, (4.4): at least fanout of
// 2 fanout workers are idle.
func probed(load float64, fanout int) float64 {
	if load == 0 {
		return 1
	}
	f := float64(fanout)
	return mathext.RegIncBeta(f, f+1, 1-load)
}

// zeroTable has, evaluated apart from this program with many digits, a load; (4.1) in groups of 100 and of 200; (4.3) of a job of 50 tasks
// in both, then of one of 100 tasks; and (4.4) of a job of 50 and of 100 tasks. The paper has them as Fig. 4.2.
func zeroTable() [][9]float64 {
	return [][9]float64{
		{0.30, 1.0000000000, 1.0000000000, 1.00000000, 1.00000000, 1.00000000, 1.00000000, 0.99999097, 1.00000000},
		{0.40, 1.0000000000, 1.0000000000, 1.00000000, 1.00000000, 1.00000000, 1.00000000, 0.98323831, 0.99831521},
		{0.50, 0.9999999997, 1.0000000000, 0.99999998, 1.00000000, 0.99999997, 1.00000000, 0.53979462, 0.52817424},
		{0.60, 0.9999984675, 1.0000000000, 0.99992338, 1.00000000, 0.99984676, 1.00000000, 0.02709920, 0.00263540},
		{0.65, 0.9999646718, 0.9999999922, 0.99823512, 0.99999961, 0.99647335, 0.99999922, 0.00145056, 0.00000946},
		{0.70, 0.9995407461, 0.9999988770, 0.97729379, 0.99994385, 0.95510315, 0.99988771, 0.00002206, 0.00000000},
		{0.75, 0.9963191054, 0.9999398481, 0.83161616, 0.99699683, 0.69158544, 0.99400268, 0.00000007, 0.00000000},
		{0.80, 0.9803535734, 0.9986230627, 0.37079751, 0.93342533, 0.13749079, 0.87128285, 0, 0},
		{0.85, 0.9251495040, 0.9846575493, 0.02044542, 0.46159463, 0.00041802, 0.21306960, 0, 0},
		{0.90, 0.7830595191, 0.9055287818, 0.00000489, 0.00700024, 0.00000000, 0.00004900, 0, 0},
		{0.95, 0.4935431461, 0.6347361434, 0, 0, 0, 0, 0, 0},
	}
}

// waitTable has, of groups of so many workers at loads of 80, 85, 90 and 95 %, with T_e = 100 ms, (4.2) in ms and then (4.6).
func waitTable() map[int][8]float64 {
	return map[int][8]float64{
		50:  {0.869525, 2.528803, 7.277289, 25.163789, 0.90514269, 0.79010481, 0.59148643, 0.28838858},
		75:  {0.268619, 1.036846, 3.689746, 14.935009, 0.95713262, 0.87424306, 0.69706856, 0.37890360},
		100: {0.098232, 0.499003, 2.169405, 10.129137, 0.97939102, 0.92054448, 0.76625473, 0.44599998},
		150: {0.016850, 0.146752, 0.935391, 5.672561, 0.99477749, 0.96556274, 0.85168738, 0.54287295},
		200: {0.003442, 0.051142, 0.472356, 3.652639, 0.99858869, 0.98415411, 0.90126155, 0.61196984},
	}
}

// forms are the closed forms; a mutant has others.
type forms struct {
	predict func(cluster) prediction
	sparrow func(load float64, fanout int) float64
}

func honestForms() forms { return forms{predict, probed} }

// off is the greatest difference between computed and tabled values.
type off float64

func (o *off) add(got, want float64) { *o = max(*o, off(math.Abs(got-want))) }

// target is a target of the table's cells. They have eight digits, so a form may be 10 units of 1e-8 away.
func (o off) target(id, what string) report.Target {
	return report.From(0, report.AtMost(10), report.Judge(id, what+": greatest difference from the table", "1e-8", report.Once(float64(o)*1e8), o < 1e-2, ""))
}

// targets are G2: the closed forms against the tables.
func (x forms) targets() []report.Target {
	const mean = 100 // ms
	var task, same, sparrow, wait, varied off
	for _, row := range zeroTable() {
		load := row[0]
		for i, workers := range []int{100, 200} {
			for k, fanout := range []int{50, 100} {
				p := x.predict(cluster{workers, fanout, load, mean})
				task.add(p.taskZero, row[1+i])
				same.add(p.zeroSame, row[3+2*k+i])
				if i == 0 {
					sparrow.add(x.sparrow(load, fanout), row[7+k])
				}
			}
		}
	}
	for _, workers := range modelGroups() {
		for i, load := range []float64{0.80, 0.85, 0.90, 0.95} {
			row, p := waitTable()[workers], x.predict(cluster{workers, 100, load, mean})
			// The table has microseconds with three digits: as parts of T_e, eight.
			wait.add(p.wait/mean, row[i]/mean)
			varied.add(p.zeroVaried, row[4+i])
		}
	}
	return []report.Target{
		task.target("G2/task", "(4.1), a task waits for nothing"),
		wait.target("G2/wait", "(4.2), mean wait of a task over its mean time"),
		same.target("G2/same", "(4.3), no task of a job waits, tasks alike"),
		sparrow.target("G2/sparrow", "(4.4), the same by Sparrow's probes"),
		varied.target("G2/varied", "(4.6), a job waits for nothing, tasks unlike"),
	}
}

// examples are the setups of examples small enough to work out by hand; messages take no time in them.
type examples struct{ pigeon, central, weighted, strict, reserved dispatch.Setup }

const (
	exampleCutoff = 15 // between the times of the examples' short and long tasks
	exampleSeed   = 8  // draws the groups of jobs B and C as the paper has them: B gets the first and C the second
	waitingEach   = 60 // short and as many long tasks wait for one worker
	firstTasks    = 50 // of those that it runs count
)

func honestExamples() examples {
	setup := func(p dispatch.Policy, workers, groups, reserved, w int, cutoff float64) dispatch.Setup {
		return dispatch.Setup{Policy: p, Workers: workers, Groups: groups, Reserved: reserved, W: w, Cutoff: cutoff, Placement: policies.Block, Distributors: 1}
	}
	return examples{
		pigeon:   setup(dispatch.Pigeon, 4, 2, 0, strict, math.MaxFloat64),
		central:  setup(dispatch.Central, 4, 1, 0, strict, math.MaxFloat64),
		weighted: setup(dispatch.Pigeon, 1, 1, 0, 5, exampleCutoff),
		strict:   setup(dispatch.Pigeon, 1, 1, 0, strict, exampleCutoff),
		reserved: setup(dispatch.Pigeon, 8, 2, 1, strict, exampleCutoff),
	}
}

// job is a job of an example: tasks of the given times.
func job(at float64, times ...float64) traces.Job {
	j := traces.Job{Arrival: at, Times: times}
	j.Mean = j.Work() / float64(len(times))
	return j
}

// targets are G1.
func (x examples) targets(ctx context.Context) (all []report.Target, err error) {
	paper := [][]traces.Job{{job(0, 20, 1, 1, 10, 10, 10), job(0, 2), job(0, 2)}}
	busy := []traces.Job{job(0, 1)} // keeps the worker busy while both kinds come
	for range waitingEach {
		busy = append(busy, job(0.5, 1), job(0.5, 20))
	}
	var reserve [][]traces.Job
	for _, tasks := range []int{6, 8} {
		reserve = append(reserve, []traces.Job{job(0, slices.Repeat([]float64{20}, tasks)...), job(10, 1, 1)})
	}
	total := func(_ int, _ *traces.Job, took float64) float64 { return took }
	low := func(ended int, j *traces.Job, _ float64) float64 {
		if ended > 1 && ended <= 1+firstTasks && j.Mean > exampleCutoff {
			return 1
		}
		return 0
	}
	for _, e := range []struct {
		id, what, unit string
		setup          dispatch.Setup
		loads          [][]traces.Job
		counts         func(ended int, j *traces.Job, took float64) float64
		want           float64
		note           string
	}{
		{"pigeon", "worked example, two groups of two: sum of completion times", "", x.pigeon, paper, total, 36, "tasks in blocks, B to the first group and C to the second"},
		{"central", "worked example, one scheduler for all: sum of completion times", "", x.central, paper, total, 45, ""},
		{"weight", "one busy worker, W = 5: long tasks among the first 50 while both kinds wait", "", x.weighted, [][]traces.Job{busy}, low, 10, "one of every five"},
		{"strict", "the same with strict priority", "", x.strict, [][]traces.Job{busy}, low, 0, "none"},
		{
			"reserve", "two groups of four, one reserved: sum of completion times", "s", x.reserved, reserve, total, 62,
			"long jobs of 6 and of 8 tasks of 20 s take 20 and 40 s, two short ones of 1 s take 1 s each",
		},
	} {
		got := 0.0
		for _, jobs := range e.loads {
			ended := 0
			err := play(ctx, e.setup, jobs, exampleSeed, func(i int, took float64) {
				ended++
				got += e.counts(ended, &jobs[i], took)
			})
			if err != nil {
				return nil, err
			}
		}
		ordered := math.Abs(got-e.want) <= 0.1*math.Abs(e.want)
		all = append(all, report.From(e.want, report.Around(e.want, 1e-9), report.Judge("G1/"+e.id, e.what, e.unit, report.Once(got), ordered, e.note)))
	}
	return all, nil
}
