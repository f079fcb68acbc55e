package scaling

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/scaling"
	"headroom/jobs/scaling/ipso"
	"headroom/lab/papers"
)

const (
	// exTolerance is how far the slope of EX may be from that of a workload of fixed time, which is 1.
	exTolerance = 0.1
	// flatSlope is the steepest IN of a job whose serial part does not grow.
	flatSlope = 0.05
)

// judge judges what the models say of one program.
func (o *realOptions) judge(p program, all []measured) []papers.Target {
	rounds := make([][]measurement, o.repeats)
	var runs []run
	for round := range rounds {
		var its []run
		for i := range all {
			if all[i].program == p.name && all[i].repeat == round {
				its = append(its, all[i].run)
			}
		}
		rounds[round] = o.speedups(group(its))
		runs = append(runs, its...)
	}
	fitted := slices.DeleteFunc(o.speedups(group(runs)), func(m measurement) bool { return slices.Contains(o.held, m.M) })
	model := scaling.USBA
	var targets []papers.Target
	if o.engine == "yarn" {
		model = scaling.IPSO
		targets = factorTargets(p, rounds)
	}
	curve, err := scaling.Fit(model, points(fitted))
	for _, c := range o.cells() {
		if slices.Contains(o.held, c.units) {
			targets = append(targets, heldTarget(p, c, curve, err, rounds))
		}
	}
	return targets
}

// speedups sets the speed-ups of the means.
func (o *realOptions) speedups(all []measurement) []measurement {
	if o.engine == "yarn" {
		byHistories(all)
	} else if _, err := bySparks(all); err != nil {
		return nil // a round without its base: nothing is known of it
	}
	return all
}

// heldTarget judges the prediction for a size and degree that the curve was not fitted to: met within the dissertation's error for
// that kind of program, order where the prediction is on the right side of one unit of it.
func heldTarget(p program, c cell, curve *scaling.Curve, failed error, rounds [][]measurement) papers.Target {
	t := papers.Target{ID: fmt.Sprintf("R-%s/%d-%d", p.name, c.size, c.units), What: fmt.Sprintf("relative error of the speed-up predicted for size %d on %d", c.size, c.units), Verdict: papers.Short, Paper: new(p.tolerance)}
	if failed != nil {
		t.Note = "no curve: " + failed.Error()
		return t
	}
	n, m := c.size, c.units
	predicted := curve.Speedup(n, m)
	var errors []float64
	var mean float64
	for _, all := range rounds {
		i := slices.IndexFunc(all, func(x measurement) bool { return x.N == n && x.M == m })
		if i < 0 {
			continue
		}
		errors = append(errors, math.Abs(predicted/all[i].Speedup-1))
		mean += all[i].Speedup
	}
	got := papers.Of(errors)
	if !got.Known {
		t.Note = "not measured"
		return t
	}
	mean /= float64(len(errors))
	t.Got, t.Low, t.High = &got.Mean, &got.Low, &got.High
	t.Note = fmt.Sprintf("predicted %.2f, measured %.2f in the mean of %d runs", predicted, mean, len(errors))
	switch {
	case got.Mean <= p.tolerance:
		t.Verdict = papers.Met
	case (predicted > 1) == (mean > 1):
		t.Verdict = papers.Order
	}
	return t
}

// factorTargets judge IPSO's factors of a job whose maps each have the same work: EX(n) is about n, and IN(n) is about 1 where the
// reducer's work does not depend on the degree, and rises where it has all that the maps read.
func factorTargets(p program, rounds [][]measurement) []papers.Target {
	var ex, in []float64
	for _, all := range rounds {
		var ws []ipso.Workloads
		for i := range all {
			ws = append(ws, all[i].workloads())
		}
		if f, err := ipso.FitFactors(ws); err == nil {
			ex = append(ex, f.EX.Slope.Value)
			in = append(in, f.IN.Above.Slope.Value)
		}
	}
	e, i := papers.Of(ex), papers.Of(in)
	note := "slope of EX by n"
	first := papers.Judge("R-"+p.name+"/EX", "the parallel work grows with the degree (fixed time)", "", e, math.Abs(e.Mean-1) <= exTolerance, note)
	if first.Verdict == papers.Short && e.Known && e.Low > 0 {
		first.Verdict = papers.Order
	}
	what, ordered := "the serial work does not grow with the degree", i.Mean <= flatSlope || i.Low <= 0
	if p.rises {
		what, ordered = "the serial work grows with the degree", i.Low > 0
	}
	return []papers.Target{first, papers.Judge("R-"+p.name+"/IN", what, "", i, ordered, "slope of IN by n, above a step where there is one")}
}
