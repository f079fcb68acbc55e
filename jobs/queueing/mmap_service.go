package queueing

import (
	"fmt"
	"math"
)

// serviceWork is the phase-type time of one job in a form whose transform takes matrices.
// Its generator is upper triangular, with the states in another order when they can be
// visited only once, as a Schur form otherwise.
//
// Invariant: the density at x is alpha exp(A x) exit, the probability of a longer time is
// alpha exp(A x) alive, A upper triangular.
type serviceWork struct {
	alpha []complex128
	decay []complex128 // the diagonal of A
	up    [][]entry    // what stands right of the diagonal, by row
	exit  []complex128
	alive []complex128
	slow  float64 // the smallest rate of decay: the transform exists right of -slow
	mean  float64
}

// cyclicPhasesMax bounds the services that need a Schur form, which has all entries.
const cyclicPhasesMax = 300

// entry is a number of a sparse row.
type entry struct {
	column int
	x      complex128
}

// newServiceWork prepares a distribution that is checked already.
func newServiceWork(p PH) (*serviceWork, error) {
	start, exit, a := complexes(p.Alpha), complexes(p.exit()), rowsOf(p.A)
	var w *serviceWork
	if visit, ok := visitOrder(a); ok {
		w = onceThrough(start, exit, a, visit)
	} else {
		if len(a) > cyclicPhasesMax {
			return nil, &NumericError{
				What: fmt.Sprintf("a service with %d cyclic phases is too large", len(a)),
				Hint: fmt.Sprintf("use at most %d cyclic phases (acyclic ones are not limited), or simulate", cyclicPhasesMax),
			}
		}
		d, err := realMatrix(a).triangular()
		if err != nil {
			return nil, err
		}
		w = &serviceWork{alpha: d.u.leftOf(start), exit: d.u.adjoint().applied(exit)}
		w.alive = d.u.adjoint().applied(ones(len(a)))
		w.take(d.t)
	}
	return w, w.check()
}

// visitOrder sorts the states such that every move leads to a later one, if it can be done.
func visitOrder(a [][]float64) ([]int, bool) {
	into := make([]int, len(a))
	for i, row := range a {
		for j, x := range row {
			if i != j && x != 0 {
				into[j]++
			}
		}
	}
	var visit []int
	for j, n := range into {
		if n == 0 {
			visit = append(visit, j)
		}
	}
	for at := 0; at < len(visit); at++ {
		for j, x := range a[visit[at]] {
			if j == visit[at] || x == 0 {
				continue
			}
			if into[j]--; into[j] == 0 {
				visit = append(visit, j)
			}
		}
	}
	return visit, len(visit) == len(a)
}

// onceThrough puts the states in the order visit.
func onceThrough(alpha, exit []complex128, a [][]float64, visit []int) *serviceWork {
	w, sorted := &serviceWork{}, newMatrix(len(visit))
	for i, from := range visit {
		w.alpha, w.exit = append(w.alpha, alpha[from]), append(w.exit, exit[from])
		for j, to := range visit {
			sorted.row(i)[j] = complex(a[from][to], 0)
		}
	}
	w.alive = ones(len(visit))
	w.take(sorted)
	return w
}

// take reads the upper triangle of a.
func (w *serviceWork) take(a *matrix) {
	w.slow = math.Inf(1)
	for i := range a.order {
		w.decay = append(w.decay, a.at(i, i))
		w.slow = math.Min(w.slow, -real(a.at(i, i)))
		var row []entry
		for j := i + 1; j < a.order; j++ {
			if x := a.at(i, j); x != 0 {
				row = append(row, entry{j, x})
			}
		}
		w.up = append(w.up, row)
	}
}

// check refuses a service whose triangular form lost its digits: the transform at 0 is 1.
func (w *serviceWork) check() error {
	if !(w.slow > 0) {
		return tooStiff(fmt.Sprintf("a service is too stiff: its slowest rate is computed as %g", w.slow))
	}
	if off := math.Abs(real(w.transform(0)) - 1); !(off < 1e-10) {
		return tooStiff(fmt.Sprintf("a service is too stiff: its probabilities add up to 1 with an error of %g", off))
	}
	w.mean = real(inner(w.alpha, w.solve(w.alive, 0)))
	return nil
}

// solve returns -(A - s)^-1 y by back substitution.
func (w *serviceWork) solve(y []complex128, s complex128) []complex128 {
	x := make([]complex128, len(y))
	for i := len(y) - 1; i >= 0; i-- {
		sum := y[i]
		for _, e := range w.up[i] {
			sum += e.x * x[e.column]
		}
		x[i] = sum / (s - w.decay[i])
	}
	return x
}

// transform returns E[exp(-s X)].
func (w *serviceWork) transform(s complex128) complex128 {
	return inner(w.alpha, w.solve(w.exit, s))
}

// transformAt returns the matrix E[exp(q X)].
func (w *serviceWork) transformAt(q *matrix) (*matrix, error) { return w.blocks(q, w.exit) }

// restAt returns the matrix mean of exp(q x) over all x up to X: the integral of exp(q x) times
// the probability of a longer time, so that the transform is I + q times it, without a
// difference of near numbers where q is nearly singular.
func (w *serviceWork) restAt(q *matrix) (*matrix, error) { return w.blocks(q, w.alive) }

// blocks returns (alpha x I) (-(A + q))^-1 (ends x I), A + q the Kronecker sum, solved from its
// last block row to its first. All blocks are functions of q, so the side of a product does
// not matter.
func (w *serviceWork) blocks(q *matrix, ends []complex128) (*matrix, error) {
	result, right := newMatrix(q.order), newMatrix(q.order)
	inverse, from := newMatrix(q.order), make([]int, q.order)
	blocks := make([]matrix, len(w.decay))
	numbers := make([]complex128, len(blocks)*len(q.of))
	for i := len(blocks) - 1; i >= 0; i-- {
		if i == len(blocks)-1 || w.decay[i] != w.decay[i+1] {
			copy(inverse.of, q.of)
			inverse.shift(w.decay[i])
			if err := inverse.invert(from); err != nil {
				return nil, err
			}
		}
		clear(right.of)
		right.shift(-ends[i])
		for _, e := range w.up[i] {
			right.add(-e.x, &blocks[e.column])
		}
		blocks[i] = matrix{q.order, numbers[i*len(q.of) : (i+1)*len(q.of)]}
		blocks[i].addProduct(right, inverse)
		if w.alpha[i] != 0 {
			result.add(w.alpha[i], &blocks[i])
		}
	}
	return result, nil
}

// leftOf returns the row vector x m.
func (m *matrix) leftOf(x []complex128) []complex128 {
	y := make([]complex128, m.order)
	for i, xi := range x {
		addTimes(y, xi, m.row(i))
	}
	return y
}

func complexes(x []float64) []complex128 {
	c := make([]complex128, len(x))
	for i, y := range x {
		c[i] = complex(y, 0)
	}
	return c
}

// tooStiff is the error of numbers that a float64 does not hold together.
func tooStiff(what string) error {
	return &NumericError{What: what, Hint: "use rates that differ less, lower the load, or simulate"}
}
