package specs

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"headroom/jobs/buffers"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
	"headroom/lab/report"
	"headroom/lab/spark"
)

// DIAS on real tasks: one job at a time of two classes under its five policies, and the same job at several drop
// ratios (Figs. 4 and 6). Nodes are capped below what they are rated, so that a sprint has something to give.
const (
	high, low = "high", "low"
	// highOf: of so many jobs one is of the high class.
	highOf = 3
	// lowTheta is the drop ratio of the low class under da and dias, in percent.
	lowTheta = 20
	// exactError is how many percent a result may miss that drops nothing: sums of doubles.
	exactError = 1e-6
)

// diasProgram is what jobs compute on an engine.
type diasProgram struct {
	name, says, ids string
	engine          func() harness.Engine
	// jobs come about every gap, of so many tasks each.
	jobs, tasks int
	gap         time.Duration
	// cap is the nodes' caps, sprintAfter the sprint timer of the high class.
	cap         float64
	sprintAfter time.Duration
	// power is with which power of the kept part a result grows that is not scaled; 0 where no answer is compared.
	power float64
	// ratios are drop ratios in percent, the error is judged at the one judged; saves is by how many percent
	// the largest must shorten a job.
	ratios []int
	judged int
	saves  float64
}

func diasPrograms() []diasProgram {
	return []diasProgram{
		{
			name: "dias-local", says: "word count", ids: "L", engine: func() harness.Engine { return harness.Local(2500*time.Millisecond, harness.LocalSlots, 0.7) },
			jobs: 18, tasks: 16, gap: 6250 * time.Millisecond, cap: 0.55, sprintAfter: time.Second,
		},
		{
			name: "dias-spark", says: "GraphX's triangle count, dropping in every stage", ids: "G", engine: func() harness.Engine { return harness.Spark(triangles()) },
			jobs: 6, tasks: 5, gap: 9 * time.Second, cap: 0.7, sprintAfter: 5 * time.Second, power: 3, ratios: []int{0, 5, 10, 20}, judged: 10,
		},
		{
			name: "dias-words", says: "word popularity on Spark", ids: "L", engine: func() harness.Engine { return harness.Spark(words()) },
			jobs: 6, tasks: 16, gap: 12 * time.Second, cap: 0.7, sprintAfter: 5 * time.Second, power: 1, ratios: []int{0, 20, 40, 60, 90}, judged: 20, saves: 30,
		},
	}
}

// words and triangles compare their answers with exact counts.
func words() harness.App {
	const topWords, asked = 100, 400 // a frequent word may seem less so
	a := harness.Popularity(9 << 20 / 16)
	a.ExecutorCores, a.MemoryMB = 0, 0
	write, exactly := a.Write, map[string]float64{}
	a.Write = func(r *experiment.Run, j *harness.Job) (err error) {
		if err = write(r, j); err == nil && len(exactly) == 0 {
			exactly, err = spark.CountWords(a.Job(r, j).Args[0])
		}
		return err
	}
	job := a.Job
	a.Job = func(r *experiment.Run, j *harness.Job) spark.Job {
		app := job(r, j)
		app.Args[2], app.Conf = strconv.Itoa(asked), nil
		return app
	}
	a.Wrong = func(got spark.Answer) float64 { return 100 * spark.MeanError(exactly, got.Counts(), topWords) }
	return a
}

func triangles() harness.App {
	edges, exactly := func(r *experiment.Run) string { return r.Path("edges.txt") }, 0.0
	return harness.App{
		Write: func(r *experiment.Run, _ *harness.Job) (err error) {
			if exactly > 0 {
				return nil
			}
			if _, err = (spark.Graph{Vertices: 4000, Edges: 30000, Seed: r.Seed}).Write(edges(r)); err == nil {
				exactly, err = spark.CountTriangles(edges(r))
			}
			return err
		},
		Job: func(r *experiment.Run, j *harness.Job) spark.Job {
			return spark.Triangles(r.Program(harness.JarSparkApps), edges(r), j.Tasks, spark.Drop{Stages: "all"})
		},
		Wrong: func(a spark.Answer) float64 { return 100 * math.Abs(a.Triangles-exactly) / exactly },
	}
}

