// Package quantiles estimates quantiles of streams that are too long to keep.
//
// The one idea: values are counted in buckets whose bounds grow by a constant factor, as in
// DDSketch (Masson, Rim, Lee, VLDB 2019), so every value is known within the same relative error,
// at any quantile and in any order of arrival.
//
// Guarantees: a quantile is within [Error] of the exact one, interpolated between ranks; the
// smallest and the largest value are exact. Memory is bounded (200 KB), and adding does not
// allocate once the smallest and the largest value have been seen. The package does no I/O, reads
// no clock and draws no random numbers. It exists because these few lines need none of the
// mappings, stores and encodings of sketch libraries.
package quantiles

import (
	"fmt"
	"math"
)

// Error bounds the relative error of a quantile of values from [Least] to [Most].
const Error = 0.001

// Values from Least to Most are kept to within [Error]: a nanosecond to 30,000 years, in seconds. What is below Least counts as 0.
const (
	Least = 1e-9
	Most  = 1e12
)

// growth is the factor between the bounds of a bucket.
const growth = (1 + Error) / (1 - Error)

// perFold turns a logarithm into a number of buckets.
var perFold = 1 / math.Log(growth)

// Sketch holds the distribution of the values added to it. The zero value is empty and ready for use.
type Sketch struct {
	// counts are those of consecutive buckets; the first is bucket number first.
	counts    []uint64
	first     int
	zeros     uint64
	total     uint64
	low, high float64
}

// bucket returns the number of the bucket that holds x, at least Least.
func bucket(x float64) int { return int(math.Ceil(math.Log(x) * perFold)) }

// value returns the value that stands for a bucket: within Error of all that it holds.
func value(bucket int) float64 {
	return 2 * math.Exp(float64(bucket)/perFold) / (1 + growth)
}

// Add counts a value. A value that is negative, above Most or not a number is a mistake of the caller and panics.
func (s *Sketch) Add(x float64) {
	if !(x >= 0 && x <= Most) {
		panic(fmt.Sprintf("quantiles: value is %v: must be from 0 to %g", x, float64(Most)))
	}
	if s.total == 0 {
		s.low, s.high = x, x
	}
	s.low, s.high = min(s.low, x), max(s.high, x)
	s.total++
	if x < Least {
		s.zeros++
		return
	}
	b := bucket(x)
	s.cover(b)
	s.counts[b-s.first]++
}

// step is by how many buckets the sketch grows at a time.
const step = 256

// cover makes room for a bucket.
func (s *Sketch) cover(bucket int) {
	low, high := bucket, bucket
	if len(s.counts) > 0 {
		if low >= s.first && high < s.first+len(s.counts) {
			return
		}
		low, high = min(low, s.first), max(high, s.first+len(s.counts)-1)
	}
	low, high = low&^(step-1), high|(step-1)
	counts := make([]uint64, high-low+1)
	if len(s.counts) > 0 {
		copy(counts[s.first-low:], s.counts)
	}
	s.first, s.counts = low, counts
}

// Count returns how many values were added.
func (s *Sketch) Count() uint64 { return s.total }

// Quantile returns the value below which the part q of the values lies, from 0 to 1. It interpolates linearly between the two
// neighbouring ranks, as R (type 7) and numpy do. ok is false without values; q outside 0 to 1 panics.
func (s *Sketch) Quantile(q float64) (x float64, ok bool) {
	if !(q >= 0 && q <= 1) {
		panic(fmt.Sprintf("quantiles: quantile is %v: must be from 0 to 1", q))
	}
	if s.total == 0 {
		return 0, false
	}
	at := q * float64(s.total-1)
	rank, part := uint64(at), at-math.Floor(at)
	low := s.ranked(rank)
	if part == 0 {
		return low, true
	}
	return low + part*(s.ranked(rank+1)-low), true
}

// ranked returns the value of a rank, from 0 to the number of values less 1.
func (s *Sketch) ranked(rank uint64) float64 {
	switch {
	case rank == 0:
		return s.low
	case rank >= s.total-1:
		return s.high
	case rank < s.zeros:
		return 0
	}
	seen := s.zeros
	for i, n := range s.counts {
		if seen += n; seen > rank {
			return min(max(value(s.first+i), s.low), s.high)
		}
	}
	return s.high
}
