// Package specs contains the experiments on real programs that `powerlab campaign` runs, a file for each
// study: what varies, what is measured, and what is claimed.
//
// Guarantees: all variants of a pair have the same jobs at the same times, the same budgets and the same
// sprint joules. The ids of claims are those of the papers' targets. Production code does not use it.
package specs

import (
	"slices"

	"headroom/lab/experiment"
	"headroom/lab/report"
)

// All are the experiments, in the order in which they are listed.
func All() []*experiment.Spec {
	return slices.Concat(arbiter(), promises(), dias(), cab(), replays(), scalings())
}

// notWorse claims that a figure of ours is not worse than another variant's, by more than slack percent; sign
// is 1 where less is better, -1 where more is. Points are used for figures that are parts.
func notWorse(figure, what, ours, theirs string, sign, slack float64, part bool) experiment.Claim {
	c := experiment.Claim{
		ID: theirs + "/" + figure, What: what + ": " + ours + " against " + theirs, Unit: "%",
		Met: experiment.Within(experiment.AtMost(slack)), Order: experiment.Mean(experiment.AtMost(slack)),
	}
	value := experiment.Change(figure, ours, theirs)
	if part {
		gap := experiment.Gap(figure, ours, theirs)
		value, c.Unit = func(p experiment.Pair) float64 { return 100 * gap(p) }, "points"
	}
	c.Value = func(p experiment.Pair) float64 { return sign * value(p) }
	return c
}

// Left are the claims of campaigns as targets that the simulation of a paper does not measure, each once.
func Left(campaigns ...string) (all []report.Target) {
	for _, s := range All() {
		if !slices.Contains(campaigns, s.Name) {
			continue
		}
		for i := range s.Claims {
			c := &s.Claims[i]
			if !slices.ContainsFunc(all, func(t report.Target) bool { return t.ID == c.ID }) {
				all = append(all, report.Left(c.ID, c.What, c.Unit, "powerlab campaign "+s.Name+" measures it"))
			}
		}
	}
	return all
}
