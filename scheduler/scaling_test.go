package scheduler

// What runs teach is committed with the next job of the name, and with those that are not over; only runs that a meter has
// seen whole count, of Spark as of the workers.

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
	"headroom/jobs/dispatch"
	"headroom/jobs/scaling/runs"
	"headroom/scheduler/jobdir"
	"headroom/scheduler/jobfile"
	"headroom/scheduler/scaling"
	"headroom/scheduler/spark"
	"headroom/scheduler/sparkapp"
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

// silent is an engine that starts runs and reports nothing by itself.
type silent struct{}

func (silent) Run(context.Context) error             { return nil }
func (silent) Start(spark.Run) error                 { return nil }
func (silent) Adopt(spark.Run) (bool, error)         { return true, nil }
func (silent) Kill(string, uint32)                   {}
func (silent) Deflate(string, float64, uint64) error { return nil }
func (silent) Share([]spark.Share) error             { return nil }
func (silent) Capacity() (int, string)               { return 8, "" }
func (silent) Events() <-chan spark.Event            { return nil }

// A run of Spark is measured by what its driver reports.
func TestRunOfSparkIsMeasured(t *testing.T) {
	t.Parallel()
	usual := func(i int) sparkapp.Progress { // 4 tasks of 1 s at a time; between two stages the driver works alone
		p := sparkapp.Progress{Known: true, Tasks: 160, Done: i, RunningOn: map[string]int{"n01": 4}, Running: 4, Stages: []sparkapp.Stage{{ID: 0, Partitions: 160, Kept: 160}}}
		if i >= 80 && i < 100 {
			p.Running, p.RunningOn = 0, map[string]int{"n01": 4}
		}
		return p
	}
	for name, x := range map[string]struct {
		change func(i int, p *sparkapp.Progress)
		ok     bool
		want   bool
	}{
		"whole":               {func(int, *sparkapp.Progress) {}, true, true},
		"failed":              {func(int, *sparkapp.Progress) {}, false, false},
		"silent for long":     {func(i int, p *sparkapp.Progress) { p.Known = i < 40 || i > 80 }, true, false},
		"silent for a moment": {func(i int, p *sparkapp.Progress) { p.Known = i < 40 || i > 50 }, true, true},
		"nodes unknown":       {func(_ int, p *sparkapp.Progress) { p.RunningOn = nil }, true, false},
		"outputs lost":        {func(i int, p *sparkapp.Progress) { p.Stages[0].Attempt = i / 100 }, true, false},
		"many copies":         {func(_ int, p *sparkapp.Progress) { p.Copies = 1 }, true, false},
		"known for a part":    {func(i int, p *sparkapp.Progress) { p.Known = i > 60 }, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlant(t, "off", "shared")
			p.scaling = scaling.Open(t.TempDir(), slog.New(slog.DiscardHandler))
			p.engines.spark, p.director = silent{}, &director{soon: make(chan struct{}, 1)}
			p.core.HoldUntil(p.now)
			p.capped("n01", dispatch.Cap{Cap: 150 * units.Watt, Max: 200 * units.Watt})
			f := testkit.Need(jobfile.Parse("/j/sums.yaml", []byte("name: sums\nclass: low\nslots: 4\nspark: {application: /a.py}\n"), nil))(t)
			r := &record{file: f, dir: jobdir.Folder{Output: p.cfg.Dir + "/out", ID: "sums"}, submitted: p.now, floor: f.Floor(nil)}
			r.spec = testkit.Need(f.Specification(r.floor))(t)
			r.at = testkit.Need(jobdir.Make(r.dir))(t)
			p.commit(r)
			p.pass(stepEvery)
			for i := range 160 {
				progress := usual(i)
				x.change(i, &progress)
				engineEvent{spark.Event{Job: "sums", Number: r.run.Number, Progress: progress}}.apply(p.loop, p.now)
				p.pass(stepEvery)
				p.measure(p.now)
			}
			m, number := p.meters["sums"], r.run.Number
			if m == nil && x.want {
				t.Fatalf("%s: not measured", name)
			}
			run, got := m.End(number, 160, 0)
			engineEvent{spark.Event{Job: "sums", Number: number, Kind: spark.KindEnded, Progress: usual(160), Ended: spark.Ended{OK: x.ok, Outcome: "x"}}}.apply(p.loop, p.now)
			p.pass(stepEvery)
			if name != "failed" && got != x.want || got && (run.Containers < 3.9 || run.Containers > 4 || run.Power < 0.74 || run.Power > 0.76 || run.Busy < 130 || run.Busy > 141) {
				t.Errorf("%s: %+v, %v", name, run, got)
			}
			if len(p.meters) != 0 {
				t.Errorf("%s: its meter is kept", name)
			}
			if n := p.taught(); (n == 1) != (x.want && x.ok) {
				t.Errorf("%s: learned %d", name, n)
			}
		})
	}
}

// taught lets the learner learn, and returns how many names it then knows. It runs in a bubble.
func (p *plant) taught() int {
	ctx, cancel := context.WithCancel(p.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = p.scaling.Run(ctx, func(string) {})
	}()
	synctest.Wait()
	cancel()
	<-over
	all, _ := p.scaling.Names()
	return all
}