func dias() (all []*experiment.Spec) {
	for _, p := range diasPrograms() {
		files := p.engine().Files
		s := &experiment.Spec{Name: p.name, Says: "DIAS: " + p.says + " under five policies", Files: files, Pairs: 5, Claims: p.claims()}
		for _, d := range []buffers.Discipline{buffers.P, buffers.NP, buffers.DA, buffers.NPS, buffers.DIAS} {
			s.Variants = append(s.Variants, string(d))
		}
		all = append(all, serves(s, p.policies, diasFigures))
		if p.ratios == nil {
			continue
		}
		drops := &experiment.Spec{Name: p.name + "-drops", Says: "DIAS: " + p.says + " at several drop ratios", Files: files, Pairs: 2, Claims: p.curve()}
		for _, ratio := range p.ratios {
			drops.Variants = append(drops.Variants, strconv.Itoa(ratio))
		}
		all = append(all, serves(drops, p.drops, dropFigures))
	}
	return all
}

// claims are orderings, with room for what else the machine does.
func (p *diasProgram) claims() []experiment.Claim {
	const kill, np, da, nps, dias, slack = string(buffers.P), string(buffers.NP), string(buffers.DA), string(buffers.NPS), string(buffers.DIAS), 5.
	change := func(id, what, figure, ours, theirs string, to report.Range) experiment.Claim {
		return claim(p.ids+id, ours+" against "+theirs+": "+what, "%", to, experiment.Change(figure, ours, theirs))
	}
	above := func(id, what, unit, variant, figure string) experiment.Claim {
		return claim(p.ids+id, what, unit, report.Above(0), experiment.Of(variant, figure))
	}
	no := func(id, what, figure string, variants ...string) experiment.Claim {
		return none(p.ids+id, what, func(x experiment.Pair) (sum float64) {
			for _, v := range variants {
				sum += x[v][figure]
			}
			return sum
		})
	}
	quicker := change("5", "mean execution of the high class, which sprinted", "high_exec_s", nps, np, report.Below(0))
	faster := quicker.Value
	quicker.Value = func(x experiment.Pair) float64 {
		if x[nps]["high_sprints"] == 0 {
			return 100 // what the times show is not by sprints
		}
		return faster(x)
	}
	all := []experiment.Claim{
		above("1", "p: machine time of killed runs", "%", kill, "killed_pct"),
		no("1/none", "np, da, nps and dias: killed runs", "reruns", np, da, nps, dias),
		change("2", "mean response of the high class, a rise", "high_response_s", np, kill, report.Above(0)),
		change("3", "mean response of the low class", "low_response_s", da, np, report.Below(slack)),
		change("4", "mean execution of the low class", "low_exec_s", da, np, report.Below(0)),
		quicker,
		change("6", "mean response of the low class", "low_response_s", dias, kill, report.Below(0)),
		change("7", "energy of all jobs", "joules", dias, kill, report.Below(slack)),
		above("10", "nps: high jobs that sprinted", "%", nps, "high_sprinted_pct"),
		no("10/none", "p, np and da: jobs that sprinted", "sprints", kill, np, da),
		above("11", "nps: joules of a sprint above the caps", "J", nps, "sprint_j"),
	}
	if p.power > 0 {
		missed := report.Range{Low: math.SmallestNonzeroFloat64, High: 100 * (1 - math.Pow(1-lowTheta/100., p.power))}
		all = append(all,
			claim(p.ids+"12", "da and dias: error of the low class's results, below that of a result that is not scaled", "%", missed, func(x experiment.Pair) float64 {
				return (experiment.Of(da, "low_error_pct")(x) + experiment.Of(dias, "low_error_pct")(x)) / 2
			}),
			no("12/exact", "jobs that drop nothing and have an error", "inexact", kill, np, da, nps, dias))
	}
	return all
}

// arrivals are jobs that come somewhat faster than they are done, so that they queue. So few jobs of Poisson
// streams might all come apart, or all be of one class.
func (p *diasProgram) arrivals(seed uint64) (all []harness.Job) {
	rng, at := rand.New(rand.NewPCG(seed, 99)), 0.0
	for i := range p.jobs {
		at += p.gap.Seconds() * (0.5 + rng.Float64())
		j := harness.Job{Name: fmt.Sprintf("j%02d", i), Class: low, At: time.Duration(at * float64(time.Second)), Tasks: p.tasks, Floor: 1 - lowTheta/100.}
		if i%highOf == 1 {
			j.Class, j.Floor = high, 0
		}
		all = append(all, j)
	}
	return all
}

