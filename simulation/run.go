package simulation

import (
	"context"
	"io"
	"time"
)

// Options say what to run.
type Options struct {
	// Schedules is how many to run.
	Schedules int
	// Seed of the first; the others' are derived from it.
	Seed uint64
	// Span is the virtual time of each schedule.
	Span time.Duration
	// Trace, when set, gets a line for each thing that happens.
	Trace io.Writer
	// Progress, when set, is called after each schedule with what was found so far.
	Progress func(done int, r *Report)

	bent bends
}

// Violation is one broken promise.
type Violation struct {
	// Promise is P1 to P5, or "ledger", "consensus", "recovery" for what the
	// promises rest on.
	Promise string `json:"promise"`
	// Seed replays the schedule alone.
	Seed uint64 `json:"seed"`
	// At is the virtual time, seconds.
	At float64 `json:"at_s"`
	// What happened, in words with the numbers.
	What string `json:"what"`
}

// Report is what a run found.
type Report struct {
	// Seed of the first schedule.
	Seed uint64 `json:"seed"`
	// Schedules and Events that were run.
	Schedules int    `json:"schedules"`
	Events    uint64 `json:"events"`
	// Violations, in the order they were found: of each schedule the first of each promise.
	Violations []Violation `json:"violations"`
	// FaultsHit counts how often each fault, and each rare path, was taken.
	FaultsHit map[string]int `json:"faults_hit"`
}

// seedBits keeps seeds exact in JSON readers that know only doubles.
const seedBits = 53

// SeedOf is the seed of schedule i of a run with the given seed; that of
// schedule 0 is the run's own, so that each schedule can be run alone.
func SeedOf(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
	z := seed + uint64(i)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> (64 - seedBits)
}

// Run runs the schedules one after another until all are done or ctx ends; the
// error is that of ctx.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Seed: o.Seed, Violations: []Violation{}, FaultsHit: map[string]int{}}
	for _, name := range marks() {
		r.FaultsHit[name] = 0
	}
	for i := range o.Schedules {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		w := newWorld(SeedOf(o.Seed, i), o.Span, o.Trace, o.bent)
		w.run()
		r.Schedules++
		r.Events += w.ran
		r.Violations = append(r.Violations, w.judge.found...)
		for name, n := range w.hits {
			r.FaultsHit[name] += n
		}
		if o.Progress != nil {
			o.Progress(i+1, r)
		}
	}
	return r, nil
}

// run runs one schedule.
func (w *world) run() {
	w.tracef("seed %d: %d servers, %d nodes, %d domains", w.seed, len(w.servers), len(w.nodes), len(w.domains))
	for _, s := range w.servers {
		s.boot()
	}
	for _, n := range w.nodes {
		w.add(w.upTo(3*time.Second), func() {
			if n.life == 0 {
				n.boot()
			}
		})
	}
	w.disrupt()
	w.add(w.about(w.busy)+2*time.Second, w.operate)
	for {
		e, ok := w.next(w.end)
		if !ok {
			break
		}
		e.do()
		w.judge.look()
	}
	if w.calm < w.end {
		w.judge.settled()
	}
}
