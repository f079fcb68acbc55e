package pigeon

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mathext"

	policies "headroom/jobs/dispatch/pigeon"
	"headroom/lab/dispatch"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// figures are the results of a study, from which targets are judged.
type figures struct {
	scenes []scene
	trials []trial
	forms  forms
	exact  []report.Target
	// why names what is missing for a trace that was not run.
	why map[string]string
}

type value func(m *measured) float64

func took(class, i int) value  { return func(m *measured) float64 { return m.took[class][i] } }
func slow(i int) value         { return func(m *measured) float64 { return m.slow[short][i] } }
func zero(m *measured) float64 { return m.zero }
func wait(m *measured) float64 { return m.wait }
func (t trial) of(scene, run string, v value) float64 {
	m := t[key{scene, run}]
	return v(&m)
}

// ratios are the percentiles of the completion times of a class under one run over those under another.
func (t trial) ratios(scene, mine, than string, class int) []float64 {
	out := make([]float64, 3)
	for i := range out {
		out[i] = t.of(scene, mine, took(class, i)) / t.of(scene, than, took(class, i))
	}
	return out
}

func (f *figures) of(scene, run string, v value) report.Stat {
	return report.Over(f.trials, func(t trial) float64 { return t.of(scene, run, v) })
}

// ratio is a percentile of the short jobs under one run over that under another, seed by seed.
func (f *figures) ratio(scene, mine, than string, i int) report.Stat {
	return report.Over(f.trials, func(t trial) float64 { return t.ratios(scene, mine, than, short)[i] })
}

// targets are all of them: G1 exact examples, G2 closed forms, G3 simulation against them, G4 generated traces against Eagle, G5 the
// weight W, G6 Fig. 4.11, G7 the long traces.
func (f *figures) targets() []report.Target {
	all := slices.Concat(f.exact, f.forms.targets(), f.model())
	for _, p := range allPublished() {
		all = slices.Concat(all, f.against(p.name), f.weights(p.name))
	}
	return slices.Concat(all, f.fig411(), f.wide())
}

// within are tolerances as parts of a number.
const (
	zeroWithin   = 0.01 // of the probability, as a difference: "less than 1 %"
	waitWithin   = 0.12 // "the largest difference is about 12 %"
	longWithin   = 2    // per cent: "within 2 %"
	figureWithin = 0.15 // of Fig. 4.11's cells
	shortWithin  = 0.25 // of the slowdowns on Yahoo's trace, which are on generated jobs here
	waitShare    = 4    // per cent of T_e: "less than 4 %"
	deviations   = 3    // of the seeds, for p99 in Fig. 4.11
)

func around(x, part float64) report.Range { return report.Around(x, math.Abs(x)*part) }

// model is G3: the simulation against the closed forms.
func (f *figures) model() (all []report.Target) {
	for _, size := range modelGroups() {
		for _, load := range modelLoads() {
			p, name := f.forms.predict(cluster{size, modelFanout, load, modelTask}), modelName(size, load)
			got := f.of(name, pigeonName, zero)
			all = append(all, report.From(p.zeroVaried, report.Around(p.zeroVaried, zeroWithin), report.Judge(
				"G3/zero"+strings.TrimPrefix(name, "model"), fmt.Sprintf("jobs that wait for nothing, groups of %d, load %.0f %%: simulated, against (4.6)", size, 100*load), "", got,
				math.Abs(got.Mean-p.zeroVaried) < 5*zeroWithin, "as the number of the paper stands (4.6)")))
			if size == 50 && load == 0.9 {
				w := f.of(name, pigeonName, wait)
				all = append(all, report.From(p.wait*1000, around(p.wait*1000, waitWithin), report.Judge("G3/wait-50-90",
					"mean wait of jobs, groups of 50, load 90 %: simulated, against (4.2)", "ms", scaled(w, 1000), math.Abs(w.Mean/p.wait-1) < 2*waitWithin,
					"as the number of the paper stands (4.2)")))
			}
		}
	}
	for _, size := range []int{100, 200} {
		share := scaled(f.of(modelName(size, 0.9), pigeonName, wait), 100/modelTask)
		all = append(all, report.From(waitShare, report.AtMost(waitShare), report.Judge(fmt.Sprintf("G3/share-%d", size),
			fmt.Sprintf("mean wait over the mean time of a task, groups of %d, load 90 %%", size), "%", share, share.Mean < 2*waitShare, "")))
	}
	return all
}

func scaled(s report.Stat, by float64) report.Stat {
	s.Mean, s.Low, s.High = s.Mean*by, s.Low*by, s.High*by
	return s
}