// setup is a cluster with these classes. The container policy fair leaves drops and sprints to the dispatcher.
func (p *diasProgram) setup(discipline, classes string, jobs []harness.Job) *harness.Setup {
	return &harness.Setup{
		Coordinators: 1, Nodes: 2, Engine: p.engine(), Jobs: jobs, Steps: []harness.Step{{Caps: []float64{p.cap}}}, Margin: 1, Sprint: 60, Refill: 1,
		Variant: harness.Variant{Policy: "fair", Scheduler: "discipline: " + discipline + "\nwidth: 1\nclasses:\n" + classes},
	}
}

// policies is the set-up of a policy, drops that of one job after the other at a drop ratio.
func (p *diasProgram) policies(r *experiment.Run) *harness.Setup {
	classes := fmt.Sprintf("  - {name: %s, sprint_after: %v}\n  - {name: %s, theta: %d%%}\n", high, p.sprintAfter, low, lowTheta)
	return p.setup(r.Variant, classes, p.arrivals(r.Seed))
}

func (p *diasProgram) drops(r *experiment.Run) *harness.Setup {
	ratio, _ := strconv.ParseFloat(r.Variant, 64) // variants are numbers
	var jobs []harness.Job
	for i := range 2 {
		jobs = append(jobs, harness.Job{Name: "j" + strconv.Itoa(i), Class: low, Tasks: p.tasks, Floor: 1 - ratio/100})
	}
	return p.setup(string(buffers.DA), fmt.Sprintf("  - {name: %s, theta: %s%%}\n", low, r.Variant), jobs)
}

func diasFigures(seen *harness.Seen) experiment.Figures {
	m, sums := means{}, experiment.Figures{"reruns": 0, "sprints": 0, "high_sprints": 0, "inexact": 0}
	joules := 0.0
	for i := range seen.Jobs {
		o := &seen.Jobs[i]
		class := o.Job.Class
		m.add(class+"_response_s", o.Took.Seconds())
		m.add(class+"_exec_s", o.Exec.Seconds())
		m.add(class+"_sprinted_pct", 100*one(o.Sprints > 0))
		sums["reruns"] += float64(max(0, o.Runs-1))
		sums["sprints"] += one(o.Sprints > 0)
		sums[class+"_sprints"] += float64(o.Sprints)
		joules += o.Spent.Joules()
		if o.Drawn != nil {
			m.add("joules", o.Drawn.Joules())
		}
		if o.Wrong != nil {
			m.add(class+"_error_pct", *o.Wrong)
			sums["inexact"] += one(o.Theta == 0 && *o.Wrong > exactError)
		}
	}
	f := m.figures()
	maps.Copy(f, sums)
	if len(m["joules"]) < len(seen.Jobs) {
		delete(f, "joules") // not of all jobs
	}
	if n := sums["high_sprints"] + sums["low_sprints"]; n > 0 {
		f["sprint_j"] = joules / n
	}
	if seen.TotalS > 0 {
		f["killed_pct"] = 100 * seen.KilledS / seen.TotalS
	}
	return f
}

// curve claims that times fall with the drop ratio and errors rise.
func (p *diasProgram) curve() []experiment.Claim {
	largest := p.ratios[len(p.ratios)-1]
	falling := report.Below(-p.saves)
	saving := claim(p.ids+"8", fmt.Sprintf("%s: time with %d %% dropped against all tasks (Fig. 4)", p.says, largest), "%",
		falling, experiment.Change("exec_s", strconv.Itoa(largest), "0"))
	saving.Order = experiment.Mean(report.Below(0))
	return []experiment.Claim{
		saving,
		claim(p.ids+"9", fmt.Sprintf("%s: error of the result with %d %% dropped (Fig. 6)", p.says, p.judged), "%",
			report.Above(0), experiment.Of(strconv.Itoa(p.judged), "error_pct")),
		none(p.ids+"9/rises", p.says+": errors, 0 with all tasks and no less than two ratios before", func(x experiment.Pair) (falls float64) {
			for i, ratio := range p.ratios {
				is := x[strconv.Itoa(ratio)]["error_pct"]
				falls += one(i == 0 && is > exactError) + one(i > 1 && is < x[strconv.Itoa(p.ratios[i-2])]["error_pct"])
			}
			return falls
		}),
	}
}

func dropFigures(seen *harness.Seen) experiment.Figures {
	m := means{}
	for i := range seen.Jobs {
		m.add("exec_s", seen.Jobs[i].Exec.Seconds())
		if wrong := seen.Jobs[i].Wrong; wrong != nil {
			m.add("error_pct", *wrong)
		}
	}
	return m.figures()
}
