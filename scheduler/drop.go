package scheduler

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
)

// Kept is how many of n map tasks run under a drop ratio: ceil(n (1 - theta)), and
// at least 1. The small slack keeps 50 tasks less 10 % at 45, although 50*(1-0.1)
// may be a little above it in floating point.
func Kept(n int, theta float64) int {
	return max(1, min(n, int(math.Ceil(float64(n)-float64(n)*theta-1e-9))))
}

// dropOrder is the order in which the map tasks of a job are given up. It follows
// from the seed alone: a rerun, another machine and a higher drop ratio later give
// up the same tasks first.
func dropOrder(n int, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 0))
	draws, order := make([]uint64, n), make([]int, n)
	for i := range n {
		draws[i], order[i] = random.Uint64(), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(draws[a], draws[b]), cmp.Compare(a, b)) })
	return order
}

// seedOf is the seed of a job, the same in each of its runs. It has 53 bits, so that
// it stays whole in JSON.
func seedOf(id string) uint64 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint64(sum[:8]) & (1<<53 - 1)
}
