package simulation

import (
	"context"
	"io"
	"runtime"
	"sync"
	"time"
)

// Options configure a run.
type Options struct {
	// Schedules is the number of schedules to run.
	Schedules int
	// Seed of the first; the others' are derived from it.
	Seed uint64
	// Span is the virtual time of each schedule.
	Span time.Duration
	// Only, when not nil, names the classes of faults that every schedule has;
	// otherwise each draws its own.
	Only []string
	// Keep, when not nil, names the occurrences that happen; otherwise all do.
	Keep []string
	// Sabotage by name: the run ends with the first schedule that finds it.
	Sabotage string
	// Trace, when set, gets a line for each thing that happens. Schedules then run
	// one after another.
	Trace io.Writer
	// Progress, when set, is called after each schedule with what was found so far.
	Progress func(done int, r *Report)
}

// Violation is one broken promise.
type Violation struct {
	// Promise is P1 to P5, P8, "brake", or "ledger", "consensus", "recovery" for
	// what the promises rest on.
	Promise string `json:"promise"`
	// Seed replays the schedule alone.
	Seed uint64 `json:"seed"`
	// At is the virtual time, seconds.
	At float64 `json:"at_s"`
	// What happened, in words with the numbers.
	What string `json:"what"`
}

// Report is the result of a run.
type Report struct {
	// Seed of the first schedule.
	Seed uint64 `json:"seed"`
	// Sabotage is empty unless one was requested.
	Sabotage string `json:"sabotage,omitempty"`
	// Schedules and Events that were run.
	Schedules int    `json:"schedules"`
	Events    uint64 `json:"events"`
	// Violations, in the order they were found: of each schedule the first of each promise.
	Violations []Violation `json:"violations"`
	// Shrunk is the least schedule that still shows the first violation; nil without one.
	Shrunk *Schedule `json:"shrunk,omitempty"`
	// FaultsHit counts how often each fault, and each rare path, was taken.
	FaultsHit map[string]int `json:"faults_hit"`
}

// seedBits keeps seeds exact in JSON readers that have only doubles.
const seedBits = 53

// seedOf is the seed of schedule i of a run with the given seed; that of
// schedule 0 is the run's own, so that each schedule can be run alone.
func seedOf(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
	z := seed + uint64(i)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> (64 - seedBits)
}

// run runs the schedules until all are done, a sabotage is found or ctx ends; the
// error is that of ctx, or names an unknown sabotage. The report is the same on
// however many CPUs they run.
func run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Seed: o.Seed, Sabotage: o.Sabotage, Violations: []Violation{}, FaultsHit: map[string]int{}}
	for _, name := range marks() {
		r.FaultsHit[name] = 0
	}
	sabotage, err := findSabotage(o.Sabotage)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for w := range o.inOrder(ctx) {
		if ctx.Err() != nil {
			continue // the workers are ending
		}
		r.add(w)
		if o.Progress != nil {
			o.Progress(r.Schedules, r)
		}
		if o.Sabotage != "" && w.judge.once[sabotage.Breaks] {
			return r, nil
		}
	}
	return r, ctx.Err()
}

func (r *Report) add(w *world) {
	r.Schedules++
	r.Events += w.ran
	r.Violations = append(r.Violations, w.judge.found...)
	for name, n := range w.hits {
		r.FaultsHit[name] += n
	}
}

// schedule number i of the run.
func (o Options) schedule(i int) Schedule {
	return Schedule{Seed: seedOf(o.Seed, i), SpanMS: o.Span.Milliseconds(), Only: o.Only, Keep: o.Keep, Sabotage: o.Sabotage}
}

// inOrder runs the schedules on all CPUs and yields them in their order. It
// has ended all its goroutines when the loop over it ends.
func (o Options) inOrder(ctx context.Context) func(yield func(*world) bool) {
	return func(yield func(*world) bool) {
		ctx, cancel := context.WithCancel(ctx)
		workers := runtime.GOMAXPROCS(0)
		if o.Trace != nil {
			workers = 1
		}
		done := make(chan chan *world, workers)
		var group sync.WaitGroup
		defer group.Wait()
		defer cancel()
		todo := make(chan func())
		for range workers {
			group.Go(func() {
				for job := range todo {
					job()
				}
			})
		}
		group.Go(func() {
			defer close(done)
			defer close(todo)
			for i := range o.Schedules {
				ready := make(chan *world, 1)
				select {
				case <-ctx.Done():
					return
				case todo <- func() { ready <- o.schedule(i).run(o.Trace) }:
				}
				select {
				case <-ctx.Done():
					return
				case done <- ready:
				}
			}
		})
		for ready := range done {
			if !yield(<-ready) {
				return
			}
		}
	}
}

// maxEvents bounds the events of one schedule, several hundred times what one of a
// minute has.
const maxEvents = 10_000_000

// run runs the world until its end, or until the judge has seen enough.
func (w *world) run() {
	w.tracef("seed %d: %d servers, %d nodes, %d domains", w.schedule.Seed, len(w.servers), len(w.nodes), len(w.domains))
	for _, s := range w.servers {
		s.boot()
	}
	for i, n := range w.nodes {
		w.add(w.random("start", i).upTo(3*time.Second), func() {
			if n.life == 0 && !(w.on["stranger"] && i == len(w.nodes)-1) { // which comes late
				n.boot()
			}
		})
	}
	w.disrupt()
	for {
		e, ok := w.next(w.end)
		if !ok {
			break
		}
		e.do()
		w.judge.look()
		if w.judge.ended() {
			return
		}
		if w.ran > maxEvents {
			w.judge.broken("ledger", "more than %d events by %v: endless loop", maxEvents, w.now)
			return
		}
	}
	if w.calm < w.end {
		w.judge.settled()
	}
}
