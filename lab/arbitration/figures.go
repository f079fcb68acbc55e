package arbitration

import (
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Figures of a run, by name. A class without jobs has none.
const (
	UrgentMean      = "urgent_mean_s"
	UrgentP95       = "urgent_p95_s"
	UrgentMissed    = "urgent_missed"
	TolerantMean    = "tolerant_mean_s"
	TolerantP95     = "tolerant_p95_s"
	TolerantQuality = "tolerant_quality"
	EnergyJ         = "energy_j"
	SprintJ         = "sprint_j"
	energyPerTaskJ  = "energy_per_task_j"
	WeightedS       = "weighted_s"
)

// Served is a job that has ended: how long it took, and how many of its tasks it has computed and given up.
type Served struct {
	Job

	Took          time.Duration
	Done, Dropped int
}

// figures returns the figures of a run that has ended.
func (r *run) figures() map[string]float64 {
	var jobs []Served
	tasks := 0
	for _, j := range r.jobs {
		jobs = append(jobs, Served{j.Job, j.end - j.Arrival, j.done, j.dropped})
		tasks += j.done
	}
	out := FiguresOf(jobs)
	out[SprintJ], out[EnergyJ], out["sprints"], out["holds"] = r.spent, r.energy, float64(r.sprints), float64(r.holds)
	if tasks > 0 {
		out[energyPerTaskJ] = r.energy / float64(tasks)
	}
	return out
}

// FiguresOf returns the figures of a run's jobs: latencies, missed deadlines and quality by class, and the objective.
// A class without jobs has none.
func FiguresOf(jobs []Served) map[string]float64 {
	sum := 0.0
	for i := range jobs {
		sum += jobs[i].cost(jobs[i].Took, jobs[i].Dropped)
	}
	out := map[string]float64{WeightedS: sum / float64(max(1, len(jobs)))}
	for _, c := range []Class{Urgent, Tolerant} {
		var took []float64
		missed, due, done, all := 0, 0, 0, 0
		for i := range jobs {
			j := &jobs[i]
			if j.Class != c {
				continue
			}
			took = append(took, j.Took.Seconds())
			done, all = done+j.Done, all+j.Tasks
			if j.Deadline > 0 {
				due++
				if j.Took > j.Deadline {
					missed++
				}
			}
		}
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		name := string(c)
		out[name+"_mean_s"], out[name+"_p95_s"] = meanOf(took), took[min(len(took)-1, int(math.Ceil(0.95*float64(len(took))))-1)]
		out[name+"_quality"] = float64(done) / float64(all)
		if due > 0 {
			out[name+"_missed"] = float64(missed) / float64(due)
		}
	}
	return out
}

// The objective as the study states it, apart from the arbiter's own constants: what a second of the tolerant class counts of one of the
// urgent, what a second past a deadline counts on top, and the price of a percent of a job's tasks, s.
const (
	tolerantWeight = 1.0 / 20
	lateWeight     = 2
	percentPrice   = 3
)

// cost returns what a job costs that took so long and gave up so many tasks. The first task that it may give up costs
// half of the price, the last one and a half.
func (j *Job) cost(took time.Duration, dropped int) float64 {
	cost := took.Seconds()
	if j.Deadline > 0 {
		cost += lateWeight * max(0, (took-j.Deadline).Seconds())
	}
	if all := j.Tasks - units.Ratio(j.Floor).Least(j.Tasks); dropped > 0 && all > 0 {
		given := float64(dropped)
		cost += percentPrice * 100 / float64(j.Tasks) * (given/2 + given*given/2/float64(all))
	}
	if j.Class == Tolerant {
		cost *= tolerantWeight
	}
	return cost
}

func meanOf(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}
