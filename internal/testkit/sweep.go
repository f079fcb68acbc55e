package testkit

import "testing"

// sweepRaced is the part of a sweep's seeds that run with the race detector, which makes them five to
// ten times slower and finds in the tenth seed what it finds in the first.
const sweepRaced = 6

// Sweep is the number of seeds of a sweep that has n: all of them, or a sixth with the race detector.
func Sweep(n int) int {
	if raced {
		return max(1, n/sweepRaced)
	}
	return n
}

// Unraced leaves a long test, whose goroutines other tests show too, to the run without the race detector.
func Unraced(tb testing.TB) {
	tb.Helper()
	if raced {
		tb.Skip("left to the run without the race detector")
	}
}

// Slow leaves a test to `make test`: `make check` runs with -short.
func Slow(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left to make test: takes longer than the checks before a commit may")
	}
}
