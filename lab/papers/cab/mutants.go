package cab

import (
	"context"
	"io"
	"maps"

	"headroom/jobs/containers"
	"headroom/jobs/quality"
	"headroom/lab/papers"
	"headroom/lab/report"
	"headroom/progress"
)

// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
const mutantSeeds = 10

// mutation is one mistake: what the study of it runs in the place of the honest one.
type mutation struct {
	name     string
	expected []string
	// change makes the mistake in a study without variants; false means that nothing of the
	// study is run again.
	change func(s *study) bool
	// profile is what Table I's queues come from; nil for the measured ones.
	profile func(app) (quality.Profile, error)
}

// wrong is ours with a mistake.
func wrong(mistake func(*variant)) func(*study) bool {
	return func(s *study) bool {
		s.variants = named(ours)
		mistake(&s.variants[0])
		return true
	}
}

// mutations are all mistakes, each with the targets that must notice it.
func mutations() []mutation {
	return []mutation{
		{
			name: "no power in eq. (1)", expected: []string{"D10/filter"},
			change: func(s *study) bool {
				s.variants, s.estimates, s.blind = append(named(capped), blindly(paper)), true, blindness{filter: true}
				return true
			},
		},
		{
			name: "learned curve blind to power", expected: []string{"D10/learned"},
			change: func(s *study) bool {
				s.variants, s.estimates, s.blind = append(named(capped), blindly(ours)), true, blindness{learned: true}
				return true
			},
		},
		{
			name: "ours estimates by eq. (1)", expected: []string{"D9"},
			change: func(s *study) bool {
				v := named(ours)[0]
				v.settings.Estimator = progress.Paper
				s.variants, s.estimates, s.curve = append(named(capped), v), true, progress.Paper
				return true
			},
		},
		{
			name: "earlier runs forgotten", expected: []string{"D11"},
			change: func(s *study) bool {
				s.variants, s.forgets = named(capped, ours), true
				return true
			},
		},
		{
			name: "allocator equal", expected: []string{"D5/best", "D6", "D7"},
			change: wrong(func(v *variant) { v.settings.Containers = containers.Equal }),
		},
		{
			name: "no early stop", expected: []string{"D1/90", "D1/85", "D1/80", "D3/85", "D3/80", "D4/mean", "D4/best", "D5/mean", "D8/mean", "D8/sets-mean", "D8/equal-mean", "D8/equal-sets", "T2/capped", "T2/approxhadoop"},
			change: wrong(func(v *variant) { v.mistake.neverStops = true }),
		},
		{
			name: "stop ignores the floor", expected: []string{"D1/95", "D2", "D8/floor"},
			change: wrong(func(v *variant) { v.mistake.noFloor = true }),
		},
		{
			name: "shares given to the wrong jobs", expected: []string{"D6", "D8/worst", "D8/sets-worst", "D8/equal-sets"},
			change: wrong(func(v *variant) { v.mistake.swaps = true }),
		},
		{name: "accuracy taken for the part of the tasks", expected: []string{"T1"}, change: func(*study) bool { return false }, profile: linear},
	}
}

// elsewhere are the targets of a real Hadoop. Their mutants are tried on looks that are made
// up: a run for each mistake would show nothing more.
func elsewhere() []papers.Elsewhere {
	const how = " is made blind to power on looks of which the truth is known (the test of the comparison): both errors are equal then, and the target is short; " +
		"a real run (--engine yarn --steps) is judged by the same comparison"
	return []papers.Elsewhere{{Target: "D10/yarn", How: "eq. (1)" + how}, {Target: "D10/yarn-learned", How: "the learned curve" + how}}
}

// blindly is a variant whose job loop is blind to power.
func blindly(name string) variant {
	v := named(name)[0]
	v.mistake.blind = true
	return v
}

// mutants makes the honest run and the mistakes.
func (o *options) mutants(ctx context.Context, _ io.Writer) (*papers.Mutants, error) {
	measured, err := profiled(profileOf)
	if err != nil {
		return nil, err
	}
	s := whole(measured)
	s.variants = variants()
	trials, err := s.run(ctx, o.Seed, o.Seeds)
	if err != nil {
		return nil, err
	}
	honest := &figures{trials: trials, measured: measured}
	m := &papers.Mutants{Honest: honest.targets(), Elsewhere: elsewhere()}
	for _, x := range mutations() {
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]report.Target, error) {
			return o.mutate(ctx, honest, x)
		}})
	}
	return m, nil
}

// mutate judges the honest run with what the mistake changes in its place.
func (o *options) mutate(ctx context.Context, honest *figures, x mutation) ([]report.Target, error) {
	f := &figures{measured: honest.measured}
	if x.profile != nil {
		var err error
		if f.measured, err = profiled(x.profile); err != nil {
			return nil, err
		}
	}
	s := study{machine: chosen(), measured: f.measured}
	if !x.change(&s) {
		f.trials = honest.trials
		return f.targets(), nil
	}
	trials, err := s.run(ctx, o.Seed, o.Seeds)
	if err != nil {
		return nil, err
	}
	for i := range trials {
		t := trial{results: maps.Clone(honest.trials[i].results), errors: honest.trials[i].errors}
		maps.Copy(t.results, trials[i].results)
		if s.estimates {
			t.errors = trials[i].errors
		}
		f.trials = append(f.trials, t)
	}
	return f.targets(), nil
}
