package live

import (
	"math"
	"slices"

	"headroom/lab/dispatch"
)

// quantiles are those that Fig. 4.11 shows.
func quantiles() []float64 { return []float64{0.5, 0.9, 0.99} }

// cell is one bar of the figure: a quantile of the times of short or of long jobs.
type cell struct {
	long     bool
	quantile float64
}

// cells are all of them, those of short jobs first.
func cells() (all []cell) {
	for _, long := range []bool{false, true} {
		for _, q := range quantiles() {
			all = append(all, cell{long, q})
		}
	}
	return all
}

// figures are the quantiles of the times of a load's jobs, in s; what is not known is absent.
type figures map[cell]float64

// figuresOf computes the figures from the time of each job; a time of NaN is a job that has not ended.
func figuresOf(l *load, took []float64) figures {
	f := figures{}
	for _, long := range []bool{false, true} {
		var times []float64
		for i, t := range took {
			if l.long(i) == long && !math.IsNaN(t) {
				times = append(times, t)
			}
		}
		if len(times) == 0 {
			continue
		}
		slices.Sort(times)
		for _, q := range quantiles() {
			f[cell{long, q}] = dispatch.Percentile(times, q)
		}
	}
	return f
}

// spread is the mean of a figure over the seeds of the simulation, and their standard deviation.
type spread struct {
	mean, sd float64
	seeds    int
}

// spreadOf is the spread of each figure that all seeds know.
func spreadOf(seeds []figures) map[cell]spread {
	out := map[cell]spread{}
	for _, c := range cells() {
		var sum, squares float64
		known := 0
		for _, f := range seeds {
			if x, ok := f[c]; ok {
				known++
				sum += x
			}
		}
		if known == 0 || known < len(seeds) {
			continue
		}
		mean := sum / float64(known)
		for _, f := range seeds {
			squares += (f[c] - mean) * (f[c] - mean)
		}
		s := spread{mean: mean, seeds: known}
		if known > 1 {
			s.sd = math.Sqrt(squares / float64(known-1))
		}
		out[c] = s
	}
	return out
}
