package arbitration

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"headroom/units"
)

// Figures of a run, by name. A class without jobs has none.
const (
	urgentMean      = "urgent_mean_s"
	urgentP95       = "urgent_p95_s"
	urgentMissed    = "urgent_missed"
	tolerantMean    = "tolerant_mean_s"
	tolerantP95     = "tolerant_p95_s"
	tolerantQuality = "tolerant_quality"
	energyJ         = "energy_j"
	sprintJ         = "sprint_j"
	energyPerTaskJ  = "energy_per_task_j"
	weightedS       = "weighted_s"
)

// Figure is one figure of a way to decide: its mean over the seeds, with the bounds that the mean lies within in 95 of
// 100 sets of seeds.
type Figure struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// figures returns what came of a run.
func (r *run) figures() map[string]float64 {
	out := map[string]float64{sprintJ: r.spent, energyJ: r.energy, "sprints": float64(r.sprints), "holds": float64(r.holds), weightedS: r.weighted()}
	tasks := 0
	for _, c := range []Class{Urgent, Tolerant} {
		var took []float64
		missed, due, done, all := 0, 0, 0, 0
		for _, j := range r.jobs {
			if j.Class != c {
				continue
			}
			latency := j.end - j.Arrival
			took = append(took, latency.Seconds())
			done, all = done+j.done, all+len(j.times)
			if j.Deadline > 0 {
				due++
				if latency > j.Deadline {
					missed++
				}
			}
		}
		tasks += done
		if len(took) == 0 {
			continue // nothing is known of the class
		}
		slices.Sort(took)
		name := string(c)
		out[name+"_mean_s"], out[name+"_p95_s"] = meanOf(took), took[min(len(took)-1, int(math.Ceil(0.95*float64(len(took))))-1)]
		out[name+"_quality"] = float64(done) / float64(all)
		if due > 0 {
			out[name+"_missed"] = float64(missed) / float64(due)
		}
	}
	if tasks > 0 {
		out[energyPerTaskJ] = r.energy / float64(tasks)
	}
	return out
}

// The objective as the study states it, apart from the arbiter's own constants: what a second of the tolerant class
// counts of one of the urgent, what a second past a deadline counts on top, and the price of a percent of a job's
// tasks, s.
const (
	tolerantWeight = 1.0 / 20
	lateWeight     = 2
	percentPrice   = 3
)

// weighted returns the objective of a run: weighted seconds for each job.
func (r *run) weighted() float64 {
	sum := 0.0
	for _, j := range r.jobs {
		sum += j.cost(j.end-j.Arrival, j.dropped)
	}
	return sum / float64(max(1, len(r.jobs)))
}

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

// confidence is how sure bounds are to hold their mean.
const confidence = 0.95

// figureOf returns the mean of independent runs, with its bounds by Student's t.
func figureOf(each []float64) Figure { return figureWithin(each, confidence) }

// figureWithin returns the mean of independent runs, with bounds that hold it with a confidence (0 to 1).
func figureWithin(each []float64, confidence float64) Figure {
	mean, square := meanOf(each), 0.0
	for _, x := range each {
		square += (x - mean) * (x - mean)
	}
	half := 0.0
	if n := float64(len(each)); n > 1 {
		t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile((1 + confidence) / 2)
		half = t * math.Sqrt(square/(n-1)/n)
	}
	return Figure{mean, mean - half, mean + half}
}

// String returns the mean with half the width of its bounds.
func (f Figure) String() string {
	digits := 0
	switch size := max(math.Abs(f.Mean), math.Abs(f.High-f.Low)); {
	case size < 10:
		digits = 3
	case size < 1000:
		digits = 1
	}
	return fmt.Sprintf("%.*f ± %.*f", digits, f.Mean, digits, (f.High-f.Low)/2)
}
