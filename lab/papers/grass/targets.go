package grass

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"headroom/lab/report"
)

// figures are what targets are judged on.
type figures struct {
	trials []trial
	// traced are the trials on a trace's numbers of tasks; nil where it was not run, for the reason.
	traced []trial
	why    string
}

func (f *figures) gain(scene, mine, than string, bin int) report.Stat {
	return report.Over(f.trials, func(t trial) float64 { return t.gain(scene, mine, than, bin) })
}

// onLate is the gain on LATE over all bins.
func (f *figures) onLate(scene, mine string) report.Stat {
	return f.gain(scene, mine, late, everything)
}

// bounds are the scenes of most targets.
func bounds() []string { return []string{deadlines, errorBounds} }

// targets are C1 to C9, and what ours must do beyond them.
func (f *figures) targets() []report.Target {
	return slices.Concat(f.baselines(), f.switching(), f.strawman(), []report.Target{
		f.perturbation(deadlines), f.perturbation(errorBounds), f.optimal(deadlinesFew), f.optimal(errorsFew),
		f.flat("C9/slack", "gains on LATE by the deadline's slack, 2 to 20 %: how far apart", slackNames()),
		f.flat("C9/dag-"+deadlines, deadlines+", DAGs of 2 to 6 stages: gains on LATE, how far apart", dagNames(deadlines)),
		f.flat("C9/dag-"+errorBounds, errorBounds+", DAGs of 2 to 6 stages: gains on LATE, how far apart", dagNames(errorBounds)),
	}, f.ours(), f.onTrace())
}

// against is a target of GRASS's gain on a baseline.
func (f *figures) against(id, what, scene, than string, paper, least float64) report.Target {
	g := f.gain(scene, grassName, than, everything)
	return report.From(paper, report.AtLeast(least), report.Judge(id, what, "%", g, g.Mean > 0, "to be above 0"))
}

// baselines are C1 to C3. The paper's numbers are those of its prototype on Hadoop.
func (f *figures) baselines() []report.Target {
	large := report.Over(f.trials, func(t trial) float64 {
		return t.gain(deadlines, grassName, late, bins-1) - t.gain(deadlines, grassName, late, 0)
	})
	return []report.Target{
		f.against("C1/late", "deadline: tasks done, GRASS against LATE", deadlines, late, 34, 15),
		f.against("C1/mantri", "deadline: tasks done, GRASS against Mantri", deadlines, mantri, 34, 15),
		report.Judge("C1/bins", "deadline: gain on LATE of large jobs, beyond that of small ones", "points", large, large.Mean > 0, "to be above 0"),
		f.against("C2/late", "error bound: time saved, GRASS against LATE", errorBounds, late, 24, 10),
		f.against("C2/mantri", "error bound: time saved, GRASS against Mantri", errorBounds, mantri, 24, 10),
		f.against("C3/late", "exact jobs: time saved, GRASS against LATE", exactJobs, late, 34, 10),
		f.against("C3/mantri", "exact jobs: time saved, GRASS against Mantri", exactJobs, mantri, 34, 10),
	}
}

// switching is C4 and C5.
func (f *figures) switching() (all []report.Target) {
	const worseMost = 2 // by how many percent GRASS may be worse than the better one of GS and RAS
	for _, scene := range bounds() {
		best := report.Over(f.trials, func(t trial) float64 {
			return min(t.gain(scene, grassName, gs, everything), t.gain(scene, grassName, ras, everything))
		})
		all = append(all, report.From(20, report.AtLeast(20), report.Judge("C4/"+scene, scene+": GRASS against the better one of GS and RAS", "%", best, best.Mean >= -worseMost,
			fmt.Sprintf("not to be worse by more than %d %%", worseMost))))
	}
	for _, scene := range bounds() {
		for b, name := range binNames() {
			mine, than := ras, gs
			if b == 0 {
				mine, than = gs, ras
			}
			g := f.gain(scene, mine, than, b)
			all = append(all, report.Judge("C5/"+scene+"-"+name, fmt.Sprintf("%s, %s jobs: %s against %s", scene, name, mine, than), "%", g, g.Mean > 0, "to be above 0"))
		}
	}
	return all
}

