package testkit

import (
	"testing"
	"time"
)

// lookEvery is how long tests of real processes wait between two looks.
const lookEvery = 20 * time.Millisecond

// Within looks until done, and reports whether that came within the time.
func Within(most time.Duration, done func() bool) bool {
	late, tick := time.After(most), time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-late:
			return done()
		case <-tick.C:
		}
	}
}

// Eventually looks until done, and ends the test where that does not come within the time.
func Eventually(tb testing.TB, most time.Duration, what string, done func() bool) {
	tb.Helper()
	if !Within(most, done) {
		tb.Fatalf("not within %v: %s", most, what)
	}
}
