package queueing

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Discipline states what an arrival does to a job of lower priority in service.
type Discipline string

// The disciplines. Within a class jobs are served in order of arrival.
const (
	// NonPreemptive lets the running job end: "np".
	NonPreemptive Discipline = "np"
	// PreemptiveResume suspends it; it goes on where it was: "pr".
	PreemptiveResume Discipline = "pr"
)

// Arrivals are either independent Poisson streams or a marked Markovian process.
type Arrivals struct {
	// Rates are arrivals per unit of time, one per class; 0 is a class without jobs.
	Rates []float64
	// D is an MMAP: D[0] holds the rates without an arrival, D[k] those with an
	// arrival of class k-1.
	D []*mat.Dense
}

// Queue is one server with several classes of jobs, from LOWEST to HIGHEST priority.
type Queue struct {
	Discipline Discipline
	Arrivals   Arrivals
	Services   []PH
}

// Options say what to compute beside means.
type Options struct {
	// Moments is how many moments to give, from 1 to [maxMoments]; 0 is 1.
	Moments int
	// Percentiles are probabilities from 0 to [MaxPercentile].
	Percentiles []float64
}

// Bounds of [Options] and [Queue]: what they ask for is computed, so it is bounded.
const (
	maxMoments     = 20
	MaxPercentiles = 100
	MaxClasses     = 32
	// MaxPercentile: the inversion's error of 1e-10 would show beyond it.
	MaxPercentile = 1 - 1e-6
)

// Result is the queue in its steady state.
type Result struct {
	// Rho is the utilisation: the part of the time in which the server works.
	Rho float64
	// Classes are in the order of the queue's.
	Classes []ClassResult
}

// ClassResult tells of one class what its jobs meet.
type ClassResult struct {
	// Sojourn is the time from arrival to end.
	Sojourn Measure
	// Wait is the time from arrival to the first moment of service. Under
	// PreemptiveResume later interruptions are not part of it, but of Sojourn.
	Wait Measure
}

// Measure is a distribution of times.
//
//nolint:recvcheck // who asks gets values; only fill, which completes one, changes it
type Measure struct {
	Mean float64
	// Moments are the raw moments E[X], E[X^2], ...
	Moments []float64
	// Percentiles are as asked, in that order.
	Percentiles []Percentile
	law         law
}

// Percentile is the time At that a part P of the jobs does not exceed.
type Percentile struct{ P, At float64 }

// Solve computes the queue's steady state. It takes [NonPreemptive] and
// [PreemptiveResume]; for killing and restarting see [SimulateRepeat].
func Solve(q Queue, o Options) (Result, error) {
	if err := q.check(); err != nil {
		return Result{}, err
	}
	if err := o.check(); err != nil {
		return Result{}, err
	}
	if o.Moments == 0 {
		o.Moments = 1
	}
	if q.Arrivals.D != nil {
		return solveMMAP(q, o)
	}
	return solvePoisson(q, o)
}

// check looks at all but an MMAP's matrices.
func (q Queue) check() error {
	if q.Discipline == PreemptiveRepeat {
		return bad("discipline", "is %q, which has no exact solution; simulate it, or use %s", q.Discipline, PreemptiveResume)
	}
	if q.Discipline != NonPreemptive && q.Discipline != PreemptiveResume {
		return bad("discipline", "is %q; want %s or %s", q.Discipline, NonPreemptive, PreemptiveResume)
	}
	return q.checkParts()
}

func (q Queue) checkParts() error {
	rates, d, classes := q.Arrivals.Rates, q.Arrivals.D, len(q.Services)
	switch {
	case classes == 0 || classes > MaxClasses:
		return bad("services", "are %d; must be from 1 to %d", classes, MaxClasses)
	case (rates == nil) == (d == nil):
		return bad("arrivals", "must have either rates or D")
	case d == nil && len(rates) != classes:
		return bad("arrivals.rates", "are %d for %d services; give one per class", len(rates), classes)
	case d != nil && len(d) != classes+1:
		return bad("arrivals.D", "has %d matrices for %d services; give D0 and one per class", len(d), classes)
	}
	total := 0.0
	for k, rate := range rates {
		if !(rate >= 0) || math.IsInf(rate, 1) {
			return bad(fmt.Sprintf("arrivals.rates[%d]", k), "is %v; it must be 0 or more and finite", rate)
		}
		total += rate
	}
	if d == nil && total == 0 {
		return bad("arrivals.rates", "are all 0; at least one class must have jobs")
	}
	for k, s := range q.Services {
		if err := s.validate(); err != nil {
			return within(fmt.Sprintf("services[%d]", k), err)
		}
	}
	return nil
}

func (o Options) check() error {
	if o.Moments < 0 || o.Moments > maxMoments {
		return bad("moments", "is %d; from 1 to %d are computed", o.Moments, maxMoments)
	}
	if len(o.Percentiles) > MaxPercentiles {
		return bad("percentiles", "are %d; the maximum is %d", len(o.Percentiles), MaxPercentiles)
	}
	for i, p := range o.Percentiles {
		if !(p > 0 && p <= MaxPercentile) {
			return bad(fmt.Sprintf("percentiles[%d]", i), "is %v; it must be above 0 and at most %v", p, MaxPercentile)
		}
	}
	return nil
}
