package bench

import (
	"math/rand/v2"
	"testing"

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
		budget.Divide(tree, nodes)
	}
}
