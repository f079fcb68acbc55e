package testkit

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// Cheap runs parse and fails when an input of at most 64 KiB takes more than a second of a
// processor's time or 300 MB. Longer inputs are skipped. Other load on the machine does not count.
func Cheap(tb testing.TB, size int, parse func()) {
	tb.Helper()
	if size > cheapInput {
		tb.Skip("longer than the bounds are for")
	}
	if took, heap := measured(parse); took > cheapTime || heap > cheapHeap {
		tb.Fatalf("an input of %d bytes takes %v and %d MB", size, took, heap>>20)
	}
}

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var use unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &use) // it fails on bad arguments only
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// measured runs parse on a thread of its own and samples the heap meanwhile; took is the thread's
// processor time.
func measured(parse func()) (took time.Duration, heap uint64) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	most := func() {
		metrics.Read(sample)
		heap = max(heap, sample[0].Value.Uint64())
	}
	most()
	before := heap
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // it ends with the goroutine
		began := threadTime()
		parse()
		took = threadTime() - began
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			most()
		case <-done:
			most()
			return took, heap - before
		}
	}
}
