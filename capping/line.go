package capping

import "math"

// line is the straight line y = a + b*x, learned online by a Kalman filter with two states
// (Kalman, "A new approach to linear filtering", 1960): a well-known state changes little,
// an uncertain one changes at once.
type line struct {
	a, b          float64
	paa, pab, pbb float64 // covariance of a and b
}

// at returns the value at x, and its variance.
func (l *line) at(x float64) (y, variance float64) {
	return l.a + l.b*x, l.paa + 2*x*l.pab + x*x*l.pbb
}

// drift adds to the variances of both states.
func (l *line) drift(a, b float64) { l.paa, l.pbb = l.paa+a, l.pbb+b }

// learn updates the line with y measured at x, with variance r.
func (l *line) learn(x, y, r float64) {
	ka, kb := l.paa+x*l.pab, l.pab+x*l.pbb
	s := ka + x*kb + r
	if !(s > 0) || math.IsInf(s, 0) {
		return
	}
	miss := y - l.a - l.b*x
	l.a, l.b = l.a+ka/s*miss, l.b+kb/s*miss
	paa, pab, pbb := l.paa-ka*ka/s, l.pab-ka*kb/s, l.pbb-kb*kb/s
	// Rounding must not make a variance negative.
	l.paa, l.pbb = max(paa, 1e-12), max(pbb, 1e-12)
	bound := math.Sqrt(l.paa * l.pbb)
	l.pab = clamp(pab, -bound, bound)
}
