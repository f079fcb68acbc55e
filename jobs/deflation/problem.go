package deflation

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/quality"
	"headroom/jobs/queueing"
	"headroom/units"
)

// Policy states how a sprint enters the model.
type Policy string

// The policies.
const (
	// Timed is the default: it transforms the job's time as [Sprint] says and fits its moments.
	Timed Policy = "timed"
	// Paper is DIAS's: all of the job's rates are multiplied by its effective sprint rate,
	// E[X]/E[Y], which keeps the form of its distribution. The mean time is the same.
	Paper Policy = "paper"
)

// Percentile bounds a percentile of the time from a job's arrival to its end: P above 0 and
// below 1, Max in seconds.
type Percentile struct{ P, Max float64 }

// Class is one priority class.
type Class struct {
	// Name is for answers.
	Name string
	// Rate is how many jobs arrive per second, above 0.
	Rate float64
	// Jobs is how long they take.
	Jobs Jobs
	// Profile is what dropping costs; nil where ErrorMax is 0.
	Profile *quality.Profile
	// ErrorMax bounds the error, 0 to 1; 0: nothing is dropped.
	ErrorMax float64
	// Weight is how much an error counts beside that of other classes; 0 counts as 1.
	Weight float64
	// Ratios are the drop ratios to try, 0 to 1; nil: those of Jobs. 0 is always tried.
	Ratios []float64
	// MeanMax bounds the mean time from arrival to end, in seconds; 0: no bound.
	MeanMax float64
	// Percentiles bound percentiles of it.
	Percentiles []Percentile
	// SprintUp is how many times as fast a sprint makes a job; 0 or 1: the class may not sprint.
	SprintUp float64
	// SprintExtra is what a sprint draws beyond the same job without one.
	SprintExtra units.Power
	// SprintShare is the class's part of the sprint budget. Where no class has one, all
	// draw from one pot, as in the coordinators' ledger.
	SprintShare float64
	// Timeouts are the sprint timeouts to try, in seconds; nil: eighths of the job's mean
	// time. [Never] is always tried.
	Timeouts []float64
}

// sprints reports whether the class may sprint.
func (c *Class) sprints() bool { return c.SprintUp > 1 }

// Problem is what [Choose] solves.
type Problem struct {
	// Discipline is queueing.NonPreemptive, the default and DIAS's, or queueing.PreemptiveResume.
	Discipline queueing.Discipline
	// Sprints states how sprints enter the model; empty: Timed.
	Sprints Policy
	// Classes are from LOWEST to HIGHEST priority.
	Classes []Class
	// Budget pays the sprints; nil: all are granted.
	Budget *Bucket
	// Busy is what a running job draws beyond an idle cluster; 0 where unknown: then only
	// the joules of sprints are compared.
	Busy units.Power
	// FrontierMost is how many points of the frontier to tell; each is a call of the model.
	FrontierMost int
	// CallsMost bounds the calls of the queueing model in the search; 0: 5,000.
	CallsMost int
}

// Bounds of a problem.
const (
	callsMost = 5000
	// gridMost bounds the settings that are looked at, at a microsecond each.
	gridMost = 200_000
	// timeoutsMost and givenMost bound what is tried of one class: by default and by its own lists.
	timeoutsMost = 8
	givenMost    = 200
)

