package queueing

import "slices"

// series is a power series in u = -s with its first terms. For the transforms of this
// package all coefficients are positive, so that adding and multiplying keeps every one
// exact to rounding.
type series []float64

func (a series) plus(b series) series {
	c := make(series, len(a))
	for i := range c {
		c[i] = a[i] + b[i]
	}
	return c
}

func (a series) times(b series) series {
	c := make(series, len(a))
	for i, x := range a {
		for j := range len(a) - i {
			c[i+j] += x * b[j]
		}
	}
	return c
}

// scaled returns f times the series.
func (a series) scaled(f float64) series {
	c := make(series, len(a))
	for i, x := range a {
		c[i] = f * x
	}
	return c
}

// shifted returns u times the series.
func (a series) shifted() series {
	return append(series{0}, a[:len(a)-1]...)
}

// inverse returns 1/(1-a), where a[0] is below 1 and slack is 1-a[0].
func (a series) inverse(slack float64) series {
	c := make(series, len(a))
	c[0] = 1 / slack
	for i := 1; i < len(a); i++ {
		for j := 1; j <= i; j++ {
			c[i] += a[j] * c[i-j]
		}
		c[i] /= slack
	}
	return c
}

// at returns a(y(u)) for a y without a constant.
func (a series) at(y series) series {
	c := make(series, len(a))
	for _, x := range slices.Backward(a) {
		c = c.times(y)
		c[0] += x
	}
	return c
}

// moments gives the first n raw moments of the wait and the sojourn of class k.
func (p *poisson) moments(k, n int) (wait, sojourn []float64) {
	h, g, q := make(series, n), make(series, n), make(series, n)
	for j := p.lowest(k); j < len(p.services); j++ {
		c := series(p.services[j].coefficients)
		q = q.plus(c[1 : n+1].scaled(p.rates[j]))
		if j > k {
			h = h.plus(c[:n].scaled(p.rates[j]))
		}
		if j >= k {
			g = g.plus(c[:n].scaled(p.rates[j]))
		}
	}
	above, from := 1-p.above[k], 1-p.from(k)
	// y = u / (1-h(y)): each round settles one more term.
	y := make(series, n)
	for range n {
		y = h.at(y).inverse(above).shifted()
	}
	h, g, q = h.at(y).inverse(above), g.at(y).inverse(from), q.at(y)
	w := q.times(h).times(g)
	transform := w.shifted() // E[exp(uW)]
	transform[0] = 1
	own := series(p.services[k].coefficients[:n])
	if p.discipline == PreemptiveResume {
		own = own.at(y).times(h)
	}
	return w.moments(), w.plus(transform.times(own)).moments()
}

// moments of the distribution whose survival function's transform the series is.
func (a series) moments() []float64 {
	out, factorial := make([]float64, len(a)), 1.0
	for i, x := range a {
		factorial *= float64(i + 1)
		out[i] = x * factorial
	}
	return out
}
