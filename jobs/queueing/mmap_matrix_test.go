// Claims: the Schur form gives the matrix back and is triangular, also for matrices that
// have no basis of eigenvectors; a solution solves its system; a singular one is refused.
package queueing

import (
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"headroom/internal/testkit"
)

func randomMatrix(r *rand.Rand, order int) *matrix {
	m := newMatrix(order)
	for i := range m.of {
		m.of[i] = complex(r.NormFloat64(), r.NormFloat64())
	}
	return m
}

func product(a, b *matrix) *matrix {
	m := newMatrix(a.order)
	m.addProduct(a, b)
	return m
}

func distance(a, b *matrix) float64 {
	d := a.clone()
	d.add(-1, b)
	return d.largest()
}

// u t u* is the matrix again, u is unitary, t has nothing below its diagonal.
func TestSchur(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	cases := map[string]*matrix{
		"one":      randomMatrix(r, 1),
		"two":      randomMatrix(r, 2),
		"thirty":   randomMatrix(r, 30),
		"zero":     newMatrix(4),
		"jordan":   realMatrix([][]float64{{-1, 0, 0}, {1, -1, 0}, {0, 1, -1}}),
		"circle":   realMatrix([][]float64{{0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}),
		"apart":    realMatrix([][]float64{{1, 1e9, 0}, {1e-9, 2, 1e9}, {0, 1e-9, 3}}),
		"diagonal": realMatrix([][]float64{{3, 0}, {0, 1}}),
	}
	for name, m := range cases {
		d, err := m.triangular()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back := product(product(d.u, d.t), d.u.adjoint())
		if off := distance(back, m); off > 1e-13*(1+m.largest()) {
			t.Errorf("%s: u t u* is off by %g", name, off)
		}
		if off := distance(product(d.u, d.u.adjoint()), identity(m.order)); off > 1e-13 {
			t.Errorf("%s: u is off unitary by %g", name, off)
		}
		for i := range m.order {
			for j := range i {
				if d.t.at(i, j) != 0 {
					t.Errorf("%s: t has %v below its diagonal", name, d.t.at(i, j))
				}
			}
		}
	}
}

// x m is y again; a matrix without an inverse is refused.
func TestSolveRight(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for order := 1; order < 9; order++ {
		m, y := randomMatrix(r, order), randomMatrix(r, order).row(0)
		f := testkit.Need(m.factor())(t)
		x := f.solveRight(y)
		for j := range order {
			var sum complex128
			for i := range order {
				sum += x[i] * m.at(i, j)
			}
			if cmplx.Abs(sum-y[j]) > 1e-11 {
				t.Errorf("order %d: x m has %v in column %d, want %v", order, sum, j, y[j])
			}
		}
	}
	if _, err := realMatrix([][]float64{{1, 0}, {0, 0}}).factor(); err == nil {
		t.Error("a singular matrix was factored")
	}
}
