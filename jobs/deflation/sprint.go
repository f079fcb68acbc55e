package deflation

import (
	"math"

	"headroom/units"
)

// Excess is how far a job's time X runs beyond a moment t: the chance that it does, then
// the means of (X-t), (X-t)^2 and (X-t)^3 over all jobs, where a job that ended before
// counts 0. In seconds and their powers. At t = 0 these are the moments of X.
type Excess [4]float64

// JobTime is the time that one job takes on the whole cluster when it is not sprinted.
type JobTime interface {
	// Excess is that beyond t >= 0 seconds.
	Excess(t float64) Excess
}

// Speed states what a sprint does to a class's jobs, and when it starts.
type Speed struct {
	// Up is how many times as fast a job runs while it sprints, at least 1. DIAS measured 2.5
	// from 800 MHz to 2.4 GHz.
	Up float64
	// After is the sprint timeout T, seconds from the job's dispatch; +Inf: never.
	After float64
}

// never reports whether no job of the class sprints.
func (s Speed) never() bool { return math.IsInf(s.After, 1) || s.Up == 1 }

// Never returns the timeout of a class that does not sprint.
func Never() float64 { return math.Inf(1) }

// Sprinted is what becomes of a job's time under a sprint timeout.
//
// A job of time X takes X when that is at most T, and T + (X-T)/s otherwise. Its moments
// need no distribution but the excess of X beyond T, and are exact:
//
//	E[Y^n] = E[X^n] - sum over j <= n of binomial(n, j) T^(n-j) (1 - s^-j) E[(X-T)^j; X > T]
type Sprinted struct {
	// Moments are the mean, second and third moment of the job's time, in seconds and their
	// powers.
	Moments [3]float64
	// Chance is the part of the jobs that start a sprint.
	Chance float64
	// Sprint and Square are the mean seconds that a job sprints, over all jobs, and the mean
	// of their squares.
	Sprint, Square float64
}

// Sprint returns a job's time when every sprint runs to the job's end.
func Sprint(x JobTime, s Speed) Sprinted {
	whole := x.Excess(0)
	out := Sprinted{Moments: [3]float64{whole[1], whole[2], whole[3]}}
	if s.never() {
		return out
	}
	r, t, up := x.Excess(s.After), s.After, 1/s.Up
	out.Moments[0] -= (1 - up) * r[1]
	out.Moments[1] -= 2*t*(1-up)*r[1] + (1-up*up)*r[2]
	out.Moments[2] -= 3*t*t*(1-up)*r[1] + 3*t*(1-up*up)*r[2] + (1-up*up*up)*r[3]
	out.Chance, out.Sprint, out.Square = r[0], r[1]*up, r[2]*up*up
	return out
}

// Fraction returns the part of its time that the class's jobs spend sprinting.
func (s Sprinted) Fraction() float64 {
	if s.Moments[0] == 0 {
		return 0
	}
	return s.Sprint / s.Moments[0]
}

// Granted returns what is left of a sprint when the budget pays only a part of its joules, and
// unsprinted the time without any sprint. The mean is exact, whoever gets the joules: each
// sprinted second saves s-1 seconds. For the other moments whole sprints are granted or
// refused at random, which spreads the times more than sprints that end early do.
func (s Sprinted) Granted(part float64, unsprinted Sprinted) Sprinted {
	mix := func(a, b float64) float64 { return part*a + (1-part)*b }
	out := Sprinted{Chance: part * s.Chance, Sprint: part * s.Sprint, Square: part * s.Square}
	for i := range out.Moments {
		out.Moments[i] = mix(s.Moments[i], unsprinted.Moments[i])
	}
	return out
}

// Bucket is a budget of joules for sprints: it holds Capacity at most and fills up again
// at Refill.
type Bucket struct {
	Capacity units.Energy
	Refill   units.Power
}

// Draw is what one class asks of a bucket.
type Draw struct {
	// Rate is its jobs per second.
	Rate float64
	// Extra is what a sprint draws beyond the same job without one.
	Extra units.Power
	// Sprinted are its jobs, as if all sprints were granted.
	Sprinted Sprinted
}

// Granted returns the part of the sprints' joules that the bucket pays in the long run, 0 to 1.
//
// It is the balance of joules: what sprints spend is what came in, less what found the
// bucket full. The room in the bucket behaves like the work before a server that never has
// more than Capacity: sprints add to it what they draw beyond the refill, and between
// sprints the refill takes from it. For that part of the time between sprints which finds
// it full this takes the exponential tail with the right mean (exact where a sprint's
// joules are exponential and sprints start at random):
//
//	full = (1-r) / (1 - r exp(-c B (1-r))),  c = 2 E[J] / E[J^2]
//
// with r the joules added to those that the refill could take and J what one sprint adds.
// With a big bucket that is the fluid limit min(1, refill/demand). Against a simulated
// bucket it is within 0.05, mostly within 0.01; the test has the cases.
func (b Bucket) Granted(draws []Draw) float64 {
	var demand, square, sprinting float64 // of all sprints: W, J^2/s, and the part of the time
	for _, d := range draws {
		w := d.Extra.Watts()
		demand += d.Rate * d.Sprinted.Sprint * w
		square += d.Rate * d.Sprinted.Square * w * w
		sprinting += d.Rate * d.Sprinted.Sprint
	}
	refill, capacity := b.Refill.Watts(), b.Capacity.Joules()
	switch {
	case demand == 0:
		return 1
	case refill <= 0 || capacity <= 0:
		return 0
	case refill*sprinting >= demand: // a sprint draws no more than comes in
		return 1
	}
	net := 1 - refill*sprinting/demand // what is left of a joule drawn, beside the refill
	// The class' own server may be overloaded, and "sprinting" above 1: then nothing is between.
	between := max(1-sprinting, 1e-9)
	idle := full(demand*net/(refill*between), 2*demand*capacity/(square*net))
	return min(1, refill/demand*(1-idle)/(1-idle*(1-net)))
}

// full returns the part of the time that the bucket is full at a load; size is its capacity in
// sprints.
func full(load, size float64) float64 {
	over := (load - 1) * size
	switch {
	case math.Abs(load-1) < 1e-9:
		return 1 / (1 + size)
	case over > 700: // exp would overflow
		return 0
	}
	return (1 - load) / (1 - load*math.Exp(over))
}
