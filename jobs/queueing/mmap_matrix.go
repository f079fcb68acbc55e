package queueing

import (
	"errors"
	"math"
	"math/cmplx"
)

// Dense linear algebra of small complex matrices, no more than the solver of
// MMAP[K]/PH[K]/1 needs: products, solutions of linear systems, the Schur form.

// errSingular states that a linear system has no solution to working accuracy.
var errSingular = errors.New("queueing: a linear system is singular to working accuracy")

// epsilon is the distance of 1 from the next larger float64.
const epsilon = 0x1p-52

// matrix is a square complex matrix, row by row.
type matrix struct {
	order int
	of    []complex128
}

func newMatrix(order int) *matrix {
	return &matrix{order, make([]complex128, order*order)}
}

func identity(order int) *matrix {
	m := newMatrix(order)
	m.shift(1)
	return m
}

// realMatrix copies rows into a complex matrix.
func realMatrix(rows [][]float64) *matrix {
	m := newMatrix(len(rows))
	for i, row := range rows {
		for j, x := range row {
			m.row(i)[j] = complex(x, 0)
		}
	}
	return m
}

func (m *matrix) row(i int) []complex128 { return m.of[i*m.order : (i+1)*m.order] }

func (m *matrix) at(i, j int) complex128 { return m.of[i*m.order+j] }

func (m *matrix) clone() *matrix {
	c := newMatrix(m.order)
	copy(c.of, m.of)
	return c
}

// shift adds x to the diagonal.
func (m *matrix) shift(x complex128) {
	for i := range m.order {
		m.of[i*m.order+i] += x
	}
}

// add adds x times b to m.
func (m *matrix) add(x complex128, b *matrix) {
	for i, y := range b.of {
		m.of[i] += x * y
	}
}

// addProduct adds a b to m.
func (m *matrix) addProduct(a, b *matrix) {
	for i := range m.order {
		to := m.row(i)
		for k, x := range a.row(i) {
			if x == 0 {
				continue
			}
			for j, y := range b.row(k) {
				to[j] += x * y
			}
		}
	}
}

// adjoint returns the conjugate transpose.
func (m *matrix) adjoint() *matrix {
	c := newMatrix(m.order)
	for i := range m.order {
		for j := range m.order {
			c.of[j*m.order+i] = cmplx.Conj(m.at(i, j))
		}
	}
	return c
}

// applied returns m x.
func (m *matrix) applied(x []complex128) []complex128 {
	y := make([]complex128, m.order)
	for i := range y {
		y[i] = inner(m.row(i), x)
	}
	return y
}

// largest returns the largest absolute row sum, within a factor of sqrt 2.
func (m *matrix) largest() float64 {
	most := 0.0
	for i := range m.order {
		sum := 0.0
		for _, x := range m.row(i) {
			sum += size1(x)
		}
		most = math.Max(most, sum)
	}
	return most
}