// against is G4: Pigeon against Eagle on a generated trace. The paper's numbers are of Yahoo's.
func (f *figures) against(name string) (all []report.Target) {
	published := name == "yahoo"
	numbers := map[string][3]float64{weighted(20): {1.3, 1.5, 5.3}, weighted(strict): {1.2, 1.4, 3.6}}
	for _, run := range []string{weighted(20), weighted(strict)} {
		for i, q := range percentileNames() {
			got, other := f.of(name, run, slow(i)), f.of(name, eagle, slow(i))
			t := report.Judge(fmt.Sprintf("G4/%s-%s-%s", name, strings.TrimPrefix(run, "pigeon-"), q),
				fmt.Sprintf("%s, %s: slowdown of short jobs, %s", name, run, q), "", got, got.Mean < other.Mean, fmt.Sprintf("to be below Eagle's %s", other))
			if published {
				t = report.From(numbers[run][i], around(numbers[run][i], shortWithin), t)
			}
			all = append(all, t)
		}
	}
	for i, q := range percentileNames() {
		if got, mine := f.of(name, eagle, slow(i)), f.of(name, weighted(20), slow(i)); published {
			all = append(all, report.From(70, report.AtLeast(70), report.Judge(fmt.Sprintf("G4/%s-eagle-%s", name, q),
				fmt.Sprintf("%s, Eagle: slowdown of short jobs, %s", name, q), "", got, got.Mean > mine.Mean, fmt.Sprintf("to be above Pigeon's %s", mine))))
		}
	}
	worst := report.Over(f.trials, func(t trial) float64 { return 100 * (slices.Max(t.ratios(name, weighted(20), eagle, long)) - 1) })
	return append(all, report.Judge("G4/"+name+"-long-eagle", name+": long jobs, Pigeon beyond Eagle, the worst of p50, p90, p99", "%", worst, worst.Mean <= longWithin,
		"Pigeon is slightly better in the paper; not to be worse by more than 2 %"))
}

// weights is G5: how W changes what short and long jobs take.
func (f *figures) weights(name string) []report.Target {
	twenty, five := f.ratio(name, weighted(20), weighted(strict), 2), f.ratio(name, weighted(5), weighted(strict), 2)
	off := report.Over(f.trials, func(t trial) float64 {
		most := 0.0
		for _, w := range []int{10, 20} {
			for _, x := range t.ratios(name, weighted(w), weighted(strict), long) {
				most = max(most, 100*math.Abs(x-1))
			}
		}
		return most
	})
	return []report.Target{
		report.From(140, report.AtMost(140), report.Judge("G5/"+name+"-w20", name+": p99 of short jobs at W = 20 over that of strict priority", "%",
			scaled(twenty, 100), twenty.Mean >= 0.98 && twenty.Mean < five.Mean, "to be below W = 5, and strict priority to be best")),
		report.From(300, report.AtLeast(300), report.Judge("G5/"+name+"-w5", name+": p99 of short jobs at W = 5 over that of strict priority", "%",
			scaled(five, 100), five.Mean > twenty.Mean && five.Mean > 1, "to be above W = 20")),
		report.From(0, report.AtMost(longWithin), report.Judge("G5/"+name+"-long",
			name+": long jobs, W = 10 and 20 against strict priority, the largest difference of p50, p90, p99", "%", off, off.Mean < 5*longWithin, "")),
	}
}

// cell is a row of Fig. 4.11: percentiles of a policy and class at a load, s.
type cell struct {
	load      int
	run, name string
	class     int
	at        [3]float64
}

// cells are the numbers of the public simulator with its leak of reserved workers mended, means of 40 seeds; the figure itself has
// only ratios.
func cells() []cell {
	return []cell{
		{50, pigeonName, "short", short, [3]float64{0.350, 0.928, 2.52}},
		{50, pigeonName, "long", long, [3]float64{171, 212, 256}},
		{50, eagle, "short", short, [3]float64{0.39, 1.88, 6.01}},
		{50, sparrow, "short", short, [3]float64{0.729, 141, 175}},
		{70, pigeonName, "short", short, [3]float64{0.393, 1.306, 4.32}},
		{70, pigeonName, "long", long, [3]float64{189, 240, 279}},
		{70, eagle, "short", short, [3]float64{0.871, 29.6, 38.1}},
		{70, sparrow, "short", short, [3]float64{49.5, 170, 201}},
		{90, pigeonName, "short", short, [3]float64{0.481, 1.811, 3.76}},
		{90, pigeonName, "long", long, [3]float64{199, 256, 291}},
		{90, eagle, "short", short, [3]float64{11.8, 52.6, 57.3}},
		{90, sparrow, "short", short, [3]float64{101, 189, 216}},
	}
}

