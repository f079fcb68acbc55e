package progress

import (
	"math"

	"headroom/units"
)

// The coefficients of the model, in the order of its state.
const (
	level   = iota // ln of the rate at the reference power and containers
	slope          // exponent of the power there
	bend           // half of how the exponent grows with ln(power)
	scaling        // exponent of the containers
	size
)

const (
	// unknownLevel is the standard deviation of a level of which nothing is known.
	unknownLevel = 1000
	// drift is how far the rate of a job wanders over its whole life, as a standard
	// deviation of its logarithm: input is not alike everywhere.
	drift = 0.1
	// patience is how many samples of surprise the model's own noise is worth.
	patience = 8
)

// model holds that ln(rate) = level + slope*u + bend*u^2 + scaling*l, where u and l
// are the logarithms of power and containers over a reference. It is a Kalman
// filter: Gaussian before, Gaussian after, the level drifting as the job goes on.
type model struct {
	prior  Prior
	known  bool // a sample or a pace of earlier jobs has set the level
	set    bool // the reference is set
	power  float64
	number float64 // of containers
	b      [size]float64
	p      [size][size]float64
	// surprise is the sum of squared normalised innovations of so many samples.
	surprise, samples float64
}

// refer sets the reference once: full power where it is known, else the power at hand.
func (m *model) refer(prior Prior, power, full units.Power, containers float64) {
	if m.set || !positive(containers) {
		return
	}
	m.set, m.prior, m.power, m.number = true, prior, full.Watts(), containers
	if full <= 0 {
		m.power = power.Watts()
	}
	for i, c := range []Coefficient{{0, unknownLevel}, prior.Power, prior.Bend, prior.Containers} {
		m.b[i], m.p[i][i] = c.Value, c.SD*c.SD
	}
	if prior.Pace != nil {
		m.known = true
		m.b[level] = prior.Pace.Value + math.Log(containers)
		m.p[level][level] = prior.Pace.SD * prior.Pace.SD
	}
}

// u returns the logarithm of a power over the reference; 0 where either is unknown.
func (m *model) u(power units.Power) float64 {
	if power <= 0 || m.power <= 0 {
		return 0
	}
	return math.Log(power.Watts() / m.power)
}

// l returns the logarithm of the containers over the reference; containers is positive.
func (m *model) l(containers float64) float64 { return math.Log(containers / m.number) }

// learn takes in a logarithm of a rate that was seen at x with a variance.
func (m *model) learn(x [size]float64, seen, variance float64) {
	if !m.known {
		m.known = true
		m.b[level] = seen - (dot(x, m.b) - m.b[level])
	}
	px := m.times(x)
	total := dot(x, px) + variance
	surprise := seen - dot(x, m.b)
	m.note(surprise * surprise / total)
	for i := range size {
		m.b[i] += px[i] / total * surprise
		for j := range size {
			m.p[i][j] -= px[i] * px[j] / total
		}
	}
}

// note counts how much larger surprises are than the model expects.
func (m *model) note(squared float64) {
	const remembered = 40
	if m.samples >= remembered {
		m.surprise *= 1 - 1.0/remembered
		m.samples *= 1 - 1.0/remembered
	}
	m.surprise += min(squared, 25)
	m.samples++
}

// doubt returns by what the model's variances must be multiplied: 1 while it sees what it expects.
func (m *model) doubt() float64 { return max(1, (patience+m.surprise)/(patience+m.samples)) }

// pass lets the level drift over a part (0 to 1) of the job.
func (m *model) pass(part float64) {
	m.p[level][level] += drift * drift * min(max(part, 0), 1)
}

// shape returns slope*u + bend*u^2 where that rises, and flat where it would fall, 0 at
// the reference: more power never makes a job slower.
func (m *model) shape(u float64) float64 {
	x, z := m.b[slope], m.b[bend]
	rising := func(u float64) float64 { return u }
	switch top := -x / (2 * z); {
	case z < 0:
		rising = func(u float64) float64 { return min(u, top) }
	case z > 0:
		rising = func(u float64) float64 { return max(u, top) }
	default:
		x = max(x, 0)
	}
	from, to := rising(0), rising(u)
	return x*(to-from) + z*(to*to-from*from)
}

// rate returns the logarithm of the rate at a power and containers, and its variance.
func (m *model) rate(power units.Power, containers float64) (mean, variance float64) {
	u, l := m.u(power), m.l(containers)
	x := [size]float64{1, u, u * u, l}
	return m.at(u, l), dot(x, m.times(x))
}

// at returns the logarithm of the rate at logarithms of power and containers.
func (m *model) at(u, l float64) float64 {
	return m.b[level] + m.shape(u) + max(m.b[scaling], 0)*l
}

// speed returns what a second at u does of what one at full power does.
func (m *model) speed(u float64, full units.Power) float64 {
	return math.Exp(m.shape(u) - m.shape(m.u(full)))
}

// coefficient returns one coefficient of the model.
func (m *model) coefficient(i int) Coefficient {
	return Coefficient{Value: m.b[i], SD: math.Sqrt(max(m.p[i][i], 0))}
}

// exponent returns the exponent of the power at a power.
func (m *model) exponent(power units.Power) Coefficient {
	u := m.u(power)
	x := [size]float64{slope: 1, bend: 2 * u}
	return Coefficient{Value: max(dot(x, m.b), 0), SD: math.Sqrt(max(dot(x, m.times(x)), 0))}
}

// pace returns the logarithm of the rate of one container at full power.
func (m *model) pace(full units.Power) float64 {
	return m.b[level] + m.shape(m.u(full)) - math.Log(m.number)
}

func (m *model) times(x [size]float64) (out [size]float64) {
	for i := range size {
		out[i] = dot(m.p[i], x)
	}
	return out
}

func dot(a, b [size]float64) (sum float64) {
	for i := range size {
		sum += a[i] * b[i]
	}
	return sum
}
