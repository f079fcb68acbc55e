// Package specs contains the experiments on real programs that `powerlab campaign` runs, a file for each
// study: what varies, what is measured, and what is claimed.
//
// Guarantees: all variants of a pair have the same jobs at the same times, the same budgets and the same
// sprint joules. The ids of claims are those of the papers' targets. Production code does not use it.
package specs

import (
	"context"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"headroom/lab/experiment"
	"headroom/lab/experiment/harness"
	"headroom/lab/report"
)

// All are the experiments, in the order in which they are listed.
func All() []*experiment.Spec {
	return slices.Concat(arbiter(), promises(), dias(), cab(), replays(), scalings())
}

// claim is met if the bounds of its values lie within a range, and its order holds if their mean does.
func claim(id, what, unit string, within report.Range, value func(experiment.Pair) float64) experiment.Claim {
	return experiment.Claim{ID: id, What: what, Unit: unit, Value: value, Met: experiment.Within(within), Order: experiment.Mean(within)}
}

// none claims that a value is 0 in each pair.
func none(id, what string, value func(experiment.Pair) float64) experiment.Claim {
	return experiment.Claim{ID: id, What: what, Every: true, Met: experiment.Mean(report.Range{}), Value: value}
}

// comparison claims that a figure of ours is not worse than another variant's, by more than slack percent; sign
// is 1 where less is better, -1 where more is. Points are used for figures that are parts.
type comparison struct {
	figure, what string
	sign, slack  float64
	part         bool
}

func (c comparison) claim(ours, theirs string) experiment.Claim {
	value, unit, scale := experiment.Change(c.figure, ours, theirs), "%", c.sign
	if c.part {
		value, unit, scale = experiment.Gap(c.figure, ours, theirs), "points", 100*c.sign
	}
	return claim(theirs+"/"+c.figure, c.what+": "+ours+" against "+theirs, unit, report.AtMost(c.slack), func(p experiment.Pair) float64 { return scale * value(p) })
}

// serves lets the runs of a spec serve jobs on a cluster.
func serves(s *experiment.Spec, setup func(*experiment.Run) *harness.Setup, figures func(*harness.Seen) experiment.Figures) *experiment.Spec {
	s.Run = func(ctx context.Context, r *experiment.Run) (experiment.Figures, error) {
		on := setup(r)
		seen, err := harness.Serve(ctx, r, on)
		if err != nil {
			return nil, err
		}
		f := figures(seen)
		return f, on.Engine.Record(r, f)
	}
	return s
}

// versus is a spec that compares the first of several variants with each other one on a cluster, where all have the same jobs.
func versus(name, says string, variants []harness.Variant, compared []comparison, setup harness.Setup,
	jobs func(seed uint64) []harness.Job, figures func(*harness.Seen) experiment.Figures,
) *experiment.Spec {
	s := &experiment.Spec{Name: name, Says: says, Files: setup.Engine.Files, Pairs: 5}
	for _, v := range variants {
		s.Variants = append(s.Variants, v.Name)
	}
	for _, theirs := range s.Variants[1:] {
		for _, c := range compared {
			s.Claims = append(s.Claims, c.claim(s.Variants[0], theirs))
		}
	}
	return serves(s, func(r *experiment.Run) *harness.Setup {
		on := setup
		on.Variant, on.Jobs = variants[slices.Index(s.Variants, r.Variant)], jobs(r.Seed)
		return &on
	}, figures)
}

// thirds are caps that change in the middle third of a run.
func thirds(span time.Duration, first, middle []float64) []harness.Step {
	return []harness.Step{{Caps: first}, {At: span / 3, Caps: middle}, {At: span * 2 / 3, Caps: first}}
}

type means map[string][]float64

func (m means) add(name string, x float64) { m[name] = append(m[name], x) }

func (m means) figures() experiment.Figures {
	f := experiment.Figures{}
	for name, values := range m {
		f[name] = stat.Mean(values, nil)
	}
	return f
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
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
