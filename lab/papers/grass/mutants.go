package grass

import (
	"context"
	"io"
	"maps"

	"headroom/jobs/speculation"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
const mutantSeeds = 2

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
func laterScenes() (names []string) {
	for _, s := range slacks() {
		names = append(names, slackName(s))
	}
	for _, n := range dags() {
		names = append(names, dagName(n, deadlines), dagName(n, errorBounds))
	}
	return names
}

// xiNames are the variants of C7.
func xiNames() (names []string) {
	for _, xi := range xis() {
		names = append(names, xiName(xi))
	}
	return names
}

// instead is a variant by another policy.
func instead(p speculation.Policy) func(*variant) { return func(v *variant) { v.policy = p } }

// asGRASS is a variant that is GRASS.
func asGRASS(v *variant) { *v = learning(v.name, speculation.AllFactors, speculation.Xi) }

// mutations are all mistakes, each with the targets that must notice it.
func mutations() []mutation {
	bounds, capped := []string{deadlines, errorBounds}, []string{deadlinesCapped, errorsCapped}
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
			name: "GRASS on estimates drawn at random", of: []string{grassName}, scenes: bounds,
			mistake:  func(v *variant) { v.random = true },
			expected: []string{"C4/deadline", "C4/error"},
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

// mutants makes the honest run and the mistakes. A mistake of which only targets fall that are
// short without it is left out.
func (o *options) mutants(ctx context.Context, progress io.Writer) (*papers.Mutants, error) {
	trials, err := o.study().run(ctx, o.Seed, o.Seeds, progress)
	if err != nil {
		return nil, err
	}
	honest := &figures{trials: trials, why: "--mutants runs no trace"}
	m := &papers.Mutants{Honest: honest.targets(), Elsewhere: elsewhere()}
	for _, x := range mutations() {
		expected := m.CanFall(x.expected)
		if len(expected) == 0 {
			continue
		}
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: expected, Targets: func(ctx context.Context) ([]report.Target, error) {
			return o.mutate(ctx, trials, x)
		}})
	}
	return m, nil
}

// elsewhere are the targets on a trace.
func elsewhere() []papers.Elsewhere {
	const how = "the same comparison as C1/late and C2/late, which the mutants here break"
	return []papers.Elsewhere{{Target: "C1/facebook2010", How: how}, {Target: "C2/facebook2010", How: how}}
}

// mutate judges the honest run with what the mistake changes in its place.
func (o *options) mutate(ctx context.Context, honest []trial, x mutation) ([]report.Target, error) {
	s := o.study()
	s.only, s.scenes, s.mistake = x.of, x.scenes, x.mistake
	trials, err := s.run(ctx, o.Seed, o.Seeds, io.Discard)
	if err != nil {
		return nil, err
	}
	f := &figures{why: "--mutants runs no trace"}
	for i := range trials {
		t := maps.Clone(honest[i])
		maps.Copy(t, trials[i])
		f.trials = append(f.trials, t)
	}
	return f.targets(), nil
}
