package simulation

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Schedule names one schedule exactly: the same schedule gives the same events,
// byte for byte, on every machine.
type Schedule struct {
	// Seed of everything that is drawn.
	Seed uint64 `json:"seed"`
	// SpanMS is its virtual time, milliseconds.
	SpanMS int64 `json:"span_ms"`
	// Only are the classes of faults it has; null: as drawn.
	Only []string `json:"only"`
	// Keep are the occurrences that happen; null: all.
	Keep []string `json:"keep"`
	// Sabotage that it runs with.
	Sabotage string `json:"sabotage,omitempty"`
	// Promise that it breaks, or broke once.
	Promise string `json:"promise,omitempty"`
	// What was broken, in words with the numbers.
	What string `json:"what,omitempty"`
}

func (s Schedule) span() time.Duration { return time.Duration(s.SpanMS) * time.Millisecond }

// run runs the schedule to its end, or to the first violation of its promise.
func (s Schedule) run(trace io.Writer) *world {
	w := newWorld(s, trace)
	w.judge.stop = s.Promise
	w.run()
	return w
}

// replay runs one schedule again and reports what it breaks now.
func (s Schedule) replay(trace io.Writer) (*Report, error) {
	if _, err := findSabotage(s.Sabotage); err != nil {
		return nil, err
	}
	r := &Report{Seed: s.Seed, Sabotage: s.Sabotage, Violations: []Violation{}, FaultsHit: map[string]int{}}
	w := newWorld(s, trace)
	w.run()
	r.add(w)
	return r, nil
}

// readSchedule reads a kept schedule.
func readSchedule(r io.Reader) (Schedule, error) {
	var s Schedule
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("simulation: schedule: %w", err)
	}
	if s.span() < minSpan || s.span() > maxSpan {
		return s, fmt.Errorf("simulation: schedule: span_ms is %d: must be from %v to %v", s.SpanMS, minSpan, maxSpan)
	}
	for _, class := range s.Only {
		if !slices.Contains(Classes(), class) {
			return s, fmt.Errorf("simulation: schedule: unknown fault class %q", class)
		}
	}
	return s, nil
}

// command is the command line that runs the schedule again.
func (s Schedule) command() string {
	line := fmt.Sprintf("powerlab simulate --schedules 1 --seed %d --duration %v", s.Seed, s.span())
	if s.Only != nil {
		line += " --only " + listed(s.Only)
	}
	if s.Keep != nil {
		line += " --keep " + listed(s.Keep)
	}
	if s.Sabotage != "" {
		line += " --sabotage " + s.Sabotage
	}
	return line
}

// listed is a list for a flag; an empty one is "none".
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}
