// Claims: quantiles are within the stated error of the exact ones, for any values in any order; memory is
// bounded; what is no time panics.
package quantiles

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// exact is the quantile of sorted values, interpolated between ranks.
func exact(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func values() *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.OneOf(
		rapid.Just(0.), rapid.Float64Range(Least, 1), rapid.Float64Range(0.99, 1.01), rapid.Float64Range(1, 1e6), rapid.Just(float64(Most)),
		rapid.Map(rapid.Float64Range(math.Log(Least)+1e-9, math.Log(Most)-1e-9), math.Exp),
	), 1, 300)
}

func TestWithinTheStatedError(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := values().Draw(t, "values")
		var s Sketch
		for _, x := range all {
			s.Add(x)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1, rapid.Float64Range(0, 1).Draw(t, "q")} {
			got, ok := s.Quantile(q)
			if want := exact(all, q); !ok || math.Abs(got-want) > want*(Error+1e-9)+Least {
				t.Fatalf("quantile %v: %v, want %v", q, got, want)
			}
		}
		if s.Count() != uint64(len(all)) {
			t.Fatalf("%d values, want %d", s.Count(), len(all))
		}
	})
}

// A sketch of coarser buckets would fail: of a million values the error comes near the stated one, and not above.
func TestErrorIsNearTheStated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]float64, 200_000)
	var s Sketch
	for i := range all {
		all[i] = math.Exp(3 * r.NormFloat64())
		s.Add(all[i])
	}
	slices.Sort(all)
	worst := 0.0
	for q := 0.01; q < 1; q += 0.001 {
		got, _ := s.Quantile(q)
		worst = max(worst, math.Abs(got/exact(all, q)-1))
	}
	if worst > Error || worst < Error/2 {
		t.Errorf("largest error %v, stated %v", worst, Error)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var s Sketch
	s.Add(Least)
	s.Add(Most)
	if bytes := 8 * len(s.counts); bytes > 200_000 {
		t.Errorf("%d bytes", bytes)
	}
	if n := testing.AllocsPerRun(100, func() { s.Add(17) }); n != 0 {
		t.Errorf("%v allocations for a value", n)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	var s Sketch
	if _, ok := s.Quantile(0.5); ok {
		t.Error("an empty sketch has a median")
	}
}

func TestNoTimesPanic(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(s *Sketch){
		"negative": func(s *Sketch) { s.Add(-1) }, "NaN": func(s *Sketch) { s.Add(math.NaN()) }, "infinite": func(s *Sketch) { s.Add(math.Inf(1)) },
		"quantile": func(s *Sketch) { s.Quantile(1.1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call(&Sketch{})
		}()
	}
}
