package simulation

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// random is one stream of random numbers. A schedule has many: one for each process, each
// fault and each order. So a schedule that is run again without one of its faults
// keeps the random numbers of all the others, which makes it possible to reduce
// a schedule that failed.
type random struct{ *rand.Rand }

// newRandom returns stream number i of the given name.
func newRandom(seed uint64, name string, i int) random {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return random{rand.New(rand.NewPCG(seed^h.Sum64(), 0x9e3779b97f4a7c15*uint64(i+1)))}
}

// upTo returns a uniformly distributed duration from 0 to d.
func (r random) upTo(d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(max(0, d)) + 1))
}

// between returns a uniformly distributed duration from lo to hi.
func (r random) between(lo, hi time.Duration) time.Duration { return lo + r.upTo(hi-lo) }

// about returns an exponentially distributed duration with the given mean.
func (r random) about(mean time.Duration) time.Duration {
	return time.Duration(r.ExpFloat64() * float64(mean))
}

// chance returns true with probability p. It draws exactly once, whatever p is.
func (r random) chance(p float64) bool { return r.Float64() < p }
