package queueing

import (
	"fmt"
	"math"
)

// slackMin is the least 1-rho that is solved: rounding of the rates moves the answers by
// 1e-16/(1-rho), relative.
const slackMin = 1e-6

// poisson is a queue with Poisson arrivals, ready to be evaluated.
type poisson struct {
	discipline Discipline
	rates      []float64
	services   []*kernel
	// above[k] is the load of the classes above k; above[k-1] is that of k and above.
	above []float64
	rho   float64
}

// solvePoisson follows Cobham (1954) for means and Takagi's Queueing Analysis (vol. 1,
// chapter 3) for the transforms. For class k, let
//
//	h(z) = sum of lambda_j R_j(z) over the classes j above k,
//	g(z) = h(z) + lambda_k R_k(z),
//	q(z) = sum of lambda_j Q_j(z) over all classes (np) or over those from k up (pr),
//
// with R and Q of [kernel], and z(s) the root of z (1-h(z)) = s: s seen through the busy
// periods of the classes above. Then the waiting time W of class k has
//
//	(1 - E[exp(-sW)]) / s = q(z) / ((1-h(z)) (1-g(z))),
//
// and its sojourn time adds a service (np), or a service with the busy periods that
// interrupt it (pr). At s = 0 this is Cobham's mean.
func solvePoisson(q Queue, o Options) (Result, error) {
	p, err := newPoisson(q, o.Moments)
	if err != nil {
		return Result{}, err
	}
	result := Result{Rho: p.rho}
	for k := range p.services {
		wait, sojourn := p.moments(k, o.Moments)
		class := ClassResult{Wait: measure(wait), Sojourn: measure(sojourn)}
		class.Wait.law = p.law(k, waiting)
		class.Sojourn.law = p.law(k, staying)
		for _, m := range []*Measure{&class.Wait, &class.Sojourn} {
			if err := m.fill(o.Percentiles); err != nil {
				return Result{}, fmt.Errorf("class %d: %w", k, err)
			}
		}
		result.Classes = append(result.Classes, class)
	}
	return result, nil
}

func newPoisson(q Queue, moments int) (*poisson, error) {
	p := &poisson{discipline: q.Discipline, rates: q.Arrivals.Rates, above: make([]float64, len(q.Services))}
	for k := range q.Services {
		p.services = append(p.services, newKernel(q.Services[k], moments+2))
	}
	for k := len(q.Services) - 1; k >= 0; k-- {
		p.above[k] = p.rho
		p.rho += p.rates[k] * p.services[k].mean()
	}
	return p, checkLoad(p.rho)
}

// checkLoad refuses a load that grows without end, or is too near to that.
func checkLoad(rho float64) error {
	switch {
	case !(rho < 1):
		return &UnstableError{Rho: rho}
	case 1-rho < slackMin:
		return &NumericError{
			What: fmt.Sprintf("rho is %.9f, within %v of 1, where rounding dominates the result", rho, slackMin),
			Hint: "lower the arrival rates, or shorten the services",
		}
	}
	return nil
}

// from returns the load of class k and those above it.
func (p *poisson) from(k int) float64 { return p.above[k] + p.rates[k]*p.services[k].mean() }

// lowest returns the lowest class whose jobs in service a job of class k may have to wait for.
func (p *poisson) lowest(k int) int {
	if p.discipline == PreemptiveResume {
		return k
	}
	return 0
}

// kind is what is measured of a class.
type kind int

const (
	waiting kind = iota
	staying
)

// law inverts the transform of one measure of class k.
func (p *poisson) law(k int, what kind) law {
	atom := 0.0
	if what == waiting {
		atom = 1 - p.rho
		if p.discipline == PreemptiveResume {
			atom = 1 - p.from(k)
		}
	}
	return func(t float64) (float64, float64, error) {
		if t == 0 {
			return atom, math.NaN(), nil
		}
		e := &evaluation{poisson: p, k: k, what: what}
		above, slope, err := invert(e.survival, t)
		if err != nil {
			return 0, 0, err
		}
		return min(max(1-above, atom), 1), -slope, nil
	}
}

// evaluation is one inversion's walk along its line.
type evaluation struct {
	*poisson
	k    int
	what kind
	w    workspace
	z, s complex128 // the last root and where it was found
}

// survival returns the transform of P(X > t) at s.
func (e *evaluation) survival(s complex128) (complex128, error) {
	z, slope, err := e.root(s)
	if err != nil {
		return 0, err
	}
	var q, qAbove, qFrom, r complex128 // all that count; above k; k and above; R of k
	for j := e.lowest(e.k); j < len(e.services); j++ {
		if e.rates[j] == 0 && j != e.k {
			continue
		}
		rj, qj := e.services[j].residual(z, &e.w)
		qj *= complex(e.rates[j], 0)
		q += qj
		if j > e.k {
			qAbove += qj
		}
		if j >= e.k {
			qFrom += qj
		}
		if j == e.k {
			r = rj
		}
	}
	// 1-h(z) = 1-h(0) + z q(z), and so for g: no difference of near numbers. By it the
	// root is corrected for what the difference has lost in Newton's method.
	h := complex(1-e.above[e.k], 0) + z*qAbove
	z -= (z*h - s) / slope
	h = complex(1-e.above[e.k], 0) + z*qAbove
	g := complex(1-e.from(e.k), 0) + z*qFrom
	wait := q / (h * g)
	if e.what == waiting {
		return wait, nil
	}
	if e.discipline == PreemptiveResume {
		return wait + (1-s*wait)*r/h, nil
	}
	own, _ := e.services[e.k].residual(s, &e.w)
	return wait + (1-s*wait)*own, nil
}

// root returns z(s) by Newton's method, and the slope of z (1-h(z)) there. Right of the imaginary axis there is one root, as
// s + sum of lambda_j (1 - E[exp(-z B_j)]) contracts by the load of the classes above.
func (e *evaluation) root(s complex128) (z, slope complex128, err error) {
	if e.above[e.k] == 0 {
		return s, 1, nil
	}
	z = e.start(s)
	for range newtonMost {
		value := complex(0, 0)
		slope = 1
		for j := e.k + 1; j < len(e.services); j++ {
			if e.rates[j] == 0 {
				continue
			}
			v, d := e.services[j].slope(z, &e.w)
			value += complex(e.rates[j], 0) * v
			slope -= complex(e.rates[j], 0) * d
		}
		next := z - (z-value-s)/slope
		if real(next) < real(s) { // Newton left the half plane of the root: contract
			next = s + value
		}
		moved := abs1(next - z)
		z = next
		if moved <= newtonExact*abs1(z) {
			e.z, e.s = z, s
			return z, slope, nil
		}
	}
	return 0, 0, &NumericError{
		What: fmt.Sprintf("the busy period of the classes above %d did not converge at s = %v", e.k, s),
		Hint: "lower the load of those classes, or use rates that differ less",
	}
}

// Newton's method stops when it moves by less than newtonExact, where the next step
// would move by the square of that.
const (
	newtonMost  = 200
	newtonExact = 1e-9
)

// start returns near the root: the last one and its change with s, or the first step of the
// contraction.
func (e *evaluation) start(s complex128) complex128 {
	if e.z == 0 {
		return s / complex(1-e.above[e.k], 0)
	}
	return e.z + (s - e.s)
}

func abs1(z complex128) float64 {
	return max(real(z), -real(z)) + max(imag(z), -imag(z))
}
