package arbitration

import (
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
)

// A job is held at the peak of its committed curve, and says so; a new leader, who knows the log alone, holds it there too,
// and a curve that has changed counts from the next look on.
func TestCurveBounds(t *testing.T) {
	t.Parallel()
	curve := func(peak uint32) *ledger.Scaling {
		return &ledger.Scaling{Points: []ledger.ScalingPoint{{Containers: 1, Speedup: 1}, {Containers: peak, Speedup: 5}, {Containers: peak + 5, Speedup: 4}}, Runs: 6, Type: "IV"}
	}
	look := func(a Decider, at time.Duration, s *ledger.Scaling) (map[string]uint32, string) {
		seen := Seen{Wall: time.Unix(100, 0), Engines: map[string]*headroomv1.EngineReport{"local": {Engine: "local", Containers: 40}}}
		for i, id := range []string{"a", "b"} {
			j := Job{
				Job:      ledger.Job{ID: id, Name: id, Class: "low", State: ledger.JobAccepted, Submitted: int64(i)},
				Progress: &headroomv1.JobProgress{Tasks: 200, Done: 20, Running: 20, Pending: 160, RuntimeS: new(20.0), Containers: 20, RunningOn: map[string]uint32{"n1": 20}},
			}
			if id == "a" {
				j.Job.Scaling = s
			}
			seen.Jobs = append(seen.Jobs, j)
		}
		out := a.Step(at, seen)
		given := map[string]uint32{}
		for _, j := range out.Shares["local"].Jobs {
			given[j.GetId()] = j.GetContainers()
		}
		return given, out.Moves["a"].Message.GetReason()
	}
	known := func(a Decider, s *ledger.Scaling) (given map[string]uint32, why string) {
		for at := time.Duration(0); at <= Patience; at += lookEvery {
			given, why = look(a, at, s)
		}
		return given, why
	}
	leader := New()
	for name, a := range map[string]Decider{"the leader": leader, "a new leader": New()} {
		if given, why := known(a, curve(12)); given["a"] != 12 || given["b"] != 28 || !strings.Contains(why, "it slows down above 12, learned from 6 runs") {
			t.Errorf("%s gives %v: %s", name, given, why)
		}
	}
	if given, _ := look(leader, Patience+lookEvery, curve(20)); given["a"] != 20 {
		t.Errorf("with another curve: %v", given)
	}
	if given, _ := look(leader, Patience+2*lookEvery, nil); given["a"] != 40 {
		t.Errorf("without a curve: %v", given)
	}
}
