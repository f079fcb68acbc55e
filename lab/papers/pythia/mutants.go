package pythia

import (
	"context"
	"io"
	"time"

	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/papers"
	"headroom/lab/report"
)

// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
const (
	mutantSeeds = 2
	// mutantJobs keeps the time short: nodrop takes long with many.
	mutantJobs = 2000
)

// mutant is the study with doors that make one mistake.
type mutant struct {
	name     string
	expected []string
	door     func(p admission.Policy, slots int) (admit.Door, error)
	// apart: the mistake touches NoDrop, which has to run for each deadline type then.
	apart bool
}

// wrongWork is a door that is told a multiple of the work of jobs: of new ones at their submission, of ended ones at their ends.
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

// misled are doors of which one policy is told wrong times.
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
	capacities := generated(jobsLeast).capacities
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

// mutants makes the honest run and the mistakes, on the generated jobs.
func (o *options) mutants(ctx context.Context, _ io.Writer) (*papers.Mutants, error) {
	s := &study{source: generated(min(o.jobs, mutantJobs)), door: honest}
	targets, err := s.judged(ctx, o)
	if err != nil {
		return nil, err
	}
	m := &papers.Mutants{Honest: targets}
	for _, x := range mutants() {
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: m.CanFall(x.expected), Targets: func(ctx context.Context) ([]report.Target, error) {
			return (&study{source: s.source, door: x.door, apart: x.apart}).judged(ctx, o)
		}})
	}
	return m, nil
}

// judged are the targets of a study.
func (s *study) judged(ctx context.Context, o *options) ([]report.Target, error) {
	trials, err := s.run(ctx, o.Seed, o.Seeds)
	return (&figures{source: s.source, trials: trials}).targets(), err
}
