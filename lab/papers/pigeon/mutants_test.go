package pigeon

import (
	"context"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
	policies "headroom/jobs/dispatch/pigeon"
	"headroom/lab/papers"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
	"headroom/lab/traces"
)

// What a mistake breaks, it breaks by far: few jobs and seeds are enough.
const mutantSeed, mutantSeeds = 1001, 2

// Every target that can get worse does so under a mistake.
func TestMutants(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	honest := testkit.Need(size{3000, 60_000}.run(t.Context(), &papers.Options{Seed: mutantSeed, Seeds: mutantSeeds, Progress: io.Discard}))(t)
	var all []reporttest.Mutant
	for _, x := range mutations() {
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]report.Target, error) { return x.mutate(ctx, honest) }})
	}
	reporttest.Mutants(t, honest.targets(), all)
}

// mutation is one mistake.
type mutation struct {
	name     string
	expected []string
	// forms, examples and setups change what they are given; nil for no change. touches are the restarts of the names of the
	// scenes whose setups or jobs change: only these run again.
	forms    func(*forms)
	examples func(*examples)
	setups   func(*scene)
	touches  []string
}

// modelIDs are G3.
func modelIDs() (ids []string) {
	for _, size := range modelGroups() {
		for _, load := range modelLoads() {
			ids = append(ids, "G3/zero-"+strings.TrimPrefix(modelName(size, load), "model-"))
		}
	}
	return append(ids, "G3/wait-50-90", "G3/share-100", "G3/share-200")
}

// eachTrace calls a function with the names of the generated traces, and collects what it returns.
func eachTrace(of func(name string) []string) (ids []string) {
	for _, p := range allPublished() {
		ids = append(ids, of(p.name)...)
	}
	return ids
}

// byPercentile adds the names of the percentiles to an id.
func byPercentile(id string) (ids []string) {
	for _, q := range percentileNames() {
		ids = append(ids, id+"-"+q)
	}
	return ids
}

// cellIDs are those of Fig. 4.11 for a policy and class, at the loads with numbers.
func cellIDs(policy, class string) (ids []string) {
	for _, load := range []int{50, 70, 90} {
		ids = append(ids, byPercentile("G6/"+googleName(load)+"-"+policy+"-"+class)...)
	}
	return ids
}

// orderIDs are the targets of the traces without numbers.
func orderIDs() []string {
	return []string{
		"G6/pigeon-google60-order", "G6/pigeon-google80-order", "G6/pigeon-yahoo50-order", "G6/pigeon-yahoo70-order", "G6/pigeon-yahoo90-order",
		"G7/hawk-yahoo1-order", "G7/hawk-yahoo2-order", "G7/hawk-google-order",
	}
}

// named changes the setups of the runs whose name begins so.
func named(name string, change func(s *scene, r *run)) func(*scene) {
	return func(s *scene) {
		s.runs = slices.Clone(s.runs)
		for i := range s.runs {
			if strings.HasPrefix(s.runs[i].name, name) {
				change(s, &s.runs[i])
			}
		}
	}
}

// as gives a run the setup of another run of the scene.
func as(other string) func(*scene, *run) {
	return func(s *scene, r *run) {
		if i := slices.IndexFunc(s.runs, func(x run) bool { return x.name == other }); i >= 0 {
			r.Setup = s.runs[i].Setup
		}
	}
}

func generatedNames() []string {
	return eachTrace(func(name string) []string { return []string{name} })
}

