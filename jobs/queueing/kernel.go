package queueing

import (
	"math"
	"math/cmplx"

	lapack "gonum.org/v1/gonum/lapack/gonum"
	"gonum.org/v1/gonum/mat"
)

// kernel evaluates the transform of a PH distribution B with sub-generator A through
// two functions that need no difference of near numbers:
//
//	R(z) = alpha (zI-A)^-1 1             = (1 - E[exp(-zB)]) / z
//	Q(z) = alpha (zI-A)^-1 (-A)^-1 1     = (E[B] - R(z)) / z
//
// A matrix without cycles is brought into upper triangular order, and an evaluation is a
// back substitution over its entries. Any other is brought into Hessenberg form once.
type kernel struct {
	n    int
	rows *triangle   // of an acyclic A, or
	hess *hessenberg // of any other
	// alpha and times (the mean time to absorption from each phase, (-A)^-1 1) and ones
	// are in the coordinates of the form.
	alpha, times, ones []float64
	// coefficients[i] is alpha (-A)^-(i+1) 1 = E[B^(i+1)]/(i+1)!.
	coefficients []float64
}

// newKernel prepares p, with so many moments (at least 2).
func newKernel(p PH, moments int) *kernel {
	k := &kernel{n: p.Phases()}
	inverse := newInverse(p)
	x := make([]float64, k.n)
	for i := range x {
		x[i] = 1
	}
	var times []float64
	for i := range moments {
		x = inverse.solve(x)
		if i == 0 {
			times = x
		}
		k.coefficients = append(k.coefficients, dot(p.Alpha, x))
	}
	if order, acyclic := topological(p.A); acyclic {
		k.rows = newTriangle(p.A, order)
		k.alpha, k.times, k.ones = permute(p.Alpha, order), permute(times, order), make([]float64, k.n)
		for i := range k.ones {
			k.ones[i] = 1
		}
		return k
	}
	k.hess = newHessenberg(p.A)
	ones := make([]float64, k.n)
	for i := range ones {
		ones[i] = 1
	}
	k.alpha, k.times, k.ones = k.hess.turn(p.Alpha), k.hess.turn(times), k.hess.turn(ones)
	return k
}

func (k *kernel) mean() float64 { return k.coefficients[0] }

// workspace holds the vectors of an evaluation, so that one inversion allocates once.
type workspace struct {
	x, y []complex128
	m    []complex128
}

// residual gives R(z) and Q(z).
func (k *kernel) residual(z complex128, w *workspace) (r, q complex128) {
	w.x, w.y = grown(w.x, k.n), grown(w.y, k.n)
	if k.rows != nil {
		k.rows.solve2(z, k.ones, k.times, w.x, w.y)
	} else {
		k.hess.factor(z, w)
		k.hess.solve(k.ones, w.x, w)
		k.hess.solve(k.times, w.y, w)
	}
	for i, a := range k.alpha {
		if a != 0 {
			r += complex(a*real(w.x[i]), a*imag(w.x[i]))
			q += complex(a*real(w.y[i]), a*imag(w.y[i]))
		}
	}
	return r, q
}

// slope gives z R(z) = 1 - E[exp(-zB)] and its derivative E[B exp(-zB)].
func (k *kernel) slope(z complex128, w *workspace) (value, derivative complex128) {
	w.x, w.y = grown(w.x, k.n), grown(w.y, k.n)
	if k.rows != nil {
		k.rows.solveTwice(z, k.ones, w.x, w.y)
	} else {
		k.hess.factor(z, w)
		k.hess.solve(k.ones, w.x, w)
		k.hess.solveComplex(w.x, w.y, w)
	}
	var r, d complex128
	for i, a := range k.alpha {
		if a != 0 {
			r += complex(a*real(w.x[i]), a*imag(w.x[i]))
			d += complex(a*real(w.y[i]), a*imag(w.y[i]))
		}
	}
	return z * r, r - z*d
}

