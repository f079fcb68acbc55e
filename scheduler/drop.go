package scheduler

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"headroom/units"
)

// Kept is how many of n map tasks run under a drop ratio: ceil(n (1 - theta)), and
// at least 1.
func Kept(n int, theta float64) int { return max(1, units.Ratio(1-theta).Kept(n)) }

// DropOrder is the order in which the map tasks of a job are given up. It follows
// from the seed alone: a rerun, another machine and a higher drop ratio later give
// up the same tasks first.
func DropOrder(n int, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 0))
	draws, order := make([]uint64, n), make([]int, n)
	for i := range n {
		draws[i], order[i] = random.Uint64(), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(draws[a], draws[b]), cmp.Compare(a, b)) })
	return order
}
