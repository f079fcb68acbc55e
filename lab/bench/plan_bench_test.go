package bench

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"headroom/budget"
	"headroom/jobs/arbiter"
)

// BenchmarkDivide is the plan of 10,000 nodes, for profiles.
func BenchmarkDivide(b *testing.B) {
	tree, homes, err := forest(10_000)
	if err != nil {
		b.Fatal(err)
	}
	nodes := crowd(homes, rand.New(rand.NewPCG(1, 11)))
	b.ReportAllocs()
	for b.Loop() {
		budget.Divide(tree, nodes, budget.Weighted)
	}
}

// BenchmarkDecide is a tick of 10,000 nodes whose demands all changed, for profiles.
func BenchmarkDecide(b *testing.B) {
	tree, homes, err := forest(10_000)
	if err != nil {
		b.Fatal(err)
	}
	nodes := crowd(homes, rand.New(rand.NewPCG(1, 11)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decide(b.Context(), tree, nodes, 6, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTick is whole ticks of 10,000 nodes, as tick_10000_s measures them. An
// operation is six ticks with the state and the reports that they begin with, for profiles;
// the figures beside it are of single ticks.
func BenchmarkTick(b *testing.B) {
	tree, homes, err := forest(10_000)
	if err != nil {
		b.Fatal(err)
	}
	nodes := crowd(homes, rand.New(rand.NewPCG(1, 11)))
	var took []float64
	b.ReportAllocs()
	for b.Loop() {
		six, err := carryOut(b.Context(), tree, nodes, 6, time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, six...)
	}
	b.ReportMetric(1000*slices.Min(took), "ms/tick-min")
	b.ReportMetric(1000*quantile(took, 0.5), "ms/tick-p50")
}

// BenchmarkArbiter is a decision about 1,000 jobs on 10,000 containers, for profiles.
func BenchmarkArbiter(b *testing.B) {
	look := contenders(rand.New(rand.NewPCG(1, 17)))
	var m arbiter.Movers
	b.ReportAllocs()
	now := time.Duration(0)
	for b.Loop() {
		m.Step(now, look)
		now += 5 * time.Second
	}
}
