package dias

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
	"headroom/jobs/deflation"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// A mistake is larger than chance, so that few seeds are enough.
const mutantSeed, mutantSeeds, mutantJobs = 1001, 3, 5000

// Every target that can get worse does so under a mistake. What a mistake does not touch is not run
// again.
func TestMutants(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	honest := testkit.Need(honest().targets(t.Context(), mutantSeed, mutantSeeds, mutantJobs, io.Discard))(t)
	var all []reporttest.Mutant
	for _, m := range mutants() {
		all = append(all, reporttest.Mutant{Name: m.name, Expected: m.expected, Targets: m.targets})
	}
	reporttest.Mutants(t, honest, all)
}

// mutant is a mistake in the study's composition, and the experiments that it can touch.
type mutant struct {
	name string
	// on are the experiments to repeat; models reports whether those of Figs. 4 and 5 and of the
	// queue are solved again, control whether the controller is.
	on              []string
	models, control bool
	spoil           func(w *whole)
	expected        []string
}

// Groups of experiments whose targets compare them with one another.
func texts() []string  { return []string{reference, sameSize, mostlyHigh, lowLoad} }
func graphs() []string { return []string{triangle, complete} }

// mutants are all mistakes.
func mutants() []mutant {
	return slices.Concat(jobMutants(), machineMutants(), modelMutants())
}

// jobMutants are mistakes in what arrives.
func jobMutants() []mutant {
	return []mutant{
		{name: "setup flat in theta", on: texts(), control: true, spoil: inTexts(func(t *text) { t.setup90 = t.setup }), expected: []string{"B1/error"}},
		{name: "no waves", on: texts(), spoil: inTexts(func(t *text) { t.fluid = true }), expected: []string{"A7"}},
		{name: "means of classes changed: all jobs are long", on: append(texts(), three), spoil: func(w *whole) {
			inTexts(func(t *text) { *t = words(lowMean) })(w)
			for i := range w.experiments {
				loaded(loadOf(w.experiments[i].name), w.experiments[i].classes...)
			}
		}, expected: []string{"A5"}},
		{name: "graph jobs a third longer", on: graphs(), spoil: func(w *whole) {
			inClasses(func(c *class) {
				if g, ok := c.work.(graph); ok {
					g.rest *= 1.33
					c.work = g
				}
			})(w)
		}, expected: []string{"A15/exec", "A16/NPS/low/exec", "A16/DIAS(0,10)/low/exec", "A16/DIAS(0,20)/low/exec"}},
		{name: "load not halved", on: texts(), spoil: func(w *whole) {
			for i := range w.experiments {
				if w.experiments[i].name == lowLoad {
					loaded(usualLoad, w.experiments[i].classes...)
				}
			}
		}, expected: []string{"A10"}},
		{
			name: "half as many jobs come", on: append(texts(), complete), spoil: inClasses(func(c *class) { c.rate /= 2 }),
			expected: []string{"A3/low", "A16/NPS/high/queue", "A16/NPS/low/queue"},
		},
	}
}

// loadOf is the load of an experiment with text jobs.
func loadOf(name string) float64 {
	switch name {
	case lowLoad:
		return halfLoad
	case mostlyHigh:
		return mostlyHighFor
	}
	return usualLoad
}

// machineMutants are mistakes of the dispatcher's orders and of what carries them out.
func machineMutants() []mutant {
	every := append(append(texts(), three), graphs()...)
	return []mutant{
		{name: "dropper drops nothing", on: every, spoil: inPolicies(func(p *policy) { p.thetas = nil }), expected: slices.Concat(
			[]string{"A6/mean", "A6/p95", "A7", "A8", "A9", "A11/low", "A11/high", "A12/DA(0,10,20)", "A12/DA(0,20,40)", "A13/mean", "A13/tail"},
			starting("A16/", "/queue"), starting("A16/", "/low/exec"), starting("A17/", ""), starting("A18/", ""))},
		{name: "P never kills", on: append(texts(), three), spoil: inPolicies(func(p *policy) {
			if p.discipline == buffers.P {
				p.discipline = buffers.NP
			}
		}), expected: []string{"A1", "A2", "A3/high", "A4", "A5"}},
		{name: "NP kills", on: texts(), models: true, spoil: inPolicies(func(p *policy) {
			if p.discipline == buffers.NP {
				p.discipline = buffers.P
			}
		}), expected: []string{"A4", "A5", "A10/high", "V3/high", "V3/low"}},
		{name: "victim not returned to the head", on: texts(), spoil: faulty(faults{victimLast: true}), expected: []string{"A3/order"}},
		{name: "no sprint: the timer never fires", on: []string{complete}, control: true, spoil: faulty(faults{neverFires: true}), expected: slices.Concat(
			[]string{"A14", "A15/exec", "A15/share"}, starting("A16/", "/high/exec"), starting("A17/", ""), []string{"B2/high", "B2/low"})},
		{name: "sprints draw nothing more", on: []string{complete}, spoil: faulty(faults{freeSprints: true}), expected: []string{"A14"}},
		{name: "sprints at once and without end", on: []string{complete}, spoil: inPolicies(func(p *policy) {
			if p.pot != nil {
				p.pot, p.after = unlimited, 0
			}
		}), expected: []string{"A15/exec", "A15/share", "A17/NPS/limited"}},
	}
}

