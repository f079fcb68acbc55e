package specs

import (
	"cmp"
	"context"
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
	arbiterOurs, arbiterFair, arbiterSprint = "arbiter", "urgent-first-fair", "urgent-first-fair-sprint"
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
	files               []string
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
		{"local", "fair", "width: 100\n", nil, harness.Local(6*time.Second, harness.LocalSlots, 0.75), []stream{
			{"small", 12, 45 * time.Second, 30 * time.Second}, {"large", 24, 90 * time.Second, 45 * time.Second}, {"bulk", 72, 100 * time.Second, 0},
		}},
		{
			"yarn", "fair", "",
			[]string{harness.JarHadoop, harness.JarHadoopApps},
			harness.YARN(harness.Class{Name: string(arbitration.Urgent), Weight: 100, Guarantee: 1}, harness.Class{Name: string(arbitration.Tolerant), Weight: 1, Guarantee: tolerantFloor}),
			[]stream{{"small", 8, 90 * time.Second, 75 * time.Second}, {"large", 16, 180 * time.Second, 2 * time.Minute}, {"bulk", 40, 200 * time.Second, 0}},
		},
		{"spark", "equal", "width: 2\n", []string{harness.JarSpark, harness.JarSparkApps}, harness.Spark(harness.Popularity(1 << 20)), []stream{
			{"small", 16, 80 * time.Second, 75 * time.Second}, {"large", 32, 160 * time.Second, 2 * time.Minute}, {"bulk", 80, 160 * time.Second, 0},
		}},
	}
}

func arbiter() (all []*experiment.Spec) {
	for _, e := range arbiterEngines() {
		s := &experiment.Spec{
			Name: "arbiter-" + e.name, Says: "the arbiter against urgent jobs first, under a budget that falls for a while, engine " + e.name,
			Variants: []string{arbiterOurs, arbiterFair, arbiterSprint}, Files: e.files, Pairs: 5, Run: e.run,
		}
		for _, theirs := range s.Variants[1:] {
			s.Claims = append(s.Claims,
				notWorse(arbitration.WeightedS, "objective", arbiterOurs, theirs, 1, 5, false),
				notWorse(arbitration.UrgentMean, "mean latency of urgent jobs", arbiterOurs, theirs, 1, 5, false),
				notWorse(arbitration.UrgentP95, "95th percentile of the latency of urgent jobs", arbiterOurs, theirs, 1, 5, false),
				notWorse(arbitration.UrgentMissed, "missed deadlines of urgent jobs", arbiterOurs, theirs, 1, 5, true))
		}
		all = append(all, s)
	}
	return all
}

func (e *arbiterEngine) variant(name string) harness.Variant {
	const classes, timed = "classes: [urgent, tolerant]\n", "classes:\n  - {name: urgent, sprint_after: 2s}\n  - {name: tolerant}\n"
	switch name {
	case arbiterFair:
		return harness.Variant{Name: name, Policy: e.policy, Scheduler: "discipline: np\n" + e.limit + classes, Exact: true}
	case arbiterSprint:
		return harness.Variant{Name: name, Policy: e.policy, Scheduler: "discipline: nps\n" + e.limit + timed, Exact: true}
	}
	return harness.Variant{Name: name, Policy: "joint", Scheduler: "discipline: shared\n" + classes}
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

func (e *arbiterEngine) run(ctx context.Context, r *experiment.Run) (experiment.Figures, error) {
	seen, err := harness.Serve(ctx, r, &harness.Setup{
		Coordinators: 3, Nodes: 2, Engine: e.engine, Variant: e.variant(r.Variant), Jobs: e.jobs(r.Seed), For: arbiterFor,
		Steps:  []harness.Step{{At: 0, Caps: []float64{0.55}}, {At: arbiterFor / 3, Caps: []float64{0.42}}, {At: arbiterFor * 2 / 3, Caps: []float64{0.55}}},
		Margin: 0.45, Sprint: 20, Refill: 0.1,
	})
	if err != nil {
		return nil, err
	}
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
	return f, e.engine.Record(r, f)
}
