package solve

import (
	"context"
	"errors"
	"fmt"

	"headroom/jobs/admission"
	"headroom/lab/admit"
	"headroom/units"
)

// admissions are a load and the policy that admits its jobs.
type admissions struct {
	Policy   string `json:"policy"`
	Capacity *int   `json:"capacity" in:"1 1e7" need:""`
	Changes  []struct {
		At       *float64 `json:"at_s" in:"0 1e9" need:""`
		Capacity *int     `json:"capacity" in:"0 1e7"`
		Budget   *float64 `json:"budget_w" in:"0 1e9"`
	} `json:"capacity_changes"`
	Power *struct {
		Idle float64 `json:"idle_w" in:"0 1e9"`
		Full float64 `json:"full_w" in:"0 1e9"`
	} `json:"power"`
	Jobs []struct {
		User     string   `json:"user"`
		Arrival  *float64 `json:"arrival_s" in:"0 1e9" need:""`
		Tasks    *int     `json:"tasks" in:"1 1e7" need:""`
		Work     *float64 `json:"work_s" in:"1e-6 1e9" need:""`
		Deadline *float64 `json:"deadline_s" in:"1e-6 1e9" need:""`
	} `json:"jobs"`
}

func admitJobs(_ context.Context, in *admissions) (object, error) {
	policy, err := admission.ParsePolicy(in.Policy)
	if err != nil {
		return nil, fmt.Errorf("unknown policy %q: must be one of %v", in.Policy, admission.Policies())
	}
	l, err := in.load()
	if err != nil {
		return nil, err
	}
	door, err := admission.New(policy, l.Capacity)
	if err != nil {
		return nil, err
	}
	o, err := admit.Simulate(door, l)
	if err != nil {
		return nil, err
	}
	m := o.Measure(l.Jobs)
	return object{"policy": policy.String(), "jobs": o.Jobs, "sdr": m.SDR, "ptr": m.PTR, "wasted": m.Wasted, "cpu_frac": o.Fractions}, nil
}

func (in *admissions) load() (l admit.Load, err error) {
	l.Capacity = *in.Capacity
	for i := range in.Changes {
		slots, err := in.slots(i)
		if err != nil {
			return l, fmt.Errorf("capacity_changes[%d]: %w", i, err)
		}
		c := admit.Change{At: *in.Changes[i].At, Slots: slots}
		if i > 0 && c.At < l.Changes[i-1].At {
			return l, fmt.Errorf("capacity_changes[%d]: at_s is %v, before %v of the entry ahead of it", i, c.At, l.Changes[i-1].At)
		}
		l.Changes = append(l.Changes, c)
	}
	for i, j := range in.Jobs {
		if i > 0 && *j.Arrival < l.Jobs[i-1].Arrival {
			return l, fmt.Errorf("jobs[%d]: arrival_s is %v, before %v of the job ahead of it; sort the jobs by arrival", i, *j.Arrival, l.Jobs[i-1].Arrival)
		}
		l.Jobs = append(l.Jobs, admit.Job{User: j.User, Tasks: *j.Tasks, Arrival: *j.Arrival, Work: *j.Work, Deadline: *j.Deadline})
	}
	return l, nil
}

// slots is the capacity that a change sets: its own, or how many slots its budget pays for at full speed. Speed counts as
// linear in the power above that of the idle cluster.
func (in *admissions) slots(i int) (int, error) {
	c := &in.Changes[i]
	switch {
	case (c.Capacity == nil) == (c.Budget == nil):
		return 0, errors.New("give one of capacity and budget_w")
	case c.Capacity != nil:
		return *c.Capacity, nil
	case in.Power == nil || in.Power.Full <= in.Power.Idle:
		return 0, errors.New("budget_w needs power, with idle_w below full_w")
	}
	idle, full, budget := units.FromWatts(in.Power.Idle), units.FromWatts(in.Power.Full), units.FromWatts(*c.Budget)
	budget = min(max(idle, budget), full)
	return int(float64(*in.Capacity) * float64(budget-idle) / float64(full-idle)), nil
}
