package queueing

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// MMAP is a marked Markovian arrival process, MMAP[K]: a Markov chain of phases whose
// moves may bring a job. Hidden has the rates of moves without a job and, negative on its
// diagonal, the rate at which each phase is left; Marked[k] has the rates of moves that
// bring a job of class k (also from a phase to itself). Rates are per unit of time, any
// unit as long as the services use the same. He 1996, "Queues with marked customers".
//
// Invariant: the matrices are square, of one order, non-negative but for the diagonal of
// Hidden; the rows of their sum add up to 0; from every phase every other can be reached;
// every class has arrivals.
type MMAP struct {
	hidden  [][]float64
	marked  [][][]float64
	phases  []float64 // the stationary distribution of the phases
	classes []float64 // mean arrivals per unit of time, by class
}

// maxArrivalPhases bounds the order of an MMAP: the work of a solution grows with its
// fourth power.
const maxArrivalPhases = 64

// rateMax keeps products of rates from overflowing.
const rateMax = 1e100

// rowSumTolerance is how far the rows of a generator may miss 0, relative to their
// diagonal: what is left of numbers written with seven digits.
const rowSumTolerance = 1e-6

// newMMAP checks the matrices D0, D1 .. DK and copies them. D0 is hidden, Dk brings jobs
// of class k-1. A row that misses 0 by a rounding is mended on its diagonal. The error
// names the matrix, the row and the column, all counted from 0.
func newMMAP(d []*mat.Dense) (*MMAP, error) {
	if err := checkShapes(d); err != nil {
		return nil, err
	}
	m := &MMAP{hidden: rowsOf(d[0])}
	for _, dk := range d[1:] {
		m.marked = append(m.marked, rowsOf(dk))
	}
	if err := m.mend(); err != nil {
		return nil, err
	}
	total := m.generator()
	if from, to, cut := unreachable(total); cut {
		return nil, bad("D", "is reducible: phase %d never leads to phase %d; omit transient phases", from, to)
	}
	m.phases = stationary(total)
	for k, rows := range m.marked {
		rate := rateIn(m.phases, rows)
		if !(rate > 0) {
			return nil, bad(fmt.Sprintf("D[%d]", k+1), "brings no jobs of class %d: omit the class", k)
		}
		m.classes = append(m.classes, rate)
	}
	return m, nil
}

// checkShapes refuses matrices that are not square, of one order, finite and of the right
// signs.
func checkShapes(d []*mat.Dense) error {
	if len(d) < 2 {
		return bad("D", "has %d matrices; give D0 and one for every class", len(d))
	}
	for k, dk := range d {
		if dk == nil || dk.IsEmpty() {
			return bad(fmt.Sprintf("D[%d]", k), "is empty; it must have a row and a column per phase")
		}
	}
	order, _ := d[0].Dims()
	if order > maxArrivalPhases {
		return bad("D[0]", "has %d phases; the maximum is %d: fit fewer phases, or simulate", order, maxArrivalPhases)
	}
	for k, dk := range d {
		if rows, columns := dk.Dims(); rows != order || columns != order {
			return bad(fmt.Sprintf("D[%d]", k), "is %d by %d; it must be %d by %d, as D[0] has %d rows", rows, columns, order, order, order)
		}
		if err := checkRates(k, dk); err != nil {
			return err
		}
	}
	return nil
}

func checkRates(k int, dk *mat.Dense) error {
	order, _ := dk.Dims()
	for i := range order {
		for j, x := range dk.RawRowView(i) {
			place, leaving := fmt.Sprintf("D[%d][%d][%d]", k, i, j), k == 0 && i == j
			switch {
			case math.IsNaN(x) || math.Abs(x) > rateMax:
				return bad(place, "is %v; it must be a rate of at most %g", x, rateMax)
			case leaving && x >= 0:
				return bad(place, "is %v; the diagonal of D0 must be negative: minus the rate of leaving the phase", x)
			case !leaving && x < 0:
				return bad(place, "is %v; only the diagonal of D0 may be negative", x)
			}
		}
	}
	return nil
}

// mend sets the diagonal so that every row of the generator adds up to 0 to the last
// digit, and refuses rows that miss 0 by more than a rounding.
func (m *MMAP) mend() error {
	for i, row := range m.hidden {
		out := 0.0
		for j, x := range row {
			if j != i {
				out += x
			}
			for _, rows := range m.marked {
				out += rows[i][j]
			}
		}
		if miss := out + row[i]; math.Abs(miss) > rowSumTolerance*-row[i] {
			return bad(fmt.Sprintf("D[0][%d][%d]", i, i), "is %v, but the other rates of row %d, of all matrices, add up to %v; "+
				"a row of a generator sums to 0, not to %g: use %v", row[i], i, out, miss, -out)
		}
		row[i] = -out
	}
	return nil
}

// generator returns D0 + D1 + .. + DK.
func (m *MMAP) generator() [][]float64 {
	total := copyRows(m.hidden)
	for _, rows := range m.marked {
		addRows(total, rows)
	}
	return total
}

// unreachable finds two phases of which the first never leads to the second.
func unreachable(rates [][]float64) (from, to int, cut bool) {
	turned := make([][]float64, len(rates))
	for i := range rates {
		for j := range rates {
			turned[i] = append(turned[i], rates[j][i])
		}
	}
	if to := missed(rates); to >= 0 {
		return 0, to, true
	}
	if from := missed(turned); from >= 0 {
		return from, 0, true
	}
	return 0, 0, false
}

// missed returns a phase that phase 0 never leads to, or -1.
func missed(rates [][]float64) int {
	seen, todo := make([]bool, len(rates)), []int{0}
	seen[0] = true
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for j, rate := range rates[i] {
			if rate > 0 && !seen[j] {
				seen[j] = true
				todo = append(todo, j)
			}
		}
	}
	for j, ok := range seen {
		if !ok {
			return j
		}
	}
	return -1
}

// stationary returns the distribution p with p g = 0 of an irreducible generator g, without a
// subtraction and so exact to the last digits whatever the rates (Grassmann, Taksar and
// Heyman 1985).
func stationary(g [][]float64) []float64 {
	a, order := copyRows(g), len(g)
	for n := order - 1; n > 0; n-- {
		out := 0.0
		for _, rate := range a[n][:n] {
			out += rate
		}
		for i := range n {
			a[i][n] /= out
			for j := range n {
				if j != i {
					a[i][j] += a[i][n] * a[n][j]
				}
			}
		}
	}
	p, total := make([]float64, order), 1.0
	p[0] = 1
	for n := 1; n < order; n++ {
		for i := range n {
			p[n] += p[i] * a[i][n]
		}
		total += p[n]
	}
	for i := range p {
		p[i] /= total
	}
	return p
}

// rateIn returns the mean number of moves per unit of time, p rows 1.
func rateIn(p []float64, rows [][]float64) float64 {
	rate := 0.0
	for i, row := range rows {
		for _, x := range row {
			rate += p[i] * x
		}
	}
	return rate
}

func rowsOf(m *mat.Dense) [][]float64 {
	n, _ := m.Dims()
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = append([]float64(nil), m.RawRowView(i)...)
	}
	return rows
}

func copyRows(rows [][]float64) [][]float64 {
	c := make([][]float64, len(rows))
	for i, row := range rows {
		c[i] = append([]float64(nil), row...)
	}
	return c
}

// addRows adds b to a.
func addRows(a, b [][]float64) {
	for i, row := range b {
		for j, x := range row {
			a[i][j] += x
		}
	}
}

func sum(x []complex128) complex128 {
	var s complex128
	for _, y := range x {
		s += y
	}
	return s
}
