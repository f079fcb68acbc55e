package usba

import (
	"fmt"
	"math"

	"headroom/jobs/scaling/regress"
)

// Times are what was measured of a job (Table 3.2), in seconds.
type Times struct {
	N, M int
	// Launch is from the job's launch to the begin of its first stage, Stages the sum of all stages' times.
	Launch, Stages float64
}

// Measured is what FitTimes finds: the surface, and the fits of p and of q.
type Measured struct {
	Model
	P, Q *regress.Fit
}

// FitTimes fits p and q, each to its own times. One of the measurements must be that of N = m = 1.
func FitTimes(all []Times, held map[string]float64) (*Measured, error) {
	base, most, err := baseline(all)
	if err != nil {
		return nil, err
	}
	ps := parameters(most)
	regress.Hold(ps, held)
	var used []Times
	for _, t := range all {
		if t.N > 1 || t.M > 1 {
			used = append(used, t)
		}
	}
	p, err := regress.Solve(regress.Problem{
		Parameters: ps[:eps], Rows: len(used), Y: func(i int) float64 { return used[i].Stages / base.Stages },
		Model: func(v []float64, i int) float64 {
			return Model{Alpha: v[alpha], Beta: v[beta], Gamma: v[gamma]}.P(float64(used[i].N), float64(used[i].M))
		},
		Starts: [][]float64{{1, 0, 0}},
	})
	if err != nil {
		return nil, fmt.Errorf("usba: p: %w", err)
	}
	q, err := fitQ(used, base, ps[eps:ratio], most)
	if err != nil {
		return nil, fmt.Errorf("usba: q: %w", err)
	}
	v, w := p.Values(), q.Values()
	m := Model{R: base.Launch / base.Stages, Alpha: v[alpha], Beta: v[beta], Gamma: v[gamma], Eps: w[0], Theta: w[1]}
	return &Measured{Model: m, P: p, Q: q}, nil
}

func fitQ(used []Times, base *Times, ps []regress.Parameter, most float64) (*regress.Fit, error) {
	var from [][]float64
	for at := 1.5; at < 2*most; at *= 1.5 {
		from = append(from, []float64{0.05, at})
	}
	return regress.Solve(regress.Problem{
		Parameters: ps, Rows: len(used), Y: func(i int) float64 { return used[i].Launch / base.Launch },
		Model: func(v []float64, i int) float64 {
			return Model{Eps: v[0], Theta: v[1]}.Q(float64(used[i].M))
		},
		Starts: from,
	})
}

// baseline checks the measurements and returns that of N = m = 1, and the largest degree.
func baseline(all []Times) (base *Times, most float64, err error) {
	for i := range all {
		t := &all[i]
		switch {
		case t.N < 1 || t.N > sizeMost || t.M < 1 || t.M > sizeMost:
			return nil, 0, fmt.Errorf("usba: %w: measurement %d: n is %d and m is %d; they must be from 1 to %d", regress.ErrNumber, i, t.N, t.M, sizeMost)
		case !(t.Launch > 0 && t.Stages > 0) || math.IsInf(t.Launch+t.Stages, 1):
			return nil, 0, fmt.Errorf("usba: %w: measurement %d: launch and stages must take more than 0 s", regress.ErrNumber, i)
		case t.N == 1 && t.M == 1:
			base = t
		}
		most = max(most, float64(t.M))
	}
	if base == nil {
		return nil, 0, fmt.Errorf("usba: %w: no measurement at n = m = 1, the reference of p and q", regress.ErrTooFew)
	}
	return base, most, nil
}
