package queueing

import "gonum.org/v1/gonum/mat"

// part is a PH that may be over before it began: Alpha may sum to less than 1. Stages
// that some jobs skip are parts.
type part = PH

// mass returns the probability that a part is not over before it began.
func mass(alpha []float64) float64 {
	sum := 0.0
	for _, x := range alpha {
		sum += x
	}
	return sum
}

// sequence returns one part after the other. Its phases are those of the parts, in order, so
// that parts which are upper triangular stay so.
func sequence(parts ...part) part {
	n := 0
	for _, p := range parts {
		n += p.Phases()
	}
	whole := part{Alpha: make([]float64, n), A: mat.NewDense(max(n, 1), max(n, 1), nil)}
	at, skipped := 0, 1.0
	// exits holds, of every phase so far, the rate at which the next part is reached.
	exits := make([]float64, n)
	for _, p := range parts {
		m := p.Phases()
		for j, x := range p.Alpha {
			whole.Alpha[at+j] = skipped * x
			for i := range at {
				if exits[i] > 0 && x > 0 {
					whole.A.Set(i, at+j, exits[i]*x)
				}
			}
		}
		left := max(0, 1-mass(p.Alpha))
		if left < tolerance {
			left = 0
		}
		skipped *= left
		for i := range at {
			exits[i] *= left
		}
		for i, exit := range p.exit() {
			exits[at+i] = exit
			for j := range m {
				if x := p.A.At(i, j); x != 0 {
					whole.A.Set(at+i, at+j, x)
				}
			}
		}
		at += m
	}
	return whole
}

// mixture returns one of the distributions, the i-th with probability probabilities[i].
func mixture(probabilities []float64, phs ...PH) PH {
	p := append([]float64(nil), probabilities...)
	normalise(p)
	var mixed PH
	n := 0
	for _, x := range phs {
		n += x.Phases()
	}
	mixed.A = mat.NewDense(n, n, nil)
	at := 0
	for k, x := range phs {
		for _, a := range x.Alpha {
			mixed.Alpha = append(mixed.Alpha, p[k]*a)
		}
		mixed.A.Slice(at, at+x.Phases(), at, at+x.Phases()).(*mat.Dense).Copy(x.A)
		at += x.Phases()
	}
	return mixed
}

// Scale returns the distribution of factor times the time: of the same work on a server that
// is 1/factor as fast. The factor must be above 0 and finite.
func (p PH) Scale(factor float64) (PH, error) {
	if !isRate(factor) {
		return PH{}, bad("factor", "is %v; it must be above 0 and finite", factor)
	}
	scaled := PH{Alpha: append([]float64(nil), p.Alpha...), A: mat.DenseCopyOf(p.A)}
	scaled.A.Scale(1/factor, scaled.A)
	return scaled, scaled.validate()
}