// check refuses what cannot be meant, and fills in what has a default.
func (p *Problem) check() error {
	if p.Discipline == "" {
		p.Discipline = queueing.NonPreemptive
	}
	if p.Sprints == "" {
		p.Sprints = Timed
	}
	if p.CallsMost == 0 {
		p.CallsMost = callsMost
	}
	switch {
	case p.Discipline != queueing.NonPreemptive && p.Discipline != queueing.PreemptiveResume:
		return bad("discipline", "is %q; want %s or %s", p.Discipline, queueing.NonPreemptive, queueing.PreemptiveResume)
	case p.Sprints != Timed && p.Sprints != Paper:
		return bad("sprints", "is %q; want %s or %s", p.Sprints, Timed, Paper)
	case len(p.Classes) == 0 || len(p.Classes) > queueing.MaxClasses:
		return bad("classes", "are %d; must be from 1 to %d", len(p.Classes), queueing.MaxClasses)
	case p.CallsMost < 0 || p.FrontierMost < 0:
		return bad("calls", "are bounded by %d, and the frontier by %d; neither may be negative", p.CallsMost, p.FrontierMost)
	case p.Busy < 0:
		return bad("busy", "is %v; it must not be negative", p.Busy)
	case p.Budget != nil && (p.Budget.Capacity < 0 || p.Budget.Refill < 0):
		return bad("budget", "holds %v and refills at %v; neither may be negative", p.Budget.Capacity, p.Budget.Refill)
	}
	p.Classes = slices.Clone(p.Classes)
	shares := 0.0
	for i := range p.Classes {
		c := &p.Classes[i]
		if c.Weight == 0 {
			c.Weight = 1
		}
		if err := c.check(fmt.Sprintf("classes[%d]", i)); err != nil {
			return err
		}
		shares += c.SprintShare
	}
	if shares > 1+1e-9 {
		return bad("classes", "have sprint shares that sum to %v; they sum to at most 1", shares)
	}
	return nil
}

func (c *Class) check(place string) error {
	switch {
	case !(c.Rate > 0 && c.Rate < math.MaxInt32):
		return bad(place+".rate_per_s", "is %v; it must be above 0; omit a class without jobs", c.Rate)
	case c.Jobs.Time == nil:
		return bad(place+".job", "is missing; the duration of a job is unknown")
	case !(c.ErrorMax >= 0 && c.ErrorMax <= 1):
		return bad(place+".error_max", "is %v; an error is from 0 to 1", c.ErrorMax)
	case c.ErrorMax > 0 && (c.Profile == nil || len(c.Profile.Points) == 0):
		return bad(place+".profile", "is empty, so the cost of dropping is unknown: measure it with `scheduler profile`, or omit error_max")
	case !(c.Weight > 0 && c.Weight < math.MaxInt32):
		return bad(place+".weight", "is %v; it must be above 0", c.Weight)
	case !(c.MeanMax >= 0 && c.MeanMax < math.MaxInt32):
		return bad(place+".mean_max_s", "is %v; it must be above 0, or omitted", c.MeanMax)
	case !(c.SprintUp == 0 || c.SprintUp >= 1 && c.SprintUp <= 100):
		return bad(place+".sprint.speed_up", "is %v; it must be from 1 to 100", c.SprintUp)
	case c.SprintExtra < 0:
		return bad(place+".sprint.extra_w", "is %v; it must not be negative", c.SprintExtra)
	case !(c.SprintShare >= 0 && c.SprintShare <= 1):
		return bad(place+".sprint.share", "is %v; a share is from 0 to 1", c.SprintShare)
	case len(c.Ratios) > givenMost || len(c.Timeouts) > givenMost || len(c.Percentiles) > queueing.MaxPercentiles:
		return bad(place, "has a list of more than %d drop ratios or timeouts, or of more than %d percentiles", givenMost, queueing.MaxPercentiles)
	}
	return c.checkLists(place)
}

func (c *Class) checkLists(place string) error {
	for i, theta := range append(slices.Clone(c.Ratios), c.Jobs.Ratios...) {
		if !(theta >= 0 && theta <= 1) {
			return bad(fmt.Sprintf("%s.thetas[%d]", place, i), "is %v; a drop ratio is from 0 to 1", theta)
		}
	}
	for i, t := range c.Timeouts {
		if !(t >= 0) {
			return bad(fmt.Sprintf("%s.sprint.timeouts_s[%d]", place, i), "is %v; it must be 0 or more", t)
		}
	}
	for i, p := range c.Percentiles {
		switch {
		case !(p.P > 0 && p.P <= queueing.MaxPercentile):
			return bad(fmt.Sprintf("%s.percentiles_max_s[%d]", place, i), "bounds percentile %v; it must be above 0 and at most %v", p.P, queueing.MaxPercentile)
		case !(p.Max > 0 && p.Max < math.MaxInt32):
			return bad(fmt.Sprintf("%s.percentiles_max_s[%d]", place, i), "is %v; it must be above 0", p.Max)
		}
	}
	return nil
}
