// Claims: a task that straggles gets a copy once nothing of its stage waits and a core of another host is free, one copy at
// the most; none where the promise is kept without it, without a promise, or where nothing is known of its stage's durations.
package sparkapp

import (
	"reflect"
	"testing"
	"time"

	"headroom/jobs/speculation"
)

func TestCopies(t *testing.T) {
	t.Parallel()
	now := time.Now()
	// Eighteen of twenty are done in a second each, 7 and 19 run.
	report := func(change func(r *Report, s *stageReport)) Report {
		r := Report{CoresOn: map[string]int{"a": 2, "b": 2}, RunningOn: map[string]int{"a": 1, "b": 1}}
		s := stageReport{
			ID: 3, Attempt: 1, Kind: "map", Partitions: 20, Kept: 20, Done: 18, Running: 2, Begun: true, TypicalMS: 1000,
			Attempts: []Attempt{{7, "a", 500}, {19, "b", 60_000}},
		}
		if change != nil {
			change(&r, &s)
		}
		r.Stages = []stageReport{s}
		return r
	}
	deadline := Promise{Floor: 1, Submitted: now, Deadline: time.Hour}
	straggler := []Copy{{Stage: 3, Attempt: 1, Partition: 19}}
	for name, c := range map[string]struct {
		promise Promise
		change  func(r *Report, s *stageReport)
		want    []Copy
	}{
		"a straggler":                  {deadline, nil, straggler},
		"an error bound that needs it": {Promise{Floor: 1, Bounded: true}, nil, straggler},
		"one that needs the other":     {Promise{Floor: 0.95, Bounded: true}, nil, nil},
		"one that is kept":             {Promise{Floor: 0.9, Bounded: true}, nil, nil},
		"a deadline that has passed":   {Promise{Floor: 1, Submitted: now.Add(-time.Hour), Deadline: time.Minute}, nil, straggler},
		"no promise":                   {Promise{Floor: 1}, nil, nil},
		"too late for a copy":          {Promise{Floor: 0.5, Submitted: now, Deadline: time.Second}, nil, nil},
		"one of its stage waits":       {deadline, func(_ *Report, s *stageReport) { s.Done-- }, nil},
		"no core is free":              {deadline, func(r *Report, _ *stageReport) { r.CoresOn = map[string]int{"a": 1, "b": 1} }, nil},
		"only its own host has one":    {deadline, func(r *Report, _ *stageReport) { r.CoresOn["a"] = 1 }, nil},
		"nothing is known":             {deadline, func(_ *Report, s *stageReport) { s.TypicalMS = 0 }, nil},
		"not all attempts are told":    {deadline, func(_ *Report, s *stageReport) { s.Attempts = s.Attempts[:1] }, nil},
		"it has a copy": {deadline, func(_ *Report, s *stageReport) {
			s.Running, s.Attempts = 3, append(s.Attempts, Attempt{19, "a", 100})
		}, nil},
	} {
		if got := report(c.change).Copies(speculation.None, c.promise, now); got != nil {
			t.Errorf("%s, no policy: %v", name, got)
		}
		want := 0
		if name == "it has a copy" {
			want = 1
		}
		if p := report(c.change).Progress(0, func(host string) string { return host }); p.Copies != want {
			t.Errorf("%s: %d copies run, want %d", name, p.Copies, want)
		}
		if got := report(c.change).Copies(speculation.Ours, c.promise, now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
