package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"headroom/units"
)

// soak is a long run of Headroom's law in virtual time.
type soak struct {
	Hours float64 `json:"hours"`
	// Steps of the cap meanwhile.
	Steps int `json:"steps"`
	// HeapStartB and HeapEndB are the bytes in use after a collection, after the
	// first twentieth of the run and at its end.
	HeapStartB uint64 `json:"heap_start_bytes"`
	HeapEndB   uint64 `json:"heap_end_bytes"`
	// OverRatio is the share of whole minutes whose mean was above the cap by 1 % or more.
	OverRatio float64 `json:"over_ratio"`
	// MeanError is the mean of wall power against the cap, or the free draw where that is less.
	MeanError float64 `json:"mean_error"`
	// Flat is true if the memory in use did not grow by more than 256 KiB.
	Flat bool `json:"flat"`
}

// String is the soak in one line.
func (s *soak) String() string {
	return fmt.Sprintf("%.1f h, %d steps of the cap: heap %d KiB, then %d KiB; mean %+.2f %% of the cap, over it in %.2f %% of the minutes",
		s.Hours, s.Steps, s.HeapStartB/1024, s.HeapEndB/1024, 100*s.MeanError, 100*s.OverRatio)
}

const (
	// soakFlat is what a heap may differ by from one collection to another.
	soakFlat = 256 << 10
	// soakEvery is between two steps of the cap.
	soakEvery = time.Minute
)

// runSoak lets the law run for d of virtual time, a new cap and load each minute.
func runSoak(ctx context.Context, seed uint64, d time.Duration) (*soak, error) {
	s := &soak{Hours: d.Hours()}
	rng := rand.New(rand.NewPCG(seed, 23))
	b, err := newBed(scene{sockets: 1, seed: seed, start: 150 * units.Watt})
	if err != nil {
		return nil, err
	}
	law := newTwoSpeed(b)
	over, sum, count := 0, 0.0, 0
	for b.now < d {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b.cap = units.FromWatts(85 + 125*rng.Float64())
		b.begin(workload(rng.IntN(int(loads))))
		s.Steps++
		changed, mean, target := true, 0.0, 0.0
		n := int(soakEvery / judged)
		for range n {
			wall, free := b.step(func() { law.turn(b, changed); changed = false })
			mean, target = mean+wall/float64(n), target+min(free, b.cap.Watts())/float64(n)
		}
		if mean > 1.01*b.cap.Watts() {
			over++
		}
		sum, count = sum+(mean-target)/b.cap.Watts(), count+1
		if s.HeapStartB == 0 && b.now >= d/20 {
			s.HeapStartB = heapInUse()
		}
	}
	s.HeapEndB = heapInUse()
	runtime.KeepAlive(law)
	s.OverRatio, s.MeanError = float64(over)/float64(count), sum/float64(count)
	s.Flat = s.HeapEndB <= s.HeapStartB+soakFlat
	return s, nil
}

// heapInUse is what the heap holds after a collection.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
