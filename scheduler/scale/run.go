package scale

import (
	"cmp"
	"fmt"
	"slices"

	"headroom/internal/cli"
	"headroom/jobs/scaling"
	"headroom/jobs/scaling/ipso"
)

// times are those of a run in seconds, or their means over several runs (Table 3.2).
type times struct {
	// Launch is from the job's launch to its first stage, and Stages the sum of the times of all stages (tau0 and the sum of tau_k,
	// times q and p).
	Launch float64 `json:"tau0_s"`
	Stages float64 `json:"tau_k_s"`
	// Parallel is the time of all tasks together, Slowest that of the unit that worked longest, in each stage, Serial that of the work
	// that waits for all tasks, and Rest what is left of the job's time.
	Parallel float64 `json:"t_p_s"`
	Slowest  float64 `json:"t_max_s"`
	Serial   float64 `json:"w_s_s"`
	Rest     float64 `json:"-"`
}

func (t *times) each() []*float64 {
	return []*float64{&t.Launch, &t.Stages, &t.Parallel, &t.Slowest, &t.Serial, &t.Rest}
}

// finite reports whether a run's times can be.
func (t *times) finite() bool {
	for _, x := range t.each() {
		if !(*x >= 0 && *x <= secondsMost) {
			return false
		}
	}
	return t.Stages > 0 && t.Parallel > 0 && t.Slowest > 0
}

// secondsMost is about 30 years, which no job takes.
const secondsMost = 1e9

// run is what a log says about one run of a job.
type run struct {
	// Tasks is the number of tasks of the first stage, or of maps; Units how many executors, or containers for maps, there were at
	// once.
	Tasks, Units int
	times
}

// measurement is the mean of all runs of a size and degree, as it is printed.
type measurement struct {
	N    int `json:"n"`
	M    int `json:"m"`
	Runs int `json:"runs"`
	times
	Over    float64 `json:"w_o_s"`
	Speedup float64 `json:"speedup"`
}

// group makes the means of runs of the same size and degree, smallest first. The overhead of scaling out is what the rest of the
// time exceeds that of the smallest degree: sequential runs have none.
func group(runs []run) []measurement {
	by := map[[2]int]*measurement{}
	for i := range runs {
		r := &runs[i]
		k := [2]int{r.Tasks, r.Units}
		if by[k] == nil {
			by[k] = &measurement{N: r.Tasks, M: r.Units}
		}
		by[k].Runs++
		for j, sum := range by[k].each() {
			*sum += *r.each()[j]
		}
	}
	var all []measurement
	for _, m := range by {
		for _, x := range m.each() {
			*x /= float64(m.Runs)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b measurement) int { return cmp.Or(a.M-b.M, a.N-b.N) })
	for i := range all {
		all[i].Over = max(0, all[i].Rest-all[0].Rest)
	}
	return all
}

// workloads are the parts that IPSO knows.
func (m *measurement) workloads() ipso.Workloads {
	return ipso.Workloads{N: m.M, Parallel: m.Parallel, Slowest: m.Slowest, Serial: m.Serial, Overhead: m.Over}
}

// bySparks sets the speed-ups of Spark jobs: (3.8) against the run of n = m = 1, or where there is none (3.6) against the run
// of the same size on one executor. whole reports the former.
func bySparks(all []measurement) (whole bool, err error) {
	alone := map[int]*measurement{}
	for i := range all {
		if m := &all[i]; m.M == 1 {
			alone[m.N] = m
		}
	}
	for i := range all {
		m := &all[i]
		time := m.Launch + m.Stages
		switch {
		case alone[1] != nil:
			m.Speedup = (alone[1].Launch + float64(m.N)*alone[1].Stages) / time
		case alone[m.N] != nil:
			m.Speedup = (alone[m.N].Launch + alone[m.N].Stages) / time
		default:
			return false, &cli.Error{
				Code: "input", Exit: cli.ExitUsage,
				Message: fmt.Sprintf("no baseline for %d tasks on %d executors: needs the log of one task on one executor, or of %d tasks on one executor", m.N, m.M, m.N),
				Hint:    "run the job once with these numbers, and add its log",
			}
		}
	}
	return alone[1] != nil, nil
}

// together is the part of the maps that must have run at once for the job to count as one of n = m.
const together = 0.75

// byHistories sets the speed-ups of MapReduce jobs, by (2.7). Jobs whose maps ran nearly all at once count as n = m.
func byHistories(all []measurement) {
	one := true
	for i := range all {
		one = one && float64(all[i].M) >= together*float64(all[i].N)
	}
	for i := range all {
		m := &all[i]
		if one {
			m.M = m.N
		}
		m.Speedup = m.workloads().Speedup()
	}
}

// points are the speed-ups of measurements.
func points(all []measurement) (ps []scaling.Point) {
	for i := range all {
		ps = append(ps, scaling.Point{N: all[i].N, M: all[i].M, Speedup: all[i].Speedup})
	}
	return ps
}

// factors are IPSO's as they are printed.
type factors struct {
	Eta      float64  `json:"eta"`
	EX       float64  `json:"ex_slope"`
	IN       *float64 `json:"in_slope"`
	StepAt   *int     `json:"in_step_at"`
	Before   *float64 `json:"in_slope_before"`
	Beta     float64  `json:"beta"`
	Gamma    float64  `json:"gamma"`
	Spread   float64  `json:"spread"`
	Expected string   `json:"type"`
}

// factorsOf fits the factors of MapReduce jobs; the error says why there are none.
func factorsOf(all []measurement) (*factors, error) {
	var ws []ipso.Workloads
	for i := range all {
		ws = append(ws, all[i].workloads())
	}
	f, err := ipso.FitFactors(ws)
	if err != nil {
		return nil, err
	}
	out := &factors{Eta: f.Eta, EX: f.EX.Slope.Value, Beta: f.Beta.Value, Gamma: f.Gamma.Value, Spread: f.Spread, Expected: string(f.Model().Type())}
	if f.Eta < 1 {
		out.IN = &f.IN.Above.Slope.Value
	}
	if f.IN.From > 0 {
		out.StepAt, out.Before = &f.IN.From, &f.IN.Below.Slope.Value
	}
	return out, nil
}

// seconds is a time of the logs, which are in milliseconds.
func seconds(ms int64) float64 { return float64(ms) / 1000 }
