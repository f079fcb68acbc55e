package grass

import (
	"context"
	"io"
	"maps"
	"slices"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/speculation"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// Every target that can get worse does so under a mistake. Those on a trace are the same comparisons.
func TestMutants(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	const seed, seeds = 1001, 2
	honest := testkit.Need(whole().run(t.Context(), seed, seeds, io.Discard))(t)
	var all []reporttest.Mutant
	for _, x := range mutations() {
		for _, of := range x.of {
			if !slices.ContainsFunc(variants(), func(v variant) bool { return v.name == of }) {
				t.Errorf("%s: no variant %s", x.name, of)
			}
		}
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]report.Target, error) {
			s := whole()
			s.only, s.scenes, s.mistake = x.of, x.scenes, x.mistake
			trials, err := s.run(ctx, seed, seeds, io.Discard)
			for i := range trials {
				t := maps.Clone(honest[i])
				maps.Copy(t, trials[i])
				trials[i] = t
			}
			return (&figures{trials: trials, why: "no trace"}).targets(), err
		}})
	}
	reporttest.Mutants(t, (&figures{trials: honest, why: "no trace"}).targets(), all)
}

// mutation is one mistake in some variants.
type mutation struct {
	name     string
	expected []string
	// of are the names of the variants with the mistake.
	of      []string
	scenes  []string
	mistake func(*variant)
}

// laterScenes are those of C9.
func laterScenes() []string {
	return slices.Concat(slackNames(), dagNames(deadlines), dagNames(errorBounds))
}

// instead is a variant by another policy.
func instead(p speculation.Policy) func(*variant) { return func(v *variant) { v.policy = p } }

// asGRASS is a variant that is GRASS.
func asGRASS(v *variant) { *v = variant{name: v.name, policy: speculation.GRASS, xi: speculation.Xi} }

// mutations are all mistakes, each with the targets that must notice it.
func mutations() []mutation {
	bounds, capped := bounds(), []string{deadlinesCapped, errorsCapped}
	return []mutation{
		{
			name: "LATE is GRASS", of: []string{late}, scenes: append([]string{deadlines, errorBounds, exactJobs}, laterScenes()...), mistake: asGRASS,
			expected: []string{"C1/late", "C1/bins", "C2/late", "C3/late", "C9/slack", "C9/dag-deadline", "C9/dag-error"},
		},
		{
			name: "Mantri is GRASS", of: []string{mantri}, scenes: []string{deadlines, errorBounds, exactJobs}, mistake: asGRASS,
			expected: []string{"C1/mantri", "C2/mantri", "C3/mantri"},
		},
		{
			name: "GRASS starts no copies", of: []string{grassName}, scenes: append([]string{deadlinesFew, errorsFew}, bounds...),
			mistake:  func(v *variant) { v.noCopies = true },
			expected: []string{"C4/deadline", "C4/error", "C8/deadline", "C8/error"},
		},
		{
			name: "RAS is GS", of: []string{ras}, scenes: bounds, mistake: instead(speculation.GS),
			expected: []string{"C5/deadline-small", "C5/deadline-medium", "C5/deadline-large", "C5/error-small", "C5/error-medium", "C5/error-large"},
		},
		{name: "the strawman is GRASS", of: []string{strawman}, scenes: bounds, mistake: asGRASS, expected: []string{"C6/deadline", "C6/error"}},
		{
			name: "the smallest part of sample jobs for all parts", of: xiNames(), scenes: bounds,
			mistake:  func(v *variant) { v.xi = xis()[0] },
			expected: []string{"C7/deadline", "C7/error"},
		},
		{
			name: "ours starts no copies", of: []string{ours}, scenes: bounds, mistake: func(v *variant) { v.noCopies = true },
			expected: []string{"G1/deadline", "G1/error"},
		},
		{name: "ours is GRASS", of: []string{ours}, scenes: capped, mistake: asGRASS, expected: []string{"G2/deadline-capped", "G2/error-capped"}},
	}
}
