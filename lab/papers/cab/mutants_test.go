package cab

import (
	"context"
	"maps"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/containers"
	"headroom/jobs/quality"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
	"headroom/progress"
)

// Few seeds are enough: what a mistake breaks, it breaks by far. On these seeds few targets are short without one.
const mutantSeed, mutantSeeds = 5, 2

// Every target that can get worse does so under a mistake.
func TestMutants(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	honest := &figures{measured: testkit.Need(profiled(profileOf))(t)}
	s := whole(honest.measured)
	honest.trials = testkit.Need(s.run(t.Context(), mutantSeed, mutantSeeds))(t)
	var all []reporttest.Mutant
	for _, x := range mutations() {
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]report.Target, error) { return x.targets(ctx, honest) }})
	}
	reporttest.Mutants(t, honest.targets(), all)
}

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
				s.variants, s.estimates, s.blind = append(named(capped), blindly(ours)), true, blindness{learned: true, fresh: true}
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

// blindly is a variant whose job loop is blind to power.
func blindly(name string) variant {
	v := named(name)[0]
	v.mistake.blind = true
	return v
}

// mutate judges the honest run with what the mistake changes in its place.
func (x *mutation) targets(ctx context.Context, honest *figures) ([]report.Target, error) {
	f := &figures{measured: honest.measured}
	if x.profile != nil {
		var err error
		if f.measured, err = profiled(x.profile); err != nil {
			return nil, err
		}
	}
	s := study{measured: f.measured}
	if !x.change(&s) {
		f.trials = honest.trials
		return f.targets(), nil
	}
	trials, err := s.run(ctx, mutantSeed, mutantSeeds)
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

// linear is the profile that floors without a measurement assume: half of the tasks are
// worth half of the result.
func linear(a app) (quality.Profile, error) {
	p, _, err := quality.New(quality.Profile{Name: a.profile, Engine: "yarn", Points: []quality.Point{quality.PointOf(0.5, []float64{0.5})}})
	return p, err
}
