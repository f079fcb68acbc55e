package admit

import (
	"fmt"
	"math"

	"headroom/jobs/admission"
	"headroom/units"
)

// Bounds of an input.
const (
	// jobsMost is how many jobs an input may have: a simulation of them takes seconds.
	jobsMost = 50_000
	// changesMost bounds the changes of the capacity.
	changesMost = 10_000
	// secondsMost is about 30 years: sums of it stay exact to a microsecond.
	secondsMost = 1e9
	// secondsLeast is the shortest time that differs from 0.
	secondsLeast = 1e-6
)

// Input is a load and the policy that admits its jobs.
type Input struct {
	Policy   string `json:"policy"`
	Capacity *int   `json:"capacity"`
	Changes  []struct {
		At       *float64 `json:"at_s"`
		Capacity *int     `json:"capacity"`
		Budget   *float64 `json:"budget_w"`
	} `json:"capacity_changes"`
	Power *struct {
		Idle float64 `json:"idle_w"`
		Full float64 `json:"full_w"`
	} `json:"power"`
	Jobs []struct {
		User     string   `json:"user"`
		Arrival  *float64 `json:"arrival_s"`
		Tasks    *int     `json:"tasks"`
		Work     *float64 `json:"work_s"`
		Deadline *float64 `json:"deadline_s"`
	} `json:"jobs"`
}

// Output is the decision about each job, and the paper's measures. What does not exist is null.
type Output struct {
	Policy    string      `json:"policy"`
	Jobs      []OutputJob `json:"jobs"`
	SDR       *float64    `json:"sdr"`
	PTR       *float64    `json:"ptr"`
	Wasted    *float64    `json:"wasted"`
	Fractions []float64   `json:"cpu_frac"`
}

// OutputJob is one job of an Output.
type OutputJob struct {
	Decision   string   `json:"decision"`
	Slots      float64  `json:"slots"`
	Start      *float64 `json:"start_s"`
	Finish     *float64 `json:"finish_s"`
	Met        bool     `json:"met"`
	Confidence float64  `json:"confidence"`
	Nearest    *float64 `json:"nearest_deadline_s"`
	Reason     string   `json:"reason"`
}

// Solve simulates an input. Its errors are mistakes in the input.
func Solve(in *Input) (*Output, error) {
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
	o, err := Simulate(door, l)
	if err != nil {
		return nil, err
	}
	m := o.Measure(l.Jobs)
	out := &Output{Policy: policy.String(), Jobs: make([]OutputJob, len(l.Jobs)), SDR: m.SDR, PTR: m.PTR, Wasted: m.Wasted, Fractions: o.fractions}
	for i := range o.Jobs {
		out.Jobs[i] = o.Jobs[i].OutputJob
	}
	return out, nil
}

// within returns an error for a number that is missing or out of its bounds.
func within[T int | float64](place string, x *T, low, high T) error {
	switch {
	case x == nil:
		return fmt.Errorf("%s is missing", place)
	case !(*x >= low && *x <= high):
		return fmt.Errorf("%s is %v: must be from %v to %v", place, *x, low, high)
	}
	return nil
}

// load checks the input.
func (in *Input) load() (l Load, err error) {
	if err := within("capacity", in.Capacity, 1, admission.CapacityMost); err != nil {
		return l, err
	}
	if len(in.Jobs) > jobsMost || len(in.Changes) > changesMost {
		return l, fmt.Errorf("%d jobs and %d capacity_changes; at most %d and %d", len(in.Jobs), len(in.Changes), jobsMost, changesMost)
	}
	l.Capacity = *in.Capacity
	for i := range in.Changes {
		place := fmt.Sprintf("capacity_changes[%d]: ", i)
		slots, err := in.slots(place, i)
		if err != nil {
			return l, err
		}
		c := Change{*in.Changes[i].At, slots}
		if i > 0 && c.At < l.Changes[i-1].At {
			return l, fmt.Errorf("%sat_s is %v, before %v of the entry ahead of it", place, c.At, l.Changes[i-1].At)
		}
		l.Changes = append(l.Changes, c)
	}
	for i, j := range in.Jobs {
		place := fmt.Sprintf("jobs[%d]: ", i)
		for _, err := range []error{
			within(place+"arrival_s", j.Arrival, 0, secondsMost), within(place+"tasks", j.Tasks, 1, admission.TasksMost),
			within(place+"work_s", j.Work, secondsLeast, secondsMost), within(place+"deadline_s", j.Deadline, secondsLeast, secondsMost),
		} {
			if err != nil {
				return l, err
			}
		}
		if i > 0 && *j.Arrival < l.Jobs[i-1].Arrival {
			return l, fmt.Errorf("%sarrival_s is %v, before %v of the job ahead of it; sort the jobs by arrival", place, *j.Arrival, l.Jobs[i-1].Arrival)
		}
		l.Jobs = append(l.Jobs, Job{User: j.User, Tasks: *j.Tasks, Arrival: *j.Arrival, Work: *j.Work, Deadline: *j.Deadline})
	}
	return l, nil
}

// slots is the capacity that a change sets, in slots.
func (in *Input) slots(place string, i int) (int, error) {
	c := &in.Changes[i]
	if err := within(place+"at_s", c.At, 0, secondsMost); err != nil {
		return 0, err
	}
	switch {
	case (c.Capacity == nil) == (c.Budget == nil):
		return 0, fmt.Errorf("%sgive one of capacity and budget_w", place)
	case c.Capacity != nil:
		return *c.Capacity, within(place+"capacity", c.Capacity, 0, admission.CapacityMost)
	case in.Power == nil || !(in.Power.Idle >= 0 && in.Power.Full > in.Power.Idle && in.Power.Full <= secondsMost):
		return 0, fmt.Errorf("%sbudget_w needs power, with 0 <= idle_w < full_w <= %g", place, secondsMost)
	}
	return slotsFor(watts(in.Power.Idle), watts(in.Power.Full), watts(*c.Budget), *in.Capacity), within(place+"budget_w", c.Budget, 0, secondsMost)
}

// slotsFor returns how many of a cluster's slots a budget pays for at full speed; idle is the power of the cluster without
// work, full with all slots at full speed. Speed counts as linear in the power above idle.
func slotsFor(idle, full, budget units.Power, slots int) int {
	switch {
	case slots <= 0 || budget <= idle:
		return 0
	case budget >= full:
		return slots
	}
	return int(float64(slots) * float64(budget-idle) / float64(full-idle))
}

func watts(w float64) units.Power { return units.Power(math.Round(w * float64(units.Watt))) }