// strawman is C6: what of GRASS's gain a switch at two waves gets.
func (f *figures) strawman() (all []report.Target) {
	for i, scene := range bounds() {
		part := report.Over(f.trials, func(t trial) float64 {
			return t.gain(scene, strawman, late, everything) / t.gain(scene, grassName, late, everything)
		})
		all = append(all, report.From([]float64{0.66, 0.73}[i], report.Range{Low: 0.5, High: 0.9},
			report.Judge("C6/"+scene, scene+": the strawman's gain on LATE over GRASS's", "", part, part.Mean < 1, "to be below 1")))
	}
	return all
}

// perturbation is C7: the best part of sample jobs.
func (f *figures) perturbation(scene string) report.Target {
	best, most := 0.0, math.Inf(-1)
	var parts []string
	for _, xi := range xis() {
		g := f.onLate(scene, xiName(xi))
		parts = append(parts, fmt.Sprintf("%.0f %%: %.2f", 100*xi, g.Mean))
		if g.Mean > most {
			best, most = 100*xi, g.Mean
		}
	}
	got, ends := report.Once(best), xis()
	got.Known = f.onLate(scene, xiName(ends[0])).Known
	return report.From(15, report.Range{Low: 5, High: 25}, report.Judge("C7/"+scene, scene+": part of sample jobs with the greatest gain on LATE", "%", got,
		best > 100*ends[0] && best < 100*ends[len(ends)-1], "gains by part: "+strings.Join(parts, ", ")+"; to be greatest between the ends"))
}

// optimal is C8: small jobs against a search that has all times.
func (f *figures) optimal(scene string) report.Target {
	part := report.Over(f.trials, func(t trial) float64 {
		a, b := t.value(scene, grassName, everything), t.value(scene, oracle, everything)
		if scene == errorsFew {
			a, b = b, a
		}
		return 100 * a / b
	})
	return report.From(100, report.AtLeast(90), report.Judge("C8/"+strings.TrimSuffix(scene, "-few"), "jobs of 6 to 9 tasks: GRASS over the oracle", "%", part, part.Mean >= 80,
		"the oracle is told the time of every copy before it starts; the ordering asks for 80 %"))
}

// flat is a target of gains of GRASS on LATE in some scenes that must be near each other.
func (f *figures) flat(id, what string, names []string) report.Target {
	low, high := math.Inf(1), math.Inf(-1)
	var parts []string
	known := true
	for _, name := range names {
		g := f.onLate(name, grassName)
		known = known && g.Known
		low, high = min(low, g.Mean), max(high, g.Mean)
		parts = append(parts, fmt.Sprintf("%s: %.1f %%", name, g.Mean))
	}
	spread := report.Once(high - low)
	spread.Known = known
	return report.From(0, report.AtMost(10), report.Judge(id, what, "points", spread, low > 0, strings.Join(parts, ", ")+"; all above 0, and at most 10 points apart"))
}

// ours is what our policy must do beyond the paper's: no worse without caps, better under them.
func (f *figures) ours() (all []report.Target) {
	for _, scene := range bounds() {
		g := f.gain(scene, ours, grassName, everything)
		all = append(all, report.Judge("G1/"+scene, scene+", no caps: ours against GRASS", "%", g, g.Mean >= -1, "not to be worse by more than 1 %"))
	}
	for _, scene := range []string{deadlinesCapped, errorsCapped} {
		g := f.gain(scene, ours, grassName, everything)
		all = append(all, report.Judge("G2/"+scene, scene+": ours against GRASS", "%", g, g.Low > 0, "to be above 0, beyond the bounds"))
	}
	return all
}

// onTrace are C1 and C2 with the numbers of tasks of a trace's jobs.
func (f *figures) onTrace() []report.Target {
	const what = ", sizes of Facebook's jobs of 2010: GRASS against LATE"
	t := &figures{trials: f.traced}
	all := []report.Target{
		t.against("C1/facebook2010", "deadline"+what, deadlines, late, 34, 15), t.against("C2/facebook2010", "error bound"+what, errorBounds, late, 24, 10),
	}
	for i, x := range all {
		if f.traced == nil {
			all[i] = report.Left(x.ID, x.What, x.Unit, f.why)
		}
	}
	return all
}
