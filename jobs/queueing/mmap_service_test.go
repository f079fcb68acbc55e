// Claims: the transform of a service taken at a matrix is what the whole Kronecker system
// gives, whether its phases are met once or come back.
package queueing

import (
	"math/rand/v2"
	"testing"

	"headroom/internal/testkit"
)

// kroneckerTransform is (alpha x I) (-(A + q))^-1 (ends x I), from one large system.
func kroneckerTransform(t *testing.T, p PH, q *matrix, ends []float64) *matrix {
	t.Helper()
	n, m := p.Phases(), q.order
	whole := newMatrix(n * m)
	for i := range n * m {
		for j := range n * m {
			if i%m == j%m {
				whole.row(i)[j] -= complex(p.A.At(i/m, j/m), 0)
			}
			if i/m == j/m {
				whole.row(i)[j] -= q.at(i%m, j%m)
			}
		}
	}
	f := testkit.Need(whole.factor())(t)
	result := newMatrix(m)
	for r := range m {
		left := make([]complex128, n*m)
		for i, a := range p.Alpha {
			left[i*m+r] = complex(a, 0)
		}
		for i, x := range f.solveRight(left) {
			result.row(r)[i%m] += x * complex(ends[i/m], 0)
		}
	}
	return result
}

// Both integrals agree with the large system to 1e-12, at matrices of the left half-plane.
func TestServiceTransforms(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 9))
	backwards := testkit.Need(NewPH([]float64{0, 0.3, 0.7}, [][]float64{{-1, 0, 0}, {2, -3, 0}, {0.5, 1, -4}}))(t)
	for i, p := range append(threeServices(t), backwards, diasJob(t, 0.4, 0.2)) {
		w := testkit.Need(newServiceWork(p))(t)
		agrees(t, "the mean", w.mean, p.Mean(), 1e-13)
		q := randomMatrix(r, 3)
		q.shift(-6)
		alive := make([]float64, p.Phases())
		for i := range alive {
			alive[i] = 1
		}
		for name, off := range map[string]float64{
			"transform": distance(testkit.Need(w.transformAt(q))(t), kroneckerTransform(t, p, q, p.exit())),
			"rest":      distance(testkit.Need(w.restAt(q))(t), kroneckerTransform(t, p, q, alive)),
		} {
			if off > 1e-12 {
				t.Errorf("service %d: the %s is off by %g", i, name, off)
			}
		}
	}
}

// A service whose phases are met once stays as it is: no rounding enters it.
func TestServiceOrder(t *testing.T) {
	t.Parallel()
	if _, ok := visitOrder([][]float64{{-1, 0, 0}, {2, -3, 0}, {0.5, 1, -4}}); !ok {
		t.Error("phases that only lead backwards were taken for a cycle")
	}
	if _, ok := visitOrder([][]float64{{-1, 0.5}, {0.5, -1}}); ok {
		t.Error("a cycle was put in an order")
	}
	w := testkit.Need(newServiceWork(testkit.Need(Erlang(62, 7))(t)))(t)
	if len(w.up[61]) != 0 || w.up[0][0] != (entry{1, 7}) || w.decay[5] != -7 {
		t.Errorf("an Erlang distribution became %v, %v", w.decay, w.up)
	}
}
