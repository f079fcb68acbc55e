package arbiter

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Jobs with known scaling curves: their speed does not follow their containers, and above some number more of them slow
// the job down.

// atMost returns how many containers for tasks the job may hold and can use by its curve.
func (c *Contender) atMost() int {
	most := math.MaxInt
	for _, n := range []int{c.Most, c.Curve.Peak()} {
		if n > 0 {
			most = min(most, n)
		}
	}
	return most
}

// slowness returns how many times as much container time a task takes on n containers as on one.
func (c *Contender) slowness(n int) float64 {
	if c.Curve == nil {
		return 1
	}
	return float64(n) / c.Curve.Speedup(n)
}

// workOn returns the container time that is left of the job on n containers.
func (r *row) workOn(n int) float64 { return r.one * r.slowness(max(1, n)) }

// serve serves the job with n containers for tasks first.
func (r *row) serve(n int) {
	r.width, r.task, r.work = n, r.single*r.slowness(n), r.workOn(n)
}

// narrow chooses on how many containers each job with a curve is served first. The more it has, the sooner it ends, but
// the more container time it takes, which those behind it wait for. That costs
//
//	one * (slope + behind * n / c) / speedup(n)
//
// with slope what a second of it costs, and behind that of those behind it. Between two corners of the envelope the cost
// only rises or only falls, so the best number is a corner, or the last one that there is. They are compared by the curve itself.
//
// The order of the jobs and the promises that are kept do not depend on curves: a job that can use few containers takes
// little from others, and what it leaves adds to what others are given.
func narrow(rows []*row, c float64) {
	behind, before := 0.0, 0.0
	for _, r := range rows {
		before += r.work
	}
	for _, r := range slices.Backward(rows) {
		before -= r.work
		if r.Curve != nil {
			late := r.left - r.endAfter(before, c) // by promises
			r.toll = behind / c
			r.serve(r.cheapest(max(1, r.usable)))
			r.left = max(0, r.endAfter(max(0, before), c)+late)
			r.slope = r.slopeNow()
		}
		behind += r.slope
	}
}

// cheapest returns the number of containers for tasks, at most n, at which the job and those behind it cost least, and
// at least the promised number. Of equal costs the larger number, because it ends earlier.
func (r *row) cheapest(n int) int {
	if r.Curve == nil {
		return n
	}
	cost := func(n int) float64 { return (r.slope + r.toll*float64(n)) / r.Curve.Speedup(n) }
	all := r.Curve.Corners(n)
	all = all[min(len(all)-1, sort.SearchInts(all, min(r.Promised, n))):]
	return slices.MinFunc(all, func(a, b int) int { return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(b, a)) })
}

// widen assigns unused containers to jobs with curves, as far as they make them faster.
func widen(rows []*row, overhead, free int) {
	for _, r := range rows {
		if has := r.share - overhead; r.Curve != nil && has > 0 && free > 0 {
			more := max(0, r.Curve.Fastest(min(has+free, r.usable+r.copies+r.Copies))-has)
			r.share += more
			free -= more
		}
	}
}

// scaled explains the effect of the job's curve; empty for none.
func (r *row) scaled() string {
	peak := r.Curve.Peak()
	if peak == 0 || peak > r.usable {
		return ""
	}
	words := fmt.Sprintf("; it slows down above %d", peak)
	if r.CurveWords != "" {
		words += ", " + r.CurveWords
	}
	return words
}
