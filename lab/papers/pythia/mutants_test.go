package pythia

import (
	"context"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/report"
	"headroom/lab/report/reporttest"
)

// Every target that can get worse does so under a mistake of the doors, on the generated jobs.
func TestMutants(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	judged := func(ctx context.Context, s *study) ([]report.Target, error) {
		s.source = generated(2000) // nodrop takes long with more
		trials, err := s.run(ctx, 1001, 2)
		return (&figures{source: s.source, trials: trials}).targets(), err
	}
	var all []reporttest.Mutant
	for _, x := range mutants() {
		all = append(all, reporttest.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]report.Target, error) {
			return judged(ctx, &study{door: x.door, apart: x.apart})
		}})
	}
	reporttest.Mutants(t, testkit.Need(judged(t.Context(), &study{door: honest}))(t), all)
}

// mutant is the study with doors that make one mistake.
type mutant struct {
	name     string
	expected []string
	door     func(p admission.Policy, slots int) (admit.Door, error)
	// apart: the mistake touches NoDrop, which has to run for each deadline type then.
	apart bool
}

// wrongWork is a door that receives a multiple of the work of jobs: of new ones at their submission, of ended ones at their ends.
type wrongWork struct {
	*admission.Controller

	submitted, ended float64
}

func times(work time.Duration, by float64) time.Duration {
	return max(1, time.Duration(float64(work)*by))
}

func (w *wrongWork) Submit(now time.Time, j admission.Job) ([]admission.Decision, error) {
	j.Work = times(j.Work, w.submitted)
	return w.Controller.Submit(now, j)
}

func (w *wrongWork) Finished(now time.Time, id string, work time.Duration) ([]admission.Decision, bool, error) {
	return w.Controller.Finished(now, id, times(work, w.ended))
}

// instead are doors where one policy stands for another.
func instead(of, by admission.Policy) func(admission.Policy, int) (admit.Door, error) {
	return func(p admission.Policy, slots int) (admit.Door, error) {
		if p == of {
			p = by
		}
		return admission.New(p, slots)
	}
}

// misled are doors of which one policy gets wrong times.
func misled(of admission.Policy, submitted, ended float64) func(admission.Policy, int) (admit.Door, error) {
	return func(p admission.Policy, slots int) (admit.Door, error) {
		c, err := admission.New(p, slots)
		if err != nil || p != of {
			return c, err
		}
		return &wrongWork{c, submitted, ended}, nil
	}
}

// small are doors of a cluster that is as small in the ample case as in the tight one.
func small(p admission.Policy, slots int) (admit.Door, error) {
	capacities := generated(few).capacities
	if slots == capacities[ample] {
		slots = capacities[tight]
	}
	return admission.New(p, slots)
}

// mutants are all mistakes, each with the targets that must notice it.
func mutants() []mutant {
	return []mutant{
		{name: "pythia has no door", expected: []string{"B1/nodrop", "B1/reactive", "B2/reactive", "B3/oracle", "B3/tight", "B3/middle", "B4/pythia", "B5/classes"}, door: instead(admission.Pythia, admission.NoDrop)},
		{name: "pythia learns a quarter of the work", expected: []string{"B4/pythia"}, door: misled(admission.Pythia, 1, 0.25)},
		{name: "reactive stops nothing", expected: []string{"B4/nodrop-tight", "B4/nodrop-middle"}, door: instead(admission.Reactive, admission.NoDrop)},
		{name: "reactive is pythia", expected: append([]string{"B4/reactive-tight", "B4/reactive-middle"}, byTasksIDs()...), door: instead(admission.Reactive, admission.Pythia)},
		{name: "nodrop is pythia", expected: []string{"B1/nodrop", "B2/nodrop", "B4/nodrop-tight", "B4/nodrop-middle"}, door: instead(admission.NoDrop, admission.Pythia), apart: true},
		{name: "oracle is told three times the work", expected: []string{"B1/oracle"}, door: misled(admission.Oracle, 3, 1)},
		{name: "the ample cluster is small", expected: []string{"B6/spread"}, door: small},
		{name: "adaptive has no door", expected: goalIDs(), door: instead(admission.Adaptive, admission.NoDrop)},
	}
}

// byTasksIDs are the targets of shares by tasks.
func byTasksIDs() []string {
	return []string{
		"B1/reactive-by-tasks", "B2/reactive-by-tasks", "B3/tight-by-tasks", "B3/middle-by-tasks", "B4/reactive-tight-by-tasks", "B4/reactive-middle-by-tasks",
	}
}

// goalIDs are the targets of ours.
func goalIDs() (ids []string) {
	for _, m := range multiples() {
		ids = append(ids, "ours/sdr-"+m.name, "ours/ptr-"+m.name)
	}
	return ids
}