func grown(x []complex128, n int) []complex128 {
	if cap(x) < n {
		return make([]complex128, n)
	}
	return x[:n]
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

func permute(x []float64, order []int) []float64 {
	out := make([]float64, len(order))
	for i, from := range order {
		out[i] = x[from]
	}
	return out
}

// topological returns an order of the phases in which A is upper triangular, if there is one.
// A matrix that already is keeps its order.
func topological(a *mat.Dense) (order []int, acyclic bool) {
	n, _ := a.Dims()
	into := make([]int, n)
	for i := range n {
		for j, x := range a.RawRowView(i) {
			if i != j && x != 0 {
				into[j]++
			}
		}
	}
	order = make([]int, 0, n)
	for i, degree := range into {
		if degree == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		i := order[at]
		for j, x := range a.RawRowView(i) {
			if i != j && x != 0 {
				if into[j]--; into[j] == 0 {
					order = append(order, j)
				}
			}
		}
	}
	return order, len(order) == n
}

// triangle is a sparse upper triangular matrix.
type triangle struct {
	diagonal []float64
	begin    []int // row i is columns[begin[i]:begin[i+1]]
	columns  []int
	values   []float64
}

func newTriangle(a *mat.Dense, order []int) *triangle {
	place := make([]int, len(order))
	for i, from := range order {
		place[from] = i
	}
	t := &triangle{begin: []int{0}}
	for _, from := range order {
		for j, x := range a.RawRowView(from) {
			if j == from {
				t.diagonal = append(t.diagonal, x)
			} else if x != 0 {
				t.columns, t.values = append(t.columns, place[j]), append(t.values, x)
			}
		}
		t.begin = append(t.begin, len(t.columns))
	}
	return t
}

// solve2 solves (zI-A) x = b and (zI-A) y = c.
func (t *triangle) solve2(z complex128, b, c []float64, x, y []complex128) {
	for i := len(t.diagonal) - 1; i >= 0; i-- {
		xr, xi, yr, yi := b[i], 0.0, c[i], 0.0
		for e := t.begin[i]; e < t.begin[i+1]; e++ {
			v, j := t.values[e], t.columns[e]
			xr += v * real(x[j])
			xi += v * imag(x[j])
			yr += v * real(y[j])
			yi += v * imag(y[j])
		}
		pr, pi := reciprocal(real(z)-t.diagonal[i], imag(z))
		x[i] = complex(xr*pr-xi*pi, xr*pi+xi*pr)
		y[i] = complex(yr*pr-yi*pi, yr*pi+yi*pr)
	}
}

// solveTwice solves (zI-A) x = b and (zI-A) y = x.
func (t *triangle) solveTwice(z complex128, b []float64, x, y []complex128) {
	for i := len(t.diagonal) - 1; i >= 0; i-- {
		xr, xi, yr, yi := b[i], 0.0, 0.0, 0.0
		for e := t.begin[i]; e < t.begin[i+1]; e++ {
			v, j := t.values[e], t.columns[e]
			xr += v * real(x[j])
			xi += v * imag(x[j])
			yr += v * real(y[j])
			yi += v * imag(y[j])
		}
		pr, pi := reciprocal(real(z)-t.diagonal[i], imag(z))
		x[i] = complex(xr*pr-xi*pi, xr*pi+xi*pr)
		yr, yi = yr+real(x[i]), yi+imag(x[i])
		y[i] = complex(yr*pr-yi*pi, yr*pi+yi*pr)
	}
}

// reciprocal returns 1/(a+bi) with a > 0. The numbers are rates, far from the ends of
// float64, so the plain formula is exact to rounding.
func reciprocal(a, b float64) (re, im float64) {
	d := 1 / (a*a + b*b)
	return a * d, -b * d
}

// inverse solves -A x = b with positive numbers only, hence each component to rounding:
// elimination in which the diagonal is never subtracted from but is the sum of what
// leaves (Grassmann, Taksar and Heyman 1985).
type inverse struct {
	lower, upper [][]float64 // multipliers and rates after elimination
	exit         []float64   // what leaves each phase, after elimination
}

func newInverse(p PH) *inverse {
	n := p.Phases()
	inv := &inverse{lower: make([][]float64, n), upper: make([][]float64, n), exit: make([]float64, n)}
	exits := p.exit()
	for i := range n {
		inv.lower[i] = make([]float64, n)
		inv.upper[i] = append([]float64(nil), p.A.RawRowView(i)...)
	}
	for k := range n {
		pivot := exits[k]
		for j := k + 1; j < n; j++ {
			pivot += inv.upper[k][j]
		}
		inv.exit[k] = pivot
		for i := k + 1; i < n; i++ {
			if inv.upper[i][k] == 0 {
				continue
			}
			m := inv.upper[i][k] / pivot
			inv.lower[i][k] = m
			for j := k + 1; j < n; j++ {
				if j != i {
					inv.upper[i][j] += m * inv.upper[k][j]
				}
			}
			exits[i] += m * exits[k]
		}
	}
	return inv
}

// solve gives x with -A x = b; b is at least 0.
func (inv *inverse) solve(b []float64) []float64 {
	n := len(b)
	x := append([]float64(nil), b...)
	for i := range n {
		for k, m := range inv.lower[i][:i] {
			x[i] += m * x[k]
		}
	}
	for i := n - 1; i >= 0; i-- {
		for j := i + 1; j < n; j++ {
			x[i] += inv.upper[i][j] * x[j]
		}
		x[i] /= inv.exit[i]
	}
	return x
}

// hessenberg is an orthogonal similarity A = P H P', with H zero below its subdiagonal.
type hessenberg struct {
	h *mat.Dense
	p *mat.Dense
	n int
}

// newHessenberg reduces A by Householder's reflections (Golub and Van Loan, 7.4.2).
func newHessenberg(a *mat.Dense) *hessenberg {
	n, _ := a.Dims()
	h, tau, work := mat.DenseCopyOf(a), make([]float64, n-1), make([]float64, n)
	of := h.RawMatrix()
	lapack.Implementation{}.Dgehrd(n, 0, n-1, of.Data, of.Stride, tau, work, n)
	p := mat.DenseCopyOf(h)
	of = p.RawMatrix()
	lapack.Implementation{}.Dorghr(n, 0, n-1, of.Data, of.Stride, tau, work, n)
	for i := range n { // below the subdiagonal stand the reflections
		clear(h.RawRowView(i)[:max(0, i-1)])
	}
	return &hessenberg{h: h, p: p, n: n}
}

// turn gives P'x: a vector in the coordinates of H.
func (h *hessenberg) turn(x []float64) []float64 {
	out := make([]float64, h.n)
	mat.NewVecDense(h.n, out).MulVec(h.p.T(), mat.NewVecDense(h.n, x))
	return out
}

// factor brings zI-H into upper triangular form by Givens rotations, which w keeps: per
// row n entries, then the rotation's two numbers.
func (h *hessenberg) factor(z complex128, w *workspace) {
	n := h.n
	w.m = grown(w.m, n*(n+2))
	row := func(i int) []complex128 { return w.m[i*(n+2) : i*(n+2)+n] }
	for i := range n {
		r := row(i)
		for j, x := range h.h.RawRowView(i) {
			r[j] = complex(-x, 0)
		}
		r[i] += z
	}
	for i := range n - 1 {
		a, b := row(i), row(i+1)
		norm := complex(math.Hypot(cmplx.Abs(a[i]), cmplx.Abs(b[i])), 0)
		c, s := a[i]/norm, b[i]/norm
		w.m[i*(n+2)+n], w.m[i*(n+2)+n+1] = c, s
		for j := i; j < n; j++ {
			a[j], b[j] = cmplx.Conj(c)*a[j]+cmplx.Conj(s)*b[j], c*b[j]-s*a[j]
		}
	}
}

// solve gives x with (zI-H) x = b, after factor.
func (h *hessenberg) solve(b []float64, x []complex128, w *workspace) {
	for i := range x {
		x[i] = complex(b[i], 0)
	}
	h.back(x, w)
}

// solveComplex is solve for a complex b.
func (h *hessenberg) solveComplex(b, x []complex128, w *workspace) {
	copy(x, b)
	h.back(x, w)
}

func (h *hessenberg) back(x []complex128, w *workspace) {
	n := h.n
	for i := range n - 1 {
		c, s := w.m[i*(n+2)+n], w.m[i*(n+2)+n+1]
		x[i], x[i+1] = cmplx.Conj(c)*x[i]+cmplx.Conj(s)*x[i+1], c*x[i+1]-s*x[i]
	}
	for i := n - 1; i >= 0; i-- {
		r := w.m[i*(n+2) : i*(n+2)+n]
		for j := i + 1; j < n; j++ {
			x[i] -= r[j] * x[j]
		}
		x[i] /= r[i]
	}
}