// modelMutants are mistakes of the models and of the controller.
func modelMutants() []mutant {
	return []mutant{
		{name: "job time in proportion to the kept tasks", on: []string{reference}, models: true, control: true, spoil: func(w *whole) {
			w.theory.inProportion, w.controller.inProportion = true, true
		}, expected: []string{"V1/high", "V1/low", "V2", "B1/high"}},
		{
			name: "priorities of the queueing model upside down", on: []string{reference}, models: true, spoil: func(w *whole) { w.theory.upsideDown = true },
			expected: []string{"V2", "V3/high", "V3/low"},
		},
		{name: "controller ignores the latency bounds", on: []string{reference, complete}, control: true, spoil: func(w *whole) {
			w.controller.change = func(p *deflation.Problem) {
				for i := range p.Classes {
					p.Classes[i].MeanMax = 0
				}
			}
		}, expected: []string{"B1/high", "B2/low"}},
		{name: "controller takes the latency bounds for half", on: []string{reference, complete}, control: true, spoil: func(w *whole) {
			w.controller.change = func(p *deflation.Problem) {
				for i := range p.Classes {
					p.Classes[i].MeanMax /= 2
				}
			}
		}, expected: []string{"B1/error", "B2/error"}},
	}
}

// inClasses changes all classes of all experiments.
func inClasses(change func(*class)) func(*whole) {
	return func(w *whole) {
		for _, e := range w.experiments {
			for i := range e.classes {
				change(&e.classes[i])
			}
		}
	}
}

// inTexts changes all text jobs.
func inTexts(change func(*text)) func(*whole) {
	return inClasses(func(c *class) {
		if t, ok := c.work.(text); ok {
			change(&t)
			c.work = t
		}
	})
}

// inPolicies changes all policies of all experiments.
func inPolicies(change func(*policy)) func(*whole) {
	return func(w *whole) {
		for _, e := range w.experiments {
			for i := range e.policies {
				change(&e.policies[i])
			}
		}
	}
}

// faulty gives the machines of all experiments these faults.
func faulty(f faults) func(*whole) {
	return func(w *whole) {
		for i := range w.experiments {
			w.experiments[i].faults = f
		}
	}
}

// starting are the ids of targets with these ends.
func starting(begin, end string) (ids []string) {
	for _, id := range targetIDs() {
		if strings.HasPrefix(id, begin) && strings.HasSuffix(id, end) {
			ids = append(ids, id)
		}
	}
	return ids
}

// targetIDs are those of the simulated experiments of section 5.3, which are many.
func targetIDs() (ids []string) {
	for _, policy := range sprinters() {
		for _, class := range classNames() {
			ids = append(ids, "A16/"+policy+"/"+class+"/queue", "A16/"+policy+"/"+class+"/exec")
		}
		for _, budget := range []string{limitedBudget, unlimitedBudget} {
			ids = append(ids, "A17/"+policy+"/"+budget)
			for _, class := range classNames() {
				if policy != "NPS" {
					ids = append(ids, "A18/"+policy+"/"+budget+"/"+class)
				}
			}
		}
	}
	return ids
}

// targets judges the study with the mistake.
func (m *mutant) targets(ctx context.Context) ([]report.Target, error) {
	w := honest()
	w.experiments = slices.DeleteFunc(w.experiments, func(e experiment) bool { return !slices.Contains(m.on, e.name) })
	m.spoil(&w)
	if !m.models {
		w.theory = nil
	}
	if !m.control {
		w.controller = nil
	}
	all, err := w.targets(ctx, mutantSeed, mutantSeeds, mutantJobs, io.Discard)
	return slices.DeleteFunc(all, func(t report.Target) bool { return t.Got == nil }), err
}
