package pythia

import (
	"context"
	"io"
	"time"

	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/papers"
)

// mutantSeeds are enough for --mutants: what a mistake breaks, it breaks by far.
const mutantSeeds = 2

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

// mutants are all mistakes, each with the targets that must notice it.
func mutants() []mutant {
	return []mutant{
		{name: "pythia has no door", expected: []string{"B1/nodrop"}, door: instead(admission.Pythia, admission.NoDrop)},
	}
}

// mutants makes the honest run and the mistakes, on the generated jobs.
func (o *options) mutants(ctx context.Context, _ io.Writer) (*papers.Mutants, error) {
	s := &study{source: generated(o.jobs), door: honest}
	targets, err := s.judged(ctx, o)
	if err != nil {
		return nil, err
	}
	m := &papers.Mutants{Honest: targets}
	for _, x := range mutants() {
		m.All = append(m.All, papers.Mutant{Name: x.name, Expected: x.expected, Targets: func(ctx context.Context) ([]papers.Target, error) {
			return (&study{source: s.source, door: x.door, apart: x.apart}).judged(ctx, o)
		}})
	}
	return m, nil
}

// judged are the targets of a study.
func (s *study) judged(ctx context.Context, o *options) ([]papers.Target, error) {
	trials, err := s.run(ctx, o.Seed, o.Seeds, func(int) {})
	return (&figures{source: s.source, trials: trials}).targets(), err
}