// mutations are all mistakes, each with the targets that must notice it.
func mutations() []mutation {
	const more = 1.001 // of the load in the closed forms
	return []mutation{
		{
			name: "the example's tasks are dealt one by one", expected: []string{"G1/pigeon"},
			examples: func(x *examples) { x.pigeon.Placement = policies.RoundRobin },
		},
		{
			name: "the one scheduler of the example is two", expected: []string{"G1/central"},
			examples: func(x *examples) { x.central = x.pigeon },
		},
		{
			name: "one high task too many before a low one", expected: []string{"G1/weight"},
			examples: func(x *examples) { x.weighted.W++ },
		},
		{
			name: "strict priority is W = 20", expected: []string{"G1/strict"},
			examples: func(x *examples) { x.strict.W = 20 },
		},
		{
			name: "the reserved workers of one group are reserved again in the next", expected: []string{"G1/reserve"},
			examples: func(x *examples) { x.reserved.Reserved *= 2 },
		},
		{
			name: "the closed forms are of a load a thousandth higher", expected: []string{"G2/task", "G2/wait", "G2/same", "G2/sparrow", "G2/varied"},
			forms: func(x *forms) {
				x.predict = func(c cluster) prediction {
					c.load *= more
					return predict(c)
				}
				x.sparrow = func(load float64, fanout int) float64 { return probed(load*more, fanout) }
			},
		},
		{
			name: "jobs of the model arrive 40 % faster", expected: modelIDs(), touches: []string{"model"},
			setups: func(s *scene) {
				draw := s.draw
				s.draw = func(seed uint64) []traces.Job {
					jobs := draw(seed)
					for i := range jobs {
						jobs[i].Arrival /= 1.4
					}
					return jobs
				}
			},
		},
		{
			name: "Eagle has ten times the workers", touches: generatedNames(),
			setups: named(eagle, func(_ *scene, r *run) { r.Workers, r.Reserved = 10*r.Workers, 10*r.Reserved }),
			expected: append(eachTrace(func(name string) []string {
				return append(byPercentile("G4/"+name+"-w20"), byPercentile("G4/"+name+"-strict")...)
			}), byPercentile("G4/yahoo-eagle")...),
		},
		{
			name: "a third of Pigeon's workers is reserved", touches: generatedNames(),
			setups:   named(pigeonName, func(_ *scene, r *run) { r.Reserved = r.Workers / r.Groups / 3 }),
			expected: eachTrace(func(name string) []string { return []string{"G4/" + name + "-long-eagle"} }),
		},
		{
			name: "W = 5 is W = 20", touches: generatedNames(), setups: named(weighted(5), as(weighted(20))),
			expected: eachTrace(func(name string) []string { return []string{"G5/" + name + "-w5", "G5/" + name + "-w20"} }),
		},
		{
			name: "a third of the workers is reserved at W = 10", touches: generatedNames(),
			setups:   named(weighted(10), func(_ *scene, r *run) { r.Reserved = r.Workers / r.Groups / 3 }),
			expected: eachTrace(func(name string) []string { return []string{"G5/" + name + "-long"} }),
		},
		{
			name: "one queue for short and long jobs", touches: []string{"pigeon-", "hawk-"},
			setups:   named(pigeonName, func(_ *scene, r *run) { r.Cutoff = math.MaxFloat64 }),
			expected: slices.Concat(cellIDs(pigeonName, "short"), byPercentile("G6/pigeon-google90-eagle"), byPercentile("G7/hawk-yahoo1-short"), orderIDs()),
		},
		{
			name: "half of Pigeon's workers are reserved", touches: []string{"pigeon-"},
			setups:   named(pigeonName, func(_ *scene, r *run) { r.Reserved = r.Workers / r.Groups / 2 }),
			expected: cellIDs(pigeonName, "long"),
		},
		{
			name: "Eagle is Sparrow", touches: []string{"pigeon-"}, setups: named(eagle, as(sparrow)),
			expected: cellIDs(eagle, "short"),
		},
		{
			name: "Sparrow is Eagle", touches: []string{"pigeon-"}, setups: named(sparrow, as(eagle)),
			expected: cellIDs(sparrow, "short"),
		},
	}
}

// mutate judges the honest run with what the mistake changes in its place.
func (x *mutation) mutate(ctx context.Context, honest *figures) ([]report.Target, error) {
	f := *honest
	if x.forms != nil {
		x.forms(&f.forms)
	}
	if x.examples != nil {
		e := honestExamples()
		x.examples(&e)
		var err error
		if f.exact, err = e.targets(ctx); err != nil {
			return nil, err
		}
	}
	if x.setups != nil {
		if err := x.again(ctx, &f); err != nil {
			return nil, err
		}
	}
	return f.targets(), nil
}

// again runs the scenes that a mistake touches.
func (x *mutation) again(ctx context.Context, f *figures) error {
	scenes := slices.DeleteFunc(slices.Clone(f.scenes), func(s scene) bool {
		return !slices.ContainsFunc(x.touches, func(begin string) bool { return strings.HasPrefix(s.name, begin) })
	})
	for i := range scenes {
		x.setups(&scenes[i])
	}
	trials, err := runAll(ctx, scenes, mutantSeed, mutantSeeds, io.Discard)
	if err != nil {
		return err
	}
	merged := make([]trial, len(trials))
	for i := range trials {
		merged[i] = maps.Clone(f.trials[i])
		maps.Copy(merged[i], trials[i])
	}
	f.trials = merged
	return nil
}
