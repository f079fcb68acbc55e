package specs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"headroom/lab/apps"
	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
)

// Policies of admission and of copies of stragglers, with jobs that have deadlines and error bounds. The second
// node is capped lower than the first, and both caps fall in the middle third of a run.

type kind string

// The kinds. A third of the jobs promises nothing, a third has an error bound, and a third a deadline. Of these
// half need all of their tasks, and half return the part that is done.
const (
	exact   kind = "exact"
	strict  kind = "deadline"
	partial kind = "partial"
	bounded kind = "error"
)

func kinds() []kind { return []kind{exact, strict, bounded, exact, partial, bounded} }

// The classes: jobs that promise something go first. partialFloor is the least part of the tasks of a job that
// returns what is done: small, since its accuracy is measured.
const (
	classPromised, classExact = "promised", "exact"
	partialFloor              = 0.1
)

type promiseLoad struct {
	count  int
	within time.Duration
	// least and most bound the tasks of a job; their distribution is a bounded Pareto one.
	least, most int
	// task is about how long a task takes that is not slow, slots how many run at once, start the time until a
	// job's first task begins.
	task, start time.Duration
	slots       int
}

// Bounds of promises: the errors of GRASS, and its factors of deadlines. slowMedian is how many times as long the
// median task takes as one that is not slow, sizeAlpha the exponent of the sizes.
const (
	errorLeast, errorMost   = 0.05, 0.30
	factorLeast, factorMost = 1.02, 1.20
	slowMedian, sizeAlpha   = 1.6, 1.1
)

func (l *promiseLoad) jobs(seed uint64) (out []harness.Job) {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(low, high float64) float64 { return low + (high-low)*r.Float64() }
	gap, seen := float64(l.within)/float64(l.count), map[kind]int{}
	for i := range l.count {
		k := kinds()[i%len(kinds())]
		j := harness.Job{At: time.Duration((float64(i) + r.Float64()) * gap), Tasks: l.tasks(r.Float64()), Class: classPromised, Waits: true}
		j.Name = fmt.Sprintf("j%02d-%s", i, k)
		factor, u, bound := between(factorLeast, factorMost), between(0, 1), between(errorLeast, errorMost)
		times := []float64{2, 1 + math.Round(u), 2 + 2*math.Round(u), 1 + 2*u, 2 + 2*u}[seen[k]%5] // the five kinds of PYTHIA in turn
		switch k {
		case strict:
			j.Deadline = l.ideal(j.Tasks, l.slots, times)
		case partial: // GRASS's jobs, too, ran among others: on half of the slots
			j.Deadline, j.Floor = l.ideal(j.Tasks, l.slots/2, factor), partialFloor
		case bounded:
			j.Error = math.Round(100*bound) / 100
		case exact:
			j.Class = classExact
		}
		j.Slow = func(task, attempt int) float64 {
			return apps.Slow(fmt.Sprintf("%d/%s-%d.%d", seed, j.Name, task, attempt))
		}
		seen[k]++
		out = append(out, j)
	}
	return out
}

func (l *promiseLoad) tasks(u float64) int {
	part := 1 - math.Pow(float64(l.least)/float64(l.most), sizeAlpha)
	return min(l.most, int(float64(l.least)*math.Pow(1-u*part, -1/sizeAlpha)))
}

// ideal is so many times what a job of median tasks takes on so many slots, with its start.
func (l *promiseLoad) ideal(tasks, slots int, times float64) time.Duration {
	waves := math.Ceil(float64(tasks) / float64(slots))
	return time.Duration(times * (float64(l.start) + waves*slowMedian*float64(l.task))).Round(time.Second / 10)
}

// decides is the scheduler's configuration of an admission and a policy of copies. A job that gives up a percent
// of its tasks must end much sooner for it, since the accuracy is measured.
func decides(admission, speculation string) string {
	return fmt.Sprintf("classes:\n  - {name: promised, quality_price: 1m}\n  - {name: exact}\nadmission: {policy: %s}\nspeculation: {policy: %s}\n", admission, speculation)
}

const ours, stock, stockBest = "ours", "stock", "stock-best"

// promiseEngine is an engine with its load and variants, ours first. Under stock and stock-best, jobs on Hadoop and
// Spark do not use Headroom.
type promiseEngine struct {
	name     string
	engine   harness.Engine
	load     promiseLoad
	variants []harness.Variant
}

