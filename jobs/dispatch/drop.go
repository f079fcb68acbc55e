package dispatch

import (
	"cmp"
	"slices"
)

// DropOrder returns the order in which the map tasks of a job are dropped. It follows
// from the draws alone, which follow from the job's seed: a rerun, another machine and
// a higher drop ratio later give up the same tasks first.
func DropOrder(n int, draw func() uint64) []int {
	draws, order := make([]uint64, n), make([]int, n)
	for i := range n {
		draws[i], order[i] = draw(), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(draws[a], draws[b]), cmp.Compare(a, b)) })
	return order
}
