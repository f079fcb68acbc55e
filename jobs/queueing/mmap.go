package queueing

import (
	"fmt"
	"math"
)

// solveMMAP solves a queue whose arrivals are a marked Markovian process.
func solveMMAP(q Queue, o Options) (Result, error) {
	solved, err := newMMAPQueueOf(q)
	if err != nil {
		return Result{}, err
	}
	result := Result{Rho: solved.load(0)}
	for k := range q.Services {
		var class ClassResult
		if class.Sojourn, err = solved.measure(k, solved.sojourn, 0, o); err != nil {
			return Result{}, err
		}
		if class.Wait, err = solved.measure(k, solved.waiting, solved.atOnce(k), o); err != nil {
			return Result{}, err
		}
		result.Classes = append(result.Classes, class)
	}
	return result, nil
}

func newMMAPQueueOf(q Queue) (*mmapQueue, error) {
	arrivals, err := newMMAP(q.Arrivals.D)
	if err != nil {
		return nil, within("arrivals", err)
	}
	services := make([]*serviceWork, len(q.Services))
	for k, p := range q.Services {
		if services[k], err = newServiceWork(p); err != nil {
			return nil, err
		}
	}
	return newMMAPQueue(arrivals, services, q.Discipline == PreemptiveResume)
}

// measure returns a time of class k, by what begins a walk along its transform; atOnce is the
// probability that it is 0.
func (q *mmapQueue) measure(k int, begin func(k int) transform, atOnce float64, o Options) (Measure, error) {
	alone := func(s complex128) (complex128, error) { return begin(k)(s) }
	list, noise, err := moments(alone, q.classes[k].radius, o.Moments)
	if err != nil {
		return Measure{}, err
	}
	if err := checkPercentiles(o.Percentiles, noise); err != nil {
		return Measure{}, err
	}
	m := measure(list)
	m.law = func(t float64) (float64, float64, error) {
		if t == 0 {
			return atOnce, math.NaN(), nil
		}
		f := begin(k)
		above, slope, err := invert(func(s complex128) (complex128, error) {
			x, err := f(s)
			return (1 - x) / s, err
		}, t)
		return min(1, max(0, 1-above)), -slope, err
	}
	return m, m.fill(o.Percentiles)
}

// percentileErrorMax is the largest error, relative, that a percentile may have by the noise
// of its transform. The estimate is the worst case: real errors are a hundredth of it.
const percentileErrorMax = 1e-5

// checkPercentiles refuses those that the noise of a transform, which the inversion
// enlarges by exp(aliasing/2), would move too far.
func checkPercentiles(percentiles []float64, noise float64) error {
	for _, p := range percentiles {
		// A tail like exp(-x) has this slope on a logarithmic axis of time.
		slope := -(1 - p) * math.Log1p(-p)
		if off := noise * math.Exp(aliasing/2) / slope; !(off < percentileErrorMax) {
			return tooStiff(fmt.Sprintf("percentile %v could be off by %.2g, relative", p, off))
		}
	}
	return nil
}