func (f *figures) fig411() (all []report.Target) {
	for _, load := range googleLoads() {
		name := googleName(load)
		for _, c := range cells() {
			for i, number := range c.at {
				if c.load == load {
					all = append(all, f.cell(name, c, i, number))
				}
			}
		}
		if load == 60 || load == 80 {
			all = append(all, f.ordered(name, "G6"))
		}
	}
	name := googleName(90)
	for i, number := range [3]float64{25, 30, 7} {
		got := f.ratio(name, eagle, pigeonName, i)
		all = append(all, f.needs(name, report.From(number, around(number, figureWithin), report.Judge("G6/"+name+"-eagle-"+percentileNames()[i],
			fmt.Sprintf("%s: short jobs, Eagle over Pigeon, %s", name, percentileNames()[i]), "", got, got.Mean > 1, "to be above 1"))))
	}
	for _, load := range yahooLoads() {
		all = append(all, f.ordered(yahooName(load), "G6"))
	}
	return all
}

func near(got report.Stat, number float64) bool { return got.Mean > number/2 && got.Mean < number*1.5 }

// cell is one number of Fig. 4.11. p99 may be off by as much as three standard deviations of the seeds, if that is more.
func (f *figures) cell(name string, c cell, i int, number float64) report.Target {
	got := f.of(name, c.run, took(c.class, i))
	within, note := number*figureWithin, "to be nearer than by half"
	squares := 0.0
	for _, t := range f.trials {
		off := t.of(name, c.run, took(c.class, i)) - got.Mean
		squares += off * off
	}
	if d := deviations * math.Sqrt(squares/max(1, float64(len(f.trials)-1))); i == 2 && d > within {
		within, note = d, note+fmt.Sprintf("; three deviations of the seeds are %.2f s", d)
	}
	q := percentileNames()[i]
	return f.needs(name, report.From(number, report.Around(number, within), report.Judge(
		fmt.Sprintf("G6/%s-%s-%s-%s", name, c.run, c.name, q), fmt.Sprintf("%s, %s: %s jobs, %s", name, c.run, c.name, q), "s", got, near(got, number), note)))
}

// ordered is a target of a trace of which there are no numbers: short jobs take longer by Eagle and by Sparrow than by Pigeon, at
// all percentiles.
func (f *figures) ordered(name, group string) report.Target {
	least := report.Over(f.trials, func(t trial) float64 {
		return slices.Min(append(t.ratios(name, eagle, pigeonName, short), t.ratios(name, sparrow, pigeonName, short)...))
	})
	return f.needs(name, report.Judge(group+"/"+name+"-order", name+": short jobs, the least of Eagle over Pigeon and Sparrow over Pigeon, p50, p90, p99", "",
		least, least.Mean >= 1, "to be 1 or more"))
}

// needs is a target on a trace: not run where the trace is not there.
func (f *figures) needs(name string, t report.Target) report.Target {
	if why, ok := f.why[name]; ok {
		left := report.Left(t.ID, t.What, t.Unit, why)
		left.Paper = t.Paper
		return left
	}
	return t
}

// wide is G7: the long traces. For the first of Yahoo's there are numbers of groups of 100 (mended public simulator).
func (f *figures) wide() (all []report.Target) {
	const name = "hawk-yahoo1"
	for i, number := range [3]float64{30.9, 84.0, 258} {
		got, q := f.of(name, pigeonName, took(short, i)), percentileNames()[i]
		all = append(all, f.needs(name, report.From(number, around(number, figureWithin), report.Judge("G7/"+name+"-short-"+q,
			fmt.Sprintf("%s, groups of 100: short jobs, %s", name, q), "s", got, near(got, number), "to be nearer than by half"))))
	}
	return append(all, f.ordered(name, "G7"), f.ordered("hawk-yahoo2", "G7"), f.ordered("hawk-google", "G7"))
}

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
func (o *off) target(id, what string) report.Target {
	return report.From(0, report.AtMost(10), report.Judge(id, what+": greatest difference from the table", "1e-8", report.Once(float64(*o)*1e8), *o < 1e-2, ""))
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
					sparrow.add(x.sparrow(load, fanout), row[7+k]) //nolint:gosec // a row has nine cells
				}
			}
		}
	}
	for _, workers := range modelGroups() {
		for i, load := range []float64{0.80, 0.85, 0.90, 0.95} {
			row, p := waitTable()[workers], x.predict(cluster{workers, 100, load, mean})
			// The table has microseconds with three digits: as parts of T_e, eight.
			wait.add(p.wait/mean, row[i]/mean)
			varied.add(p.zeroVaried, row[4+i]) //nolint:gosec // a row has eight cells
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