func promiseEngines() []promiseEngine {
	joint := harness.Variant{Name: ours, Policy: "joint", Scheduler: decides("adaptive", "ours")}
	const two = "discipline: np\nwidth: 2\n" // a standalone Spark gives all cores to the first application
	const copies, slowStart = "mapreduce.job.speculative.", "mapreduce.job.reduce.slowstart.completedmaps"
	return []promiseEngine{
		{
			"local",
			harness.Local(600*time.Millisecond, 2.5, 0.8),
			promiseLoad{count: 42, within: 100 * time.Second, least: 2, most: 16, task: 600 * time.Millisecond, slots: 5},
			[]harness.Variant{
				joint,
				{Name: "grass", Policy: "fair", Scheduler: decides("pythia", "grass")},
				{Name: stock, Policy: "fair", Scheduler: decides("off", "none")},
				{Name: stockBest, Policy: "fair", Scheduler: decides("off", "mantri")},
			},
		},
		{
			"yarn",
			harness.YARN(harness.Class{Name: classPromised, Weight: 1, Guarantee: partialFloor}, harness.Class{Name: classExact, Weight: 1, Guarantee: 1}),
			promiseLoad{count: 8, within: 160 * time.Second, least: 2, most: 12, start: 15 * time.Second, task: 8 * time.Second, slots: 4},
			[]harness.Variant{
				joint,
				{Name: stock, Policy: "fair", Scheduler: decides("off", "none"), Stock: map[string]string{"mapreduce.map.speculative": "true", "mapreduce.reduce.speculative": "true", slowStart: "0.05"}},
				{Name: stockBest, Policy: "fair", Scheduler: decides("off", "none"), Stock: map[string]string{
					"mapreduce.map.speculative": "true", "mapreduce.reduce.speculative": "true", slowStart: "1.0",
					copies + "minimum-allowed-tasks": "10", copies + "speculative-cap-running-tasks": "0.5", copies + "speculative-cap-total-tasks": "0.5",
					copies + "slowtaskthreshold": "0.5", copies + "retry-after-no-speculate": "500", copies + "retry-after-speculate": "1000",
				}},
			},
		},
		{
			"spark",
			harness.Spark(harness.Popularity(1 << 20)),
			promiseLoad{count: 8, within: 160 * time.Second, least: 4, most: 24, start: 15 * time.Second, task: 3 * time.Second, slots: 4},
			[]harness.Variant{
				joint,
				{Name: stock, Policy: "equal", Scheduler: two + decides("off", "none"), Stock: map[string]string{"spark.speculation": "false"}},
				{Name: stockBest, Policy: "equal", Scheduler: two + decides("off", "none"), Stock: map[string]string{
					"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.multiplier": "1.5", "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "100ms",
				}},
			},
		},
	}
}

func promises() (all []*experiment.Spec) {
	compared := []comparison{
		{"sdr", "deadlines met", -1, 2, true}, {"accuracy", "tasks done at the deadline", -1, 2, true}, {"bound_s", "time to the error bound", 1, 5, false},
	}
	for _, e := range promiseEngines() {
		says := "admission and copies of stragglers, jobs with deadlines and error bounds, engine " + e.name
		all = append(all, versus("promises-"+e.name, says, e.variants, compared, harness.Setup{
			Coordinators: 3, Nodes: 2, Engine: e.engine, For: e.load.within, Margin: 0.2, Sprint: 20, Refill: 0.1,
			Steps: thirds(e.load.within, []float64{0.80, 0.60}, []float64{0.70, 0.50}),
		}, e.load.jobs, promiseFigures))
	}
	return all
}

// promiseFigures are those of all submitted jobs: a refused one has met nothing. A kind without jobs has none.
func promiseFigures(seen *harness.Seen) experiment.Figures {
	m, work, kept, wasted := means{}, 0.0, 0.0, 0.0
	for i := range seen.Jobs {
		o := &seen.Jobs[i]
		lost := o.Wasted
		if o.Refused || o.Job.Deadline > 0 && !o.Met() {
			lost = max(o.Work, o.Wasted) // all of its work counted for nothing
		}
		wasted += lost
		if o.Job.Deadline > 0 {
			m.add("sdr", one(o.Met()))
			m.add("refused", one(o.Refused))
			work, kept = work+o.Work, kept+o.Work*one(o.Met())
		}
		switch {
		case o.Job.Floor > 0:
			part := float64(o.InTime) / float64(o.Job.Tasks)
			m.add("accuracy", part*one(!o.Refused))
			if !o.Refused {
				m.add("accuracy_ran", part)
			}
		case o.Job.Error > 0:
			m.add("bound_s", o.Bound.Seconds())
		case o.Job.Class == classExact:
			m.add("exact_s", o.Took.Seconds())
		}
	}
	f := m.figures()
	f["energy_j"] = seen.Energy.Joules()
	if work > 0 {
		f["ptr"] = kept / work
	}
	if !seen.Blind {
		f["wasted_s"] = wasted
	}
	return f
}
