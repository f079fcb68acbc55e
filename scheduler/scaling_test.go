package scheduler

// What runs teach is committed with the next job of the name, and with those that are not over; only runs that a meter has
// seen whole count.

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/jobs/scaling/runs"
	"headroom/scheduler/scaling"
	"headroom/units"
)

// learned is a learner that knows runs of jobs of a name, whose peak is at 10 slots.
func learned(t *testing.T, name string) *scaling.Learner {
	t.Helper()
	var b runs.Book
	for _, n := range []float64{2, 4, 6, 8, 12, 16, 20, 24} {
		testkit.Check(t, b.Note(name, runs.Run{Containers: n, Tasks: 100, Busy: 300 * (1 + 0.01*(n-1) + 0.0099*n*(n-1))}))
	}
	b.Learn(name)
	dir := t.TempDir()
	testkit.WriteFile(t, filepath.Join(dir, "scaling.json"), string(testkit.Need(json.Marshal(&b))(t)))
	return scaling.Open(dir, slog.New(slog.DiscardHandler))
}

// most is the highest of the points but the last, 0 where that is the highest.
func most(s *headroomv1.Scaling) (peak uint32) {
	best := 0.0
	for _, p := range s.GetPoints() {
		if p.GetSpeedup() > best {
			best, peak = p.GetSpeedup(), p.GetContainers()
		}
	}
	if n := len(s.GetPoints()); n == 0 || s.GetPoints()[n-1].GetContainers() == peak {
		return 0
	}
	return peak
}

func TestCurveIsCommitted(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	early := testkit.Need(f.submit("words", 4))(t)
	if early.GetScaling() != nil {
		t.Errorf("a job of which nothing is known has %v", early.GetScaling())
	}
	f.do(func() { f.scaling = learned(t, "words") })
	f.do(func() { curveEvent{"words"}.apply(f.loop, time.Now()) })
	if j := <-f.commits.scaled; j.GetId() != early.GetId() || most(j.GetScaling()) < 9 || most(j.GetScaling()) > 11 {
		t.Errorf("committed again: %v", j.GetScaling())
	}
	f.do(func() { curveEvent{"words"}.apply(f.loop, time.Now()) })
	if len(f.commits.scaled) != 0 {
		t.Error("the same curve is committed once more")
	}
}

func TestSubmittedWithCurve(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.do(func() { f.scaling = learned(t, "words") })
	j := testkit.Need(f.submit("words", 4))(t)
	if got := f.log.jobs[j.GetId()].GetScaling(); most(got) < 9 || most(got) > 11 || got.GetRuns() != 8 || got.GetType() != "IV" {
		t.Errorf("committed with %v", got)
	}
	v := testkit.Need(f.service.look(t.Context(), j.GetId()))(t)
	if got := jobToProto(v.jobs[0]).GetScaling(); got.String() != j.GetScaling().String() {
		t.Errorf("shown with %v", got)
	}
}

// A run is measured with the caps of its nodes.
func TestRunIsMeasured(t *testing.T) {
	t.Parallel()
	p := newPlant(t, "off", "shared")
	p.scaling = scaling.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	p.core.HoldUntil(p.now)
	p.worker(4)
	p.capped("n01", dispatch.Cap{Cap: 150 * units.Watt, Max: 200 * units.Watt})
	p.commit(p.record("words", "low", ""))
	for range 40 {
		p.pass(stepEvery)
		p.measure(p.now)
	}
	r, m := p.records["words"], p.meters["words"]
	run, ok := m.End(r.run.Number, 10, 0)
	if !ok || run.Containers < 3.9 || run.Containers > 4 || run.Power < 0.74 || run.Power > 0.76 || run.Busy < 36 || run.Busy > 40 {
		t.Errorf("%+v, %v", run, ok)
	}
	p.learnEnd(r, dispatch.EndJob{Job: "words", State: dispatch.Done, Done: 10})
	if len(p.meters) != 0 {
		t.Error("its meter is kept")
	}
}
