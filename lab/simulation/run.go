package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Options configure a run.
type Options struct {
	Schedules int           // how many to run
	Seed      uint64        // of the first; the others' are derived from it
	Span      time.Duration // virtual time of each schedule
	Sabotage  string        // by name: the run ends with the first schedule that finds it
	Trace     io.Writer     // when set, gets a line for each thing that happens; schedules then run one after another
}

// Schedule names one schedule exactly: the same schedule gives the same events, byte for byte, on every machine.
type Schedule struct {
	Seed     uint64   `json:"seed"`               // of everything that is drawn
	SpanMS   int64    `json:"span_ms"`            // virtual time, milliseconds
	Only     []string `json:"only"`               // classes of faults it has; null: as drawn
	Keep     []string `json:"keep"`               // occurrences that happen; null: all
	Sabotage string   `json:"sabotage,omitempty"` // that it runs with
	Promise  string   `json:"promise,omitempty"`  // that it breaks, or broke once
	What     string   `json:"what,omitempty"`     // was broken, in words with the numbers
}

// Violation is one broken promise.
type Violation struct {
	Promise string  `json:"promise"` // P1 to P5, P8, P9, brake; or ledger, consensus, recovery for what they rest on
	Seed    uint64  `json:"seed"`    // replays the schedule alone
	At      float64 `json:"at_s"`    // virtual time, seconds
	What    string  `json:"what"`    // happened, in words with the numbers
}

// Report is the result of a run.
type Report struct {
	Seed       uint64         `json:"seed"` // of the first schedule
	Sabotage   string         `json:"sabotage,omitempty"`
	Schedules  int            `json:"schedules"`
	Events     uint64         `json:"events"`
	Violations []Violation    `json:"violations"`       // in the order they were found: of each schedule the first of each promise
	Shrunk     *Schedule      `json:"shrunk,omitempty"` // the least schedule that still shows the first violation
	FaultsHit  map[string]int `json:"faults_hit"`       // how often each fault, and each rare path, was taken
}

// seedBits keeps seeds exact in JSON readers that have only doubles.
const seedBits = 53

// seedOf is the seed of schedule i of a run with the given seed; that of schedule 0 is the run's own, so that each schedule can be run alone.
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

// run runs the schedules until all are done, a sabotage is found or ctx ends, which is the error.
func run(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Seed: o.Seed, Sabotage: o.Sabotage, Violations: []Violation{}, FaultsHit: map[string]int{}}
	for _, name := range marks() {
		r.FaultsHit[name] = 0
	}
	sabotage, _ := findSabotage(o.Sabotage)
	for w := range o.worlds(ctx) {
		r.add(w)
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
	return Schedule{Seed: seedOf(o.Seed, i), SpanMS: o.Span.Milliseconds(), Sabotage: o.Sabotage}
}

// worlds runs the schedules on all CPUs, a batch at a time, and yields them in their order until ctx ends.
func (o Options) worlds(ctx context.Context) iter.Seq[*world] {
	return func(yield func(*world) bool) {
		size := 2 * runtime.GOMAXPROCS(0)
		if o.Trace != nil {
			size = 1
		}
		for done := 0; done < o.Schedules && ctx.Err() == nil; done += size {
			batch := make([]*world, min(size, o.Schedules-done))
			var group sync.WaitGroup
			for i := range batch {
				group.Go(func() { batch[i] = o.schedule(done + i).run(o.Trace) })
			}
			group.Wait()
			for _, w := range batch {
				if !yield(w) {
					return
				}
			}
		}
	}
}

func (s Schedule) span() time.Duration { return time.Duration(s.SpanMS) * time.Millisecond }

// run runs the schedule to its end, or to the first violation of its promise.
func (s Schedule) run(trace io.Writer) *world {
	w := newWorld(s, trace)
	w.run()
	return w
}

// replay runs one schedule to its end and reports what it breaks now.
func (s Schedule) replay(trace io.Writer) *Report {
	r := &Report{Seed: s.Seed, Sabotage: s.Sabotage, Violations: []Violation{}, FaultsHit: map[string]int{}}
	s.Promise = ""
	r.add(s.run(trace))
	return r
}

// readSchedule reads a kept schedule.
func readSchedule(data []byte) (s Schedule, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("simulation: schedule: %w", err)
	}
	if s.span() < minSpan || s.span() > maxSpan {
		return s, fmt.Errorf("simulation: schedule: span_ms is %d: must be from %v to %v", s.SpanMS, minSpan, maxSpan)
	}
	for _, name := range s.Only {
		if !slices.ContainsFunc(classes(), func(c class) bool { return c.name == name }) {
			return s, fmt.Errorf("simulation: schedule: unknown fault class %q", name)
		}
	}
	if _, ok := findSabotage(s.Sabotage); !ok {
		return s, fmt.Errorf("simulation: schedule: unknown sabotage %q", s.Sabotage)
	}
	return s, nil
}
