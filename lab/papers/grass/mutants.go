package grass

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"headroom/jobs/speculation"
	"headroom/lab/papers"
)

// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
const mutantSeeds = 3

// mutation is one mistake in some variants, or in the targets' own comparisons.
type mutation struct {
	name     string
	expected []string
	// of are the variants with the mistake, by the beginnings of their names.
	of      []string
	scenes  []string
	mistake func(*variant)
}

// slackScenes and dagScenes are those of C9.
func slackScenes() (names []string) {
	for _, s := range slacks() {
		names = append(names, slackName(s))
	}
	return names
}

func dagScenes() (names []string) {
	for _, n := range dags() {
		names = append(names, dagName(n, deadlines), dagName(n, errorBounds))
	}
	return names
}

// instead is a variant by another policy.
func instead(p speculation.Policy) func(*variant) { return func(v *variant) { v.policy = p } }

// mutations are all mistakes, each with the targets that must notice it.
func mutations() []mutation {
	main := []string{deadlines, errorBounds, exactJobs, deadlinesFew, errorsFew}
	return []mutation{
		{
			name: "GRASS by the other kind of bound", of: []string{grassName}, scenes: append(main, append(slackScenes(), dagScenes()...)...),
			mistake: func(v *variant) { v.otherBound = true },
			expected: []string{
				"C1/late", "C1/mantri", "C4/deadline",
			},
		},
		{
			name: "GRASS on estimates drawn at random", of: []string{grassName}, scenes: append(main, append(slackScenes(), dagScenes()...)...),
			mistake: func(v *variant) { v.random = true },
			expected: []string{
				"C1/late", "C1/mantri", "C2/late", "C2/mantri", "C4/deadline", "C4/error", "C8/deadline",
			},
		},
		{name: "GS in the place of RAS", of: []string{ras}, scenes: main[:2], mistake: instead(speculation.GS), expected: []string{"C5/deadline-medium", "C5/deadline-large", "C5/error-medium", "C5/error-large"}},
		{name: "RAS in the place of GS", of: []string{gs}, scenes: main[:2], mistake: instead(speculation.RAS), expected: []string{"C5/error-small"}},
		{name: "ours ranks by the other kind of bound", of: []string{ours}, mistake: func(v *variant) { v.otherBound = true }, scenes: []string{deadlines, errorBounds, deadlinesCapped, errorsCapped}, expected: []string{"G1/deadline"}},
		{name: "ours is not told of caps", of: []string{ours}, mistake: func(v *variant) { v.blind = true }, scenes: []string{deadlinesCapped, errorsCapped}, expected: []string{"G2/deadline-capped", "G2/error-capped"}},
	}
}

// mutants makes the honest run and the mistakes.
func (o *options) mutants(ctx context.Context, progress io.Writer) (*papers.Mutants, error) {
	trials, err := o.study().run(ctx, o.Seed, o.Seeds, progress)
	if err != nil {
		return nil, err
	}
	honest := &figures{trials: trials, why: "--mutants runs no trace"}
	m := &papers.Mutants{Honest: honest.targets(), Elsewhere: elsewhere()}
	for _, x := range mutations() {
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]papers.Target, error) {
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
func (o *options) mutate(ctx context.Context, honest []trial, x mutation) ([]papers.Target, error) {
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

// isOne reports whether a variant is one of those whose names begin so.
func isOne(name string, of []string) bool {
	return slices.ContainsFunc(of, func(o string) bool { return name == o || strings.HasPrefix(name, o+"-") })
}