func inner(x, y []complex128) complex128 {
	var sum complex128
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// addTimes adds x times y to sum.
func addTimes(sum []complex128, x complex128, y []complex128) {
	sum = sum[:len(y)]
	for i, v := range y {
		sum[i] += x * v
	}
}

// size1 returns a cheap size of a complex number, within a factor of sqrt 2 of its modulus.
func size1(x complex128) float64 { return math.Abs(real(x)) + math.Abs(imag(x)) }

// factors are the triangular factors of a matrix with its rows in another order.
type factors struct {
	lu   *matrix
	from []int
}

// factor decomposes a copy of m; the matrix must be regular.
func (m *matrix) factor() (*factors, error) {
	f := &factors{lu: m.clone(), from: make([]int, m.order)}
	for k := range f.from {
		f.from[k] = k
	}
	for k := range m.order {
		best := k
		for i := k + 1; i < m.order; i++ {
			if size1(f.lu.at(i, k)) > size1(f.lu.at(best, k)) {
				best = i
			}
		}
		f.lu.swapRows(k, best)
		f.from[k], f.from[best] = f.from[best], f.from[k]
		pivot := f.lu.at(k, k)
		if size := size1(pivot); size == 0 || math.IsNaN(size) || math.IsInf(size, 0) {
			return nil, errSingular
		}
		for i := k + 1; i < m.order; i++ {
			row := f.lu.row(i)
			if row[k] == 0 {
				continue
			}
			row[k] /= pivot
			addTimes(row[k+1:], -row[k], f.lu.row(k)[k+1:])
		}
	}
	return f, nil
}

// solveRight returns the row vector x with x m = y.
func (f *factors) solveRight(y []complex128) []complex128 {
	order := f.lu.order
	z := append([]complex128(nil), y...)
	for j := range order {
		z[j] /= f.lu.at(j, j)
		addTimes(z[j+1:], -z[j], f.lu.row(j)[j+1:])
	}
	for j := order - 1; j > 0; j-- {
		addTimes(z[:j], -z[j], f.lu.row(j)[:j])
	}
	x := make([]complex128, order)
	for i, from := range f.from {
		x[from] = z[i]
	}
	return x
}

// invert makes of m its inverse, by elimination of whole columns in place; it takes no
// memory but from, of m's order, as it is what the solver does most.
func (m *matrix) invert(from []int) error {
	for k := range m.order {
		best := k
		for i := k + 1; i < m.order; i++ {
			if size1(m.at(i, k)) > size1(m.at(best, k)) {
				best = i
			}
		}
		m.swapRows(k, best)
		from[k] = best
		row := m.row(k)
		if size := size1(row[k]); size == 0 || math.IsNaN(size) || math.IsInf(size, 0) {
			return errSingular
		}
		scale := 1 / row[k]
		row[k] = 1
		for j := range row {
			row[j] *= scale
		}
		for i := range m.order {
			if i == k {
				continue
			}
			to := m.row(i)
			x := to[k]
			if x == 0 {
				continue
			}
			to[k] = 0
			addTimes(to, -x, row)
		}
	}
	// The columns go back in the opposite order.
	for k := m.order - 1; k >= 0; k-- {
		if from[k] == k {
			continue
		}
		for i := range m.order {
			row := m.row(i)
			row[k], row[from[k]] = row[from[k]], row[k]
		}
	}
	return nil
}

func (m *matrix) swapRows(i, j int) {
	if i == j {
		return
	}
	a, b := m.row(i), m.row(j)
	for k := range a {
		a[k], b[k] = b[k], a[k]
	}
}

// schur is the decomposition m = u t u*, u unitary and t upper triangular.
type schur struct {
	u, t *matrix
}

// triangular decomposes m by shifted QR steps on its Hessenberg form (Golub and Van
// Loan, Matrix Computations, 7.5). A matrix that is triangular already stays as it is.
func (m *matrix) triangular() (*schur, error) {
	d := &schur{u: identity(m.order), t: m.clone()}
	d.hessenberg()
	steps := 0
	for last := m.order - 1; last > 0; {
		first := d.deflated(last)
		if first == last {
			last, steps = last-1, 0
			continue
		}
		if steps++; steps > 60 {
			return nil, errors.New("queueing: the QR steps for a Schur form do not converge")
		}
		d.step(first, last, d.chooseShift(last, steps))
	}
	for i := range m.order { // what is left below the diagonal is rounding
		clear(d.t.row(i)[:i])
	}
	return d, nil
}

// rotation is a unitary map of two coordinates: (x, y) becomes (c x + s y, -conj(s) x + c y).
type rotation struct {
	c float64
	s complex128
}

// rotationFor turns (x, y) into (r, 0).
func rotationFor(x, y complex128) rotation {
	length := math.Hypot(cmplx.Abs(x), cmplx.Abs(y))
	switch {
	case y == 0:
		return rotation{1, 0}
	case x == 0:
		return rotation{0, cmplx.Conj(y) / complex(cmplx.Abs(y), 0)}
	}
	size := cmplx.Abs(x)
	return rotation{size / length, x / complex(size, 0) * cmplx.Conj(y) / complex(length, 0)}
}

// rows applies g to the rows i and k of m, from the column start on.
func (g rotation) rows(m *matrix, i, k, start int) {
	a, b := m.row(i), m.row(k)
	c, s := complex(g.c, 0), g.s
	for j := start; j < m.order; j++ {
		a[j], b[j] = c*a[j]+s*b[j], c*b[j]-cmplx.Conj(s)*a[j]
	}
}

// columns applies the adjoint of g to the columns i and k of m, down to the row end.
func (g rotation) columns(m *matrix, i, k, end int) {
	c, s := complex(g.c, 0), g.s
	for j := range end {
		row := m.row(j)
		row[i], row[k] = c*row[i]+cmplx.Conj(s)*row[k], c*row[k]-s*row[i]
	}
}

// hessenberg clears what lies below the first subdiagonal.
func (d *schur) hessenberg() {
	order := d.t.order
	for j := 0; j < order-2; j++ {
		for i := order - 1; i > j+1; i-- {
			if d.t.at(i, j) == 0 {
				continue
			}
			g := rotationFor(d.t.at(i-1, j), d.t.at(i, j))
			g.rows(d.t, i-1, i, 0)
			g.columns(d.t, i-1, i, order)
			g.columns(d.u, i-1, i, order)
			d.t.of[i*order+j] = 0
		}
	}
}

// deflated returns the first row of the unreduced block that ends in the row last.
func (d *schur) deflated(last int) int {
	for i := last; i > 0; i-- {
		if size1(d.t.at(i, i-1)) <= epsilon/2*(size1(d.t.at(i, i))+size1(d.t.at(i-1, i-1))) {
			d.t.of[i*d.t.order+i-1] = 0
			return i
		}
	}
	return 0
}

// chooseShift returns the eigenvalue of the last two by two block nearer to its corner; now
// and then something else, so that no cycle lasts.
func (d *schur) chooseShift(last, steps int) complex128 {
	a, b := d.t.at(last-1, last-1), d.t.at(last-1, last)
	c, e := d.t.at(last, last-1), d.t.at(last, last)
	if steps%10 == 0 {
		return e + complex(cmplx.Abs(c), 0)
	}
	half := (a - e) / 2
	root := cmplx.Sqrt(half*half + b*c)
	if size1(half+root) < size1(half-root) {
		root = -root
	}
	if half+root == 0 {
		return e
	}
	return e - b*c/(half+root)
}

// step is one QR step with the given shift on the block of the rows first to last.
func (d *schur) step(first, last int, shift complex128) {
	order := d.t.order
	turns := make([]rotation, last-first)
	for i := first; i <= last; i++ {
		d.t.of[i*order+i] -= shift
	}
	for i := range turns {
		k := first + i
		turns[i] = rotationFor(d.t.at(k, k), d.t.at(k+1, k))
		turns[i].rows(d.t, k, k+1, k)
	}
	for i, g := range turns {
		k := first + i
		g.columns(d.t, k, k+1, k+2)
		g.columns(d.u, k, k+1, order)
	}
	for i := first; i <= last; i++ {
		d.t.of[i*order+i] += shift
	}
}
