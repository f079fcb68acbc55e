package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"headroom/budget"
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

// BenchmarkTick is a whole tick of 10,000 nodes, as tick_10000_s measures it, for profiles.
func BenchmarkTick(b *testing.B) {
	tree, homes, err := forest(10_000)
	if err != nil {
		b.Fatal(err)
	}
	nodes := crowd(homes, rand.New(rand.NewPCG(1, 11)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := carryOut(b.Context(), tree, nodes, 6, time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}
