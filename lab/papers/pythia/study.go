// Package pythia is `powerlab paper pythia`: the experiments of PYTHIA (Dimopoulos, Krintz, Wolski:
// "PYTHIA: Admission Control for Multi-Framework, Deadline-Driven, Big Data Workloads", UCSB TR
// 2017-02), with the paper's policies and ours as the admission control of simulated clusters. Only
// the jobs are simulated. All policies get the same, and only the oracle sees what one takes before its end.
package pythia

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"headroom/internal/cli"
	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/papers"
	"headroom/lab/report"
	"headroom/lab/traces"
)

// key is one run of a source's jobs.
type key struct {
	policy admission.Policy
	// deadlines is which of the multiples.
	deadlines, capacity int
	cut                 bool
	// byTasks: slots are shared in proportion to tasks, by NoDrop and Reactive.
	byTasks bool
}

// measures are the paper's of one run, as parts of 1.
type measures struct{ sdr, ptr, wasted float64 }

// trial is all runs of one seed.
type trial map[key]measures

// study is what is run: a source on some seeds, by doors that may have a mistake.
type study struct {
	*source

	door func(p admission.Policy, slots int) (admit.Door, error)
	// apart runs NoDrop for each deadline type. Otherwise one run serves all types: it never looks at deadlines.
	apart bool
}

// honest are the doors without a mistake.
func honest(p admission.Policy, slots int) (admit.Door, error) { return admission.New(p, slots) }

// keys are the runs of a study: the paper's four policies and ours at all capacities under the fixed deadlines, at the two smaller ones
// under the variable deadlines, those that share also by tasks, and ours and what it is held against while the capacity is cut, too.
func keys() (all []key) {
	for i := range multiples() {
		for capacity := tight; capacity <= ample; capacity++ {
			if i > 0 && capacity == ample {
				continue
			}
			add := func(cut, byTasks bool, policies ...admission.Policy) {
				for _, p := range policies {
					all = append(all, key{p, i, capacity, cut, byTasks})
				}
			}
			add(false, false, admission.Policies()...)
			if capacity < ample {
				add(true, false, admission.Adaptive, admission.Pythia, admission.Reactive)
				add(false, true, admission.NoDrop, admission.Reactive)
			}
		}
	}
	return all
}

// run makes all runs on so many seeds.
func (s *study) run(ctx context.Context, seed uint64, seeds int) ([]trial, error) {
	trials := make([]trial, seeds)
	err := papers.Each(seeds, func(i int) (err error) {
		trials[i], err = s.trial(ctx, seed+uint64(i))
		return err
	}, func(int) {})
	return trials, err
}

func (s *study) trial(ctx context.Context, seed uint64) (trial, error) {
	jobs, t := s.draw(seed), trial{}
	shared := map[key]*admit.Outcome{} // of NoDrop, but for the deadline type
	for _, k := range keys() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := s.load(jobs, k, seed)
		alike := key{policy: k.policy, capacity: k.capacity, byTasks: k.byTasks}
		o := shared[alike]
		if k.policy != admission.NoDrop || o == nil || s.apart {
			door, err := s.door(k.policy, l.Capacity)
			if err != nil {
				return nil, err
			}
			if c, ok := door.(interface{ ShareByTasks() }); ok && k.byTasks {
				c.ShareByTasks()
			}
			if o, err = admit.Simulate(door, l); err != nil {
				return nil, fmt.Errorf("%s by %s: %w", s.name, k.policy, err)
			}
		}
		if k.policy == admission.NoDrop {
			shared[alike] = o
			o.Judge(l.Jobs)
		}
		m := o.Measure(l.Jobs)
		t[k] = measures{*m.SDR, *m.PTR, 0}
		if m.Wasted != nil { // where nothing was done, nothing was wasted
			t[k] = measures{*m.SDR, *m.PTR, *m.Wasted}
		}
	}
	return t, nil
}

// NewCommand is `powerlab paper pythia`. Its generated jobs of a seed are enough for jobs to pile up under nodrop until small ones no
// longer get a slot each.
func NewCommand() *cobra.Command { return newCommand(20_000) }

func newCommand(jobs int) *cobra.Command {
	return papers.Study{
		Paper: "pythia", Seeds: 5, Traces: true,
		Short: "Admission control of jobs with deadlines (PYTHIA)",
		Long: `Repeats PYTHIA's experiments: admission of jobs with deadlines to a cluster of three capacities, from far too small to
ample, under the paper's five deadline types and four policies, and under ours (adaptive), also while the capacity is
halved for a third of the time. Only the policy oracle has the time of a job before the job has ended.

The paper's traces are not public. Jobs are generated with the published moments of its first trace, on a tenth of its
slots. --traces names a folder of published traces, and repeats the study on each of them:

  hawk-format/GOOG_subtrace.tr, YH1_sub.tr, YH2_sub.tr    as published with Hawk, Eagle and Pigeon
  swim/FB-2010_samples_24_times_1hr_0.tsv                 of SWIM; tasks are derived from its bytes

Without it those targets are not_run. A seed draws jobs and deadlines; on a trace it draws the deadlines and the job
that the trace begins with.`,
		Run: func(ctx context.Context, o *papers.Options) (*papers.Result, error) { return simulate(ctx, o, jobs) },
	}.Command()
}

// simulate runs all experiments. Traces are read before anything runs, so that a mistake in one costs no time.
func simulate(ctx context.Context, o *papers.Options, jobs int) (*papers.Result, error) {
	sources := []*source{generated(jobs)}
	var left []report.Target
	for _, name := range []string{"google", "yahoo1", "yahoo2", "facebook2010"} {
		why, err := o.Traces.Read(name, func(f *traces.File) error {
			s, err := traced(name, f)
			sources = append(sources, s)
			return err
		})
		if err != nil {
			return nil, err
		}
		if why != "" {
			for _, t := range (&figures{source: &source{name: name, traced: true}}).targets() {
				missing := report.Left(t.ID, t.What, t.Unit, why)
				missing.Paper = t.Paper
				left = append(left, missing)
			}
		}
	}
	out := &papers.Result{}
	for _, s := range sources {
		cli.Notef(o.Progress, "%s: %d seeds of %d runs", s.name, o.Seeds, len(keys()))
		trials, err := (&study{source: s, door: honest}).run(ctx, o.Seed, o.Seeds)
		if err != nil {
			return nil, err
		}
		out.Targets = append(out.Targets, (&figures{source: s, trials: trials}).targets()...)
	}
	out.Targets = append(out.Targets, left...)
	return out, nil
}
