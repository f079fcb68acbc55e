package testkit

import (
	"runtime/metrics"
	"testing"
	"time"
)

// Bounds of what one foreign input may cost its parser.
const (
	// cheapInput is the longest input, in bytes, that the bounds are for.
	cheapInput = 64 << 10
	// cheapTime is far above what any parser takes, and far below what hurts.
	cheapTime = time.Second
	// cheapHeap bounds what is in use at once, bytes.
	cheapHeap = 300 << 20
)

// Cheap runs parse and fails when an input of at most CheapInput bytes takes more than a
// second or 300 MB. Longer inputs are skipped. Time is looked at again when it was too
// long: the machine may have been busy.
func Cheap(tb testing.TB, size int, parse func()) {
	tb.Helper()
	if size > cheapInput {
		tb.Skip("longer than the bounds are for")
	}
	took, heap := measured(parse)
	if took > cheapTime {
		took, heap = measured(parse)
	}
	if took > cheapTime || heap > cheapHeap {
		tb.Fatalf("an input of %d bytes takes %v and %d MB", size, took, heap>>20)
	}
}

// measured runs parse and samples the heap meanwhile.
func measured(parse func()) (took time.Duration, heap uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	most := func() {
		metrics.Read(sample)
		heap = max(heap, sample[0].Value.Uint64())
	}
	most()
	before := heap
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		parse()
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			most()
		case <-done:
			most()
			return time.Since(began), heap - before
		}
	}
}
