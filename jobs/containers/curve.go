package containers

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Limits of a curve.
const (
	// CurvePointsMost bounds the points of a curve: with growing distances they cover any cluster.
	CurvePointsMost = 64
	// curveMost bounds containers and speed-ups: no cluster has more.
	curveMost = 10_000_000
	// touch is the fraction of a speed-up below which a difference is rounding.
	touch = 1e-9
)

// ErrCurve is returned for invalid points of a curve.
var ErrCurve = errors.New("containers: bad scaling curve")

// CurvePoint is how many times as fast a job is on a number of containers for its tasks as on one.
type CurvePoint struct {
	Containers int
	Speedup    float64
}

// Curve is a job's speed-up over its containers. Between its points it is linear. It ends at its peak, the fewest
// containers with the highest speed-up: more of them slow the job down. A curve whose last point is its highest has
// no peak: beyond that point it rises as between the last two corners of its envelope.
//
// Speed-ups need not be concave: a job that spills to disk from some size on has a step. Its envelope, the least
// concave function that is nowhere below it, exceeds the speed-up of the job between its corners. So containers are
// divided by the envelope, the result is judged by the curve itself, and no job gets containers that make it no
// faster (Fastest).
//
// A nil Curve is that of a job whose speed follows its containers.
type Curve struct {
	points []CurvePoint
	hull   []CurvePoint // the corners of the envelope
	peak   int
}

// NewCurve returns the curve through these points. They begin with one container, and their containers rise.
func NewCurve(points []CurvePoint) (*Curve, error) {
	if err := checkCurve(points); err != nil {
		return nil, err
	}
	best := 0
	for i, p := range points {
		if p.Speedup > points[best].Speedup {
			best = i
		}
	}
	c := &Curve{points: slices.Clone(points[:best+1])}
	if best < len(points)-1 {
		c.peak = points[best].Containers
	}
	for _, p := range c.points {
		for n := len(c.hull); n > 1 && slope(c.hull[n-2], c.hull[n-1]) <= slope(c.hull[n-2], p); n-- {
			c.hull = c.hull[:n-1]
		}
		c.hull = append(c.hull, p)
	}
	return c, nil
}

func checkCurve(points []CurvePoint) error {
	if len(points) < 2 || len(points) > CurvePointsMost {
		return fmt.Errorf("%w: %d points; must be from 2 to %d", ErrCurve, len(points), CurvePointsMost)
	}
	for i, p := range points {
		switch {
		case i == 0 && (p.Containers != 1 || p.Speedup != 1):
			return fmt.Errorf("%w: points[0] is a speed-up of %v on %d containers; it must be 1 on one", ErrCurve, p.Speedup, p.Containers)
		case i > 0 && p.Containers <= points[i-1].Containers:
			return fmt.Errorf("%w: points[%d].containers is %d, not above the previous %d; sort the points", ErrCurve, i, p.Containers, points[i-1].Containers)
		case p.Containers > curveMost:
			return fmt.Errorf("%w: points[%d].containers is %d; the maximum is %d", ErrCurve, i, p.Containers, curveMost)
		case !(p.Speedup > 0 && p.Speedup <= curveMost):
			return fmt.Errorf("%w: points[%d].speedup is %v; it must be above 0 and at most %d", ErrCurve, i, p.Speedup, curveMost)
		}
	}
	return nil
}

func slope(a, b CurvePoint) float64 {
	return (b.Speedup - a.Speedup) / float64(b.Containers-a.Containers)
}

// Peak returns the number of containers for tasks above which more slow the job down; 0 if none is known.
func (c *Curve) Peak() int {
	if c == nil {
		return 0
	}
	return c.peak
}

// Speedup returns the speed-up on n containers for tasks, 1 at least.
func (c *Curve) Speedup(n int) float64 {
	if c == nil {
		return float64(n)
	}
	return c.along(c.points, float64(n))
}

// Envelope returns the envelope's speed-up on n containers for tasks, 1 at least.
func (c *Curve) Envelope(n float64) float64 {
	if c == nil {
		return n
	}
	return c.along(c.hull, n)
}

// along returns the value at n of the lines between points.
func (c *Curve) along(points []CurvePoint, n float64) float64 {
	last := points[len(points)-1]
	switch {
	case n <= 1:
		return 1
	case n >= float64(last.Containers) && c.peak > 0:
		return last.Speedup
	case n >= float64(last.Containers):
		return last.Speedup + slope(c.hull[len(c.hull)-2], last)*(n-float64(last.Containers))
	}
	i, _ := slices.BinarySearchFunc(points, n, func(p CurvePoint, n float64) int { return cmp.Compare(float64(p.Containers), n) })
	a, b := points[i-1], points[i]
	return a.Speedup + slope(a, b)*(n-float64(a.Containers))
}

// Fastest returns the fewest containers for tasks, at most n, on which the job is as fast as on n. They never exceed
// the peak; 0 only for 0.
func (c *Curve) Fastest(n int) int {
	if c == nil || n <= 1 {
		return n
	}
	if c.peak > 0 {
		n = min(n, c.peak)
	}
	best := 1
	for _, p := range c.points {
		if p.Containers <= n && p.Speedup > c.Speedup(best) {
			best = p.Containers
		}
	}
	if c.Speedup(n) > c.Speedup(best)*(1+touch) {
		return n
	}
	return best
}

// needs returns the fewest containers for tasks with this speed-up by the envelope; needMost where none have it.
func (c *Curve) needs(speedup float64) int {
	if c.Envelope(needMost) < speedup*(1-touch) {
		return needMost
	}
	low, high := 0, int(needMost)
	for low+1 < high {
		if middle := (low + high) / 2; c.Envelope(float64(middle)) >= speedup*(1-touch) {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// Corners returns the numbers of containers for tasks at which the envelope bends, below n, and the fastest up to n.
// They include the best number for any cost that rises with the containers and falls with the envelope as a part of it.
func (c *Curve) Corners(n int) []int {
	if c == nil {
		return []int{n}
	}
	var out []int
	for _, p := range c.hull {
		if p.Containers < n {
			out = append(out, p.Containers)
		}
	}
	if last := c.Fastest(n); len(out) == 0 || last > out[len(out)-1] {
		out = append(out, last)
	}
	return out
}
