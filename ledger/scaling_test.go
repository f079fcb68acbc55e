// Claims: a job's scaling curve stays with it, in the log and in snapshots, and may change while the job is not over; one that
// makes no sense is refused with the field that is wrong.
package ledger_test

import (
	"math"
	"strings"
	"testing"

	"headroom/ledger"
)

func scaled(speedup float64) *ledger.Scaling {
	return &ledger.Scaling{Points: []ledger.ScalingPoint{{Containers: 1, Speedup: 1}, {Containers: 21, Speedup: speedup}, {Containers: 26, Speedup: 1}}, Runs: 6, Type: "IV", Error: 0.04}
}

func TestScalingIsKept(t *testing.T) {
	t.Parallel()
	s := crowded(t)
	with := func(x *ledger.Scaling) ledger.Command {
		return ledger.Command{Job: &ledger.Job{ID: "k1", State: ledger.JobAccepted, Scaling: x}}
	}
	do(t, s, with(nil)) // nothing is known of it yet
	do(t, s, with(scaled(9)))
	do(t, s, with(scaled(9.5)))
	before := snapshot(t, s)
	do(t, s, with(nil)) // an older scheduler asks again
	do(t, s, with(scaled(9.5)))
	if snapshot(t, s) != before {
		t.Error("the same job again has changed something")
	}
	back, err := ledger.Restore([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	for name, state := range map[string]*ledger.State{"the log": s, "the snapshot": back} {
		c, err := state.Jobs["k1"].Scaling.Curve()
		if err != nil || c.Peak() != 21 || c.Speedup(21) != 9.5 {
			t.Errorf("%s has %+v: %v", name, state.Jobs["k1"].Scaling, err)
		}
	}
	do(t, s, ledger.Command{Finish: &ledger.FinishJob{ID: "k1", State: ledger.JobDone}})
	do(t, s, with(scaled(3)))
	if c, err := s.Jobs["k1"].Scaling.Curve(); err != nil || c.Speedup(21) != 9.5 {
		t.Errorf("a job that is over has another curve: %v", err)
	}
}

func TestWrongScaling(t *testing.T) {
	t.Parallel()
	for says, edit := range map[string]func(s *ledger.Scaling){
		"points[1].speedup is NaN":                             func(s *ledger.Scaling) { s.Points[1].Speedup = math.NaN() },
		"points[1].speedup is 0":                               func(s *ledger.Scaling) { s.Points[1].Speedup = 0 },
		"points[2].containers is 3, not above the previous 21": func(s *ledger.Scaling) { s.Points[2].Containers = 3 },
		"points[2].containers is 4294967295; the maximum is":   func(s *ledger.Scaling) { s.Points[2].Containers = math.MaxUint32 },
		"scaling.points are 1000000, at most 64":               func(s *ledger.Scaling) { s.Points = make([]ledger.ScalingPoint, 1_000_000) },
		"0 points; must be from":                               func(s *ledger.Scaling) { s.Points = nil },
		"scaling.runs are 4294967295, at most":                 func(s *ledger.Scaling) { s.Runs = math.MaxUint32 },
		`scaling.type is "V"`:                                  func(s *ledger.Scaling) { s.Type = "V" },
		"scaling.error is NaN; it must be from 0 to 1":         func(s *ledger.Scaling) { s.Error = math.NaN() },
		"scaling.error is 2":                                   func(s *ledger.Scaling) { s.Error = 2 },
	} {
		s, x := crowded(t), scaled(9)
		edit(x)
		c := ledger.Command{Epoch: s.Epoch, Job: &ledger.Job{ID: "k1", State: ledger.JobAccepted, Scaling: x}}
		if _, err := s.Apply(c); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `job "k1"`) {
			t.Errorf("%s: %v", says, err)
		}
	}
}
