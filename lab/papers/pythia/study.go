package pythia

import (
	"context"
	"fmt"

	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/lab/papers"
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
