package specs

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/lab/arbitration"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
)

// The arbiter against a rule that serves urgent jobs first, without sprints and with sprints by a timer, on a
// mixed load under a budget that falls in the middle third of a run.
const (
	arbiterOurs = "arbiter"
	// arbiterFor is for how long jobs come.
	arbiterFor = 150 * time.Second
	// tolerantFloor is the part of its tasks that a tolerant job may end on.
	tolerantFloor = 0.6
)

// stream is one kind of jobs: of so many tasks, and about one in each gap, half of it more or less.
type stream struct {
	name     string
	tasks    int
	gap      time.Duration
	deadline time.Duration // of urgent jobs; 0 for tolerant ones
}

// arbiterEngine is what an engine runs, and the rule that the arbiter is compared with there.
type arbiterEngine struct {
	name, policy, limit string
	engine              harness.Engine
	streams             []stream
}

// arbiterEngines has fewer and longer jobs on Hadoop and Spark: each starts a master or a driver, and JVMs.
//
// On the scheduler's own engine, discipline np with room for all jobs begins each at once, and free slots go by
// class. Hadoop's fair scheduler divides by weight. A standalone Spark gives all cores to the first application,
// so two drivers run at once, the more urgent begins next, and policy equal gives both as many executors.
func arbiterEngines() []arbiterEngine {
	return []arbiterEngine{
		{"local", "fair", "width: 100\n", harness.Local(6*time.Second, harness.LocalSlots, 0.75), []stream{
			{"small", 12, 45 * time.Second, 30 * time.Second}, {"large", 24, 90 * time.Second, 45 * time.Second}, {"bulk", 72, 100 * time.Second, 0},
		}},
		{
			"yarn", "fair", "",
			harness.YARN(harness.Class{Name: string(arbitration.Urgent), Weight: 100, Guarantee: 1}, harness.Class{Name: string(arbitration.Tolerant), Weight: 1, Guarantee: tolerantFloor}),
			[]stream{{"small", 8, 90 * time.Second, 75 * time.Second}, {"large", 16, 180 * time.Second, 2 * time.Minute}, {"bulk", 40, 200 * time.Second, 0}},
		},
		{"spark", "equal", "width: 2\n", harness.Spark(harness.Popularity(1 << 20)), []stream{
			{"small", 16, 80 * time.Second, 75 * time.Second}, {"large", 32, 160 * time.Second, 2 * time.Minute}, {"bulk", 80, 160 * time.Second, 0},
		}},
	}
}

func arbiter() (all []*experiment.Spec) {
	const classes, timed = "classes: [urgent, tolerant]\n", "classes:\n  - {name: urgent, sprint_after: 2s}\n  - {name: tolerant}\n"
	compared := []comparison{
		{arbitration.WeightedS, "objective", 1, 5, false},
		{arbitration.UrgentMean, "mean latency of urgent jobs", 1, 5, false},
		{arbitration.UrgentP95, "95th percentile of the latency of urgent jobs", 1, 5, false},
		{arbitration.UrgentMissed, "missed deadlines of urgent jobs", 1, 5, true},
	}
	for _, e := range arbiterEngines() {
		says := "the arbiter against urgent jobs first, under a budget that falls for a while, engine " + e.name
		all = append(all, versus("arbiter-"+e.name, says, []harness.Variant{
			{Name: arbiterOurs, Policy: "joint", Scheduler: "discipline: shared\n" + classes},
			{Name: "urgent-first-fair", Policy: e.policy, Scheduler: "discipline: np\n" + e.limit + classes, Exact: true},
			{Name: "urgent-first-fair-sprint", Policy: e.policy, Scheduler: "discipline: nps\n" + e.limit + timed, Exact: true},
		}, compared, harness.Setup{
			Coordinators: 3, Nodes: 2, Engine: e.engine, For: arbiterFor, Margin: 0.45, Sprint: 20, Refill: 0.1,
			Steps: thirds(arbiterFor, []float64{0.55}, []float64{0.42}),
		}, e.jobs, arbiterFigures))
	}
	return all
}

// jobs are the jobs of a seed by their arrival. The first of each stream comes within half a gap, so that each has one.
func (e *arbiterEngine) jobs(seed uint64) (out []harness.Job) {
	for i, s := range e.streams {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		part := func(of float64) time.Duration { return time.Duration(of * float64(s.gap)) }
		for at := part(r.Float64() / 2); at < arbiterFor; at += part(0.5 + r.Float64()) {
			j := harness.Job{Name: s.name + "-" + at.Round(time.Second).String(), Class: string(arbitration.Urgent), At: at, Tasks: s.tasks, Deadline: s.deadline}
			if s.deadline == 0 {
				j.Class, j.Floor = string(arbitration.Tolerant), tolerantFloor
			}
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, func(a, b harness.Job) int { return cmp.Compare(a.At, b.At) })
	return out
}

func arbiterFigures(seen *harness.Seen) experiment.Figures {
	var served []arbitration.Served
	sprints, joules := 0, 0.0
	for i := range seen.Jobs {
		o := &seen.Jobs[i]
		j := arbitration.Job{Class: arbitration.Class(o.Job.Class), Arrival: o.Job.At, Tasks: o.Job.Tasks, Deadline: o.Job.Deadline, Floor: cmp.Or(o.Job.Floor, 1)}
		served = append(served, arbitration.Served{Job: j, Took: o.Took, Done: o.Job.Tasks - o.Dropped, Dropped: o.Dropped})
		sprints, joules = sprints+o.Sprints, joules+o.Spent.Joules()
	}
	f := experiment.Figures(arbitration.FiguresOf(served))
	f[arbitration.EnergyJ], f[arbitration.SprintJ], f["sprints"] = seen.Energy.Joules(), joules, float64(sprints)
	return f
}
