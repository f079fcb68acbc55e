// Claims: a new leader leaves shares as they are until it knows the jobs; finish times are held
// against true runtimes; whatever a scheduler reports, no stop is below a job's floor.
package arbitration

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/arbiter"
	"headroom/ledger"
	"headroom/units"
)

// A new leader lets the shares of the one before stand until it knows the jobs; after
// half a minute it goes by what it has.
func TestNewLeaderLeavesSharesUntilItKnows(t *testing.T) {
	t.Parallel()
	look := func(a Decider, at time.Duration, elapsed float64, power units.Power) (Sharing, bool) {
		seen := Seen{Engines: map[string]*headroomv1.EngineReport{"yarn": {Engine: "yarn", Containers: 20, Overhead: 1}}}
		for _, id := range []string{"a", "b"} {
			work := elapsed / 2
			seen.Jobs = append(seen.Jobs, Job{
				Job:      ledger.Job{ID: id, Name: id, Engine: "yarn", State: ledger.JobAccepted, Floor: 0.5, Uncapped: 100 * time.Second},
				Progress: &headroomv1.JobProgress{Tasks: 200, Done: uint32(work), Work: &work, Running: 9, Pending: 100, RuntimeS: &elapsed, Containers: 10, Phase: headroomv1.JobPhase_JOB_PHASE_MAP},
				Power:    power, Full: power * 2,
			})
		}
		x, ok := a.Step(at, seen).Shares["yarn"]
		return x, ok
	}
	blind := New()
	for at := time.Duration(0); at <= Patience; at += lookEvery {
		if x, ok := look(blind, at, 40+at.Seconds(), 0); ok != (at == Patience) {
			t.Errorf("at %v, with no cap known: %+v, %v", at, x, ok)
		}
	}
	knowing := New()
	for at := time.Duration(0); at < Patience; at += lookEvery {
		if x, ok := look(knowing, at, 40+at.Seconds(), 100*units.Watt); ok {
			if len(x.Jobs) != 2 || x.Jobs[0].GetContainers()+x.Jobs[1].GetContainers() != 20 || !strings.Contains(x.Reason, "20 containers") {
				t.Errorf("at %v: %+v", at, x)
			}
			return
		}
	}
	t.Error("it knows the jobs, and shares nothing")
}

// Once a job is done, both estimators are held against its true runtime; of one that
// has failed nothing is said.
func TestErrorsOfFinishTimes(t *testing.T) {
	t.Parallel()
	a := New()
	var out Decided
	for at := 5.0; at < 100; at += 5 {
		seen := Seen{}
		for _, id := range []string{"done", "failed"} {
			seen.Jobs = append(seen.Jobs, Job{
				Job:      ledger.Job{ID: id, Name: id, Engine: "yarn", State: ledger.JobAccepted, Floor: 1},
				Progress: &headroomv1.JobProgress{Tasks: 200, Done: uint32(max(0, 2*at-10)), Work: new(2 * at), Running: 20, RuntimeS: new(at), Containers: 20, Phase: headroomv1.JobPhase_JOB_PHASE_MAP},
				Power:    100 * units.Watt, Full: 100 * units.Watt,
			})
		}
		if out = a.Step(time.Duration(at)*time.Second, seen); len(out.Errors) != 0 {
			t.Fatalf("at %v s: %v", at, out.Errors)
		}
	}
	out = a.Step(100*time.Second, Seen{Ended: map[string]time.Duration{"done": 110 * time.Second, "stranger": time.Second}})
	if got := out.Errors["done"]; len(out.Errors) != 1 || len(got) != 2 || got[0].GetPolicy() != "learned" || got[1].GetPolicy() != "paper" {
		t.Fatalf("%v", out.Errors)
	}
	for _, e := range out.Errors["done"] {
		if e.GetMeanError() < 0.01 || e.GetMeanError() > 0.15 || e.GetSamples() < 15 || e.GetSamples() > 19 {
			t.Errorf("%v", e)
		}
	}
	if out = a.Step(105*time.Second, Seen{Ended: map[string]time.Duration{"done": 100 * time.Second}}); len(out.Errors) != 0 {
		t.Errorf("told twice: %v", out.Errors)
	}
}

// Whatever a scheduler reports, the arbiters answer, and what they decide about a
// stop is never below the floor.
func TestArbitersTakeAnyReport(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := New()
		number := rapid.SampledFrom([]uint32{0, 1, 2, 7, 40, 1000, math.MaxInt32, math.MaxUint32})
		odd := rapid.SampledFrom([]float64{0, -1, 0.5, 1, 39.5, 1e6, 1e300, math.Inf(1), math.NaN()})
		watts := rapid.SampledFrom([]units.Power{0, 1, 100 * units.Watt, 200 * units.Watt, ledger.MaxPower})
		for i := range rapid.IntRange(1, 12).Draw(t, "looks") {
			seen := Seen{Policy: rapid.SampledFrom(append(ledger.ContainerPolicies(), "")).Draw(t, "policy"), Engines: map[string]*headroomv1.EngineReport{}}
			if rapid.Bool().Draw(t, "reported") {
				seen.Engines["yarn"] = &headroomv1.EngineReport{Engine: "yarn", Containers: number.Draw(t, "all") % 5000, Overhead: number.Draw(t, "overhead") % 3}
			}
			for n := range rapid.IntRange(0, 3).Draw(t, "jobs") {
				p := &headroomv1.JobProgress{
					Tasks: number.Draw(t, "tasks"), Done: number.Draw(t, "done"), Running: number.Draw(t, "running"), Pending: number.Draw(t, "pending"),
					Dropped: number.Draw(t, "dropped"), Containers: number.Draw(t, "containers"), Phase: headroomv1.JobPhase(rapid.Int32Range(-1, 9).Draw(t, "phase")),
				}
				if rapid.Bool().Draw(t, "more") {
					p.RuntimeS, p.Work, p.Reduced = new(odd.Draw(t, "runtime")), new(odd.Draw(t, "work")), new(odd.Draw(t, "reduced"))
				}
				if rapid.Bool().Draw(t, "promises") {
					p.Error, p.Promised, p.CopiesSaveS = new(odd.Draw(t, "error")), number.Draw(t, "promised"), new(odd.Draw(t, "save"))
					p.Copies, p.CopiesWanted = number.Draw(t, "copies"), number.Draw(t, "wanted")
				}
				j := ledger.Job{ID: fmt.Sprint("j", n), Name: "wc", State: ledger.JobAccepted, Engine: rapid.SampledFrom([]string{"", "yarn"}).Draw(t, "engine"), Floor: 0.5}
				j.Deadline = rapid.SampledFrom([]time.Duration{0, time.Second, runtimeMost}).Draw(t, "deadline")
				seen.Jobs = append(seen.Jobs, Job{Job: j, Progress: p, Power: watts.Draw(t, "power"), Full: watts.Draw(t, "full")})
			}
			out := a.Step(time.Duration(i)*lookEvery, seen)
			for _, s := range out.Stops {
				if s.MinTasks < ledger.LeastTasks(0.5, s.Tasks) {
					t.Fatalf("stop %+v", s)
				}
			}
			for _, c := range commandsFor(seen, out) {
				if _, err := c.Encode(); err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
			}
			for id, m := range out.Moves {
				for _, c := range m.Message.GetCandidates() {
					if math.IsNaN(c.GetWorth()) || math.IsInf(c.GetWorth(), 0) || c.GetWhy() == "" {
						t.Fatalf("%s: candidate %v", id, c)
					}
				}
			}
			for _, o := range out.Outlooks {
				for _, x := range []*float64{o.FinishS, o.FinishLowS, o.FinishHighS, o.UncappedS, o.CapShare} {
					if x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0) || *x < 0) {
						t.Fatalf("outlook %v", o)
					}
				}
			}
		}
	})
}

// lookEvery is the time from one look of a leader at its jobs to the next.
const lookEvery = 5 * time.Second

// mixed is a job of 200 tasks of the engine, which runs on n01 and n02.
func mixed(id string, rank uint32, running, pending uint32, elapsed float64, floor float64) Job {
	work := elapsed * float64(running) / 10
	return Job{
		Job: ledger.Job{ID: id, Name: id, Class: []string{"high", "low"}[rank], Rank: rank, State: ledger.JobAccepted, Floor: floor, Submitted: wall.UnixMicro() - int64(elapsed*1e6)},
		Progress: &headroomv1.JobProgress{
			Tasks: 200, Done: 200 - running - pending, Work: new(float64(200-running-pending) + work), Running: running, Pending: pending, RuntimeS: &elapsed, Containers: running,
			Phase: headroomv1.JobPhase_JOB_PHASE_MAP, RunningOn: map[string]uint32{"n01": running / 2, "n02": running - running/2}, Run: 1, State: headroomv1.JobState_JOB_STATE_RUNNING,
		},
		Power: 100 * units.Watt, Full: 200 * units.Watt, Base: 100 * units.Watt, Fast: 150 * units.Watt,
		Offer: ledger.SprintOffer{
			Domain: "site/lab", Balance: 20 * units.Kilojoule, Capacity: 20 * units.Kilojoule, Rise: 100 * units.Watt,
			Caps: []ledger.Target{{Node: "n01", Cap: 150 * units.Watt}, {Node: "n02", Cap: 150 * units.Watt}},
		},
	}
}

var wall = time.Unix(1_000_000, 0)

// Under policy joint one decision comes through whole: shares in the order of service, sprints, ratios, holds and late
// nodes; under another policy containers are that policy's.
func TestJointDecisionComesThrough(t *testing.T) {
	t.Parallel()
	a := New()
	seen := func(at float64, policy string) Seen {
		s := Seen{
			Policy: policy, Wall: wall, Engines: map[string]*headroomv1.EngineReport{"local": {Engine: "local", Containers: 20}},
			Nodes: []arbiter.Node{
				{Name: "n01", Target: 100 * units.Watt, Floor: 50 * units.Watt, Most: 200 * units.Watt},
				{Name: "n02", Target: 100 * units.Watt, Floor: 50 * units.Watt, Most: 200 * units.Watt},
				{Name: "n03", Target: 100 * units.Watt, Floor: 50 * units.Watt, Most: 200 * units.Watt},
			},
		}
		high, low, other := mixed("high", 0, 10, 50, at, 1), mixed("low", 1, 10, 150, at+50, 0.5), mixed("other", 1, 4, 190, at+5, 1)
		high.Job.Deadline = time.Minute
		other.Progress.RunningOn = map[string]uint32{"n03": 4}
		waiting := Job{Job: ledger.Job{ID: "wait", Class: "low", Rank: 1, State: ledger.JobAccepted, Submitted: wall.UnixMicro()}, Progress: &headroomv1.JobProgress{Tasks: 50, Pending: 50}, Waiting: true}
		s.Jobs = append(s.Jobs, high, low, other, waiting)
		return s
	}
	var out Decided
	for i := range 8 {
		at := 20 + 5*float64(i)
		out = a.Step(time.Duration(at)*time.Second, seen(at, ""))
	}
	shares := out.Shares["local"]
	if len(shares.Jobs) != 3 || shares.Jobs[0].GetId() != "high" || shares.Jobs[0].GetContainers() != 20 || !strings.HasPrefix(shares.Reason, "policy joint, 20 containers") {
		t.Errorf("shares %+v, want all for the job of the high class, the others named behind it", shares)
	}
	if len(out.Sprints) != 1 || out.Sprints[0].Job != "high" || len(out.Sprints[0].Caps) != 2 {
		t.Errorf("sprints %+v", out.Sprints)
	}
	if len(out.Holds) != 1 || out.Holds[0].Node != "n03" || out.Holds[0].Most >= 100*units.Watt || out.Holds[0].Most < 50*units.Watt {
		t.Errorf("holds %+v, want n03, where no watt of the urgent job goes", out.Holds)
	}
	if !out.Behind["n01"] || !out.Behind["n02"] || out.Behind["n03"] {
		t.Errorf("behind %v", out.Behind)
	}
	if x := out.Outlooks["high"]; x.GetPolicy() != "joint" || x.GetContainers() != 20 {
		t.Errorf("outlook %v", x)
	}
	if len(out.Stops) != 0 || out.Moves["wait"].Message != nil {
		t.Errorf("stops %v, move of the waiting job %v", out.Stops, out.Moves["wait"])
	}
	out = a.Step(100*time.Second, seen(60, "equal"))
	if x := out.Shares["local"]; len(x.Jobs) != 3 || x.Jobs[0].GetContainers() > 7 || !strings.HasPrefix(x.Reason, "policy equal") || len(out.Holds) != 0 {
		t.Errorf("under policy equal: %+v, holds %v", x, out.Holds)
	}
	out = a.Step(105*time.Second, seen(65, "joint"))
	if x := out.Shares["local"]; len(x.Jobs) != 3 || x.Jobs[0].GetContainers() != 20 {
		t.Errorf("back to joint: %+v", x)
	}
}

// An engine that takes shares and a drop ratio and does neither gets no container twice: what one job is told to leave
// stays the other's, nothing swings, no ratio passes a floor, and every outlook stays a number.
func TestEngineThatDoesNotDoAsItSays(t *testing.T) {
	t.Parallel()
	a := New()
	const looks, ratio = 60, 0.25
	var first Sharing
	for i := range looks {
		at := 20 + float64(i)*lookEvery.Seconds()
		// It holds all containers for the low job throughout, and its tasks end as if none were dropped.
		low, high := mixed("low", 1, 20, 180, at+50, 0.5), mixed("high", 0, 0, 60, at, 1)
		done := uint32(min(200, 4*i))
		p := low.Progress
		p.Done, p.Work, p.Running, p.Pending, p.Theta = done, new(float64(done)), min(20, 200-done), 180-min(180, done), new(ratio)
		low.Job.Deflation = &ledger.Deflation{Theta: ratio, Seed: 7}
		out := a.Step(time.Duration(at)*time.Second, Seen{
			Wall: wall.Add(time.Duration(i) * lookEvery), Jobs: []Job{high, low}, Engines: map[string]*headroomv1.EngineReport{"local": {Engine: "local", Containers: 20}},
		})
		shares := out.Shares["local"]
		total := uint32(0)
		for _, s := range shares.Jobs {
			total += s.GetContainers()
		}
		switch {
		case total > 20:
			t.Fatalf("look %d: %d containers of 20 are given: %v", i, total, shares.Jobs)
		case first.Jobs == nil:
			first = shares
		case shares.Jobs[0].GetId() != "high" || shares.Jobs[0].GetContainers() != first.Jobs[0].GetContainers():
			t.Fatalf("look %d: %v, before: %v", i, shares.Jobs, first.Jobs)
		}
		for _, d := range out.Deflates {
			if d.ID != "low" || d.Theta <= ratio || d.Theta > 0.5 {
				t.Errorf("look %d: ratio %+v", i, d)
			}
		}
		for id, o := range out.Outlooks {
			if x := o.FinishS; x != nil && (math.IsNaN(*x) || math.IsInf(*x, 0) || *x < 0) {
				t.Errorf("look %d: %s ends at %v s", i, id, *x)
			}
		}
	}
	if first.Jobs == nil || first.Jobs[0].GetContainers() == 0 {
		t.Errorf("the high job was given nothing: %v", first.Jobs)
	}
}

// What a scheduler says of promises, error bounds and copies comes into the decision; what could be done about a promise at risk
// and how many copies may run come out of it.
func TestPromisesComeThrough(t *testing.T) {
	t.Parallel()
	large, small := mixed("large", 0, 10, 190, 50, 1), mixed("small", 0, 0, 20, 1, 1)
	small.Progress.Tasks, small.Progress.Done, small.Progress.Work, small.Progress.Pending = 20, 0, nil, 20
	step := func(jobs ...Job) Decided {
		a := New()
		var out Decided
		for i := range 8 {
			out = a.Step(time.Duration(5*i)*time.Second, Seen{Wall: wall, Jobs: jobs, Engines: map[string]*headroomv1.EngineReport{"local": {Engine: "local", Containers: 20}}})
		}
		return out
	}
	given := func(out Decided, id string) *headroomv1.JobShare {
		for _, s := range out.Shares["local"].Jobs {
			if s.GetId() == id {
				return s
			}
		}
		t.Fatalf("no share of %s in %v", id, out.Shares)
		return nil
	}
	if n := given(step(large, small), "small").GetContainers(); n != 0 {
		t.Fatalf("without a promise it gets %d containers", n)
	}
	byLog, byScheduler := small, small
	byLog.Job.Admission = &ledger.Admission{Decision: ledger.AdmissionAdmitted, Slots: 8}
	byScheduler.Progress = proto.CloneOf(small.Progress)
	byScheduler.Progress.Promised = 5
	if a, b := given(step(large, byLog), "small").GetContainers(), given(step(large, byScheduler), "small").GetContainers(); a != 8 || b != 5 {
		t.Errorf("with promises of 8 and 5 it gets %d and %d containers", a, b)
	}
	waits := small
	waits.Job.Admission = &ledger.Admission{Decision: ledger.AdmissionQueued, Need: 8}
	if n := given(step(large, waits), "small").GetContainers(); n != 0 {
		t.Errorf("with no promise yet it gets %d containers", n)
	}
	// Nobody makes room for a job of a higher class that waits at the door, and somebody does for one that was admitted.
	behind, door := mixed("behind", 1, 10, 190, 50, 1), small
	door.Waiting = true
	door.Job.Admission = &ledger.Admission{Decision: ledger.AdmissionAdmitted, Slots: 8}
	if n := given(step(behind, door), "behind").GetContainers(); n >= 20 {
		t.Errorf("beside one that may begin it gets %d containers", n)
	}
	door.Job.Admission = waits.Job.Admission
	if n := given(step(behind, door), "behind").GetContainers(); n != 20 {
		t.Errorf("beside one that waits at the door it gets %d containers", n)
	}

	bounded := mixed("bounded", 0, 10, 50, 50, 0.7)
	exact := step(bounded).Outlooks["bounded"].GetFinishS()
	bounded.Progress.Error = new(0.2)
	if loose := step(bounded).Outlooks["bounded"]; loose.GetFinishS() >= exact || loose.GetAimTasks() != 160 {
		t.Errorf("all of its tasks end at %v s, those that it needs at %v", exact, loose)
	}

	late := mixed("late", 0, 10, 0, 50, 1)
	late.Job.Deadline, late.Progress.Copies, late.Progress.CopiesWanted, late.Progress.CopiesSaveS = 52*time.Second, 2, 3, new(4.0)
	out := step(late)
	if s := given(out, "late"); s.Copies == nil || s.GetCopies() != 5 {
		t.Errorf("copies: %v", s)
	}
	if s := given(step(large), "large"); s.Copies != nil {
		t.Errorf("copies of a job that says nothing of them: %v", s)
	}
	chosen := map[string]bool{}
	for _, c := range out.Moves["late"].Message.GetCandidates() {
		chosen[c.GetKind().String()] = c.GetChosen()
		if c.GetKind() == headroomv1.MoveKind_MOVE_KIND_SPRINT && (c.GetCostUj() <= 0 || c.GetWorth() <= 0 || c.GetTimeS() >= 0) {
			t.Errorf("%v", c)
		}
	}
	if len(chosen) != 5 || !chosen["MOVE_KIND_SPRINT"] || !chosen["MOVE_KIND_COPY"] || chosen["MOVE_KIND_DEFLATE"] {
		t.Errorf("%v", out.Moves["late"].Message)
	}
}

// A job that has no hook can lose no task, whatever its floor: nothing is foreseen or decided that it could not follow.
func TestJobWithoutAHookIsWhole(t *testing.T) {
	t.Parallel()
	x := Job{Job: ledger.Job{ID: "j", Engine: engineYarn, Floor: 0.5}, Progress: &headroomv1.JobProgress{Tasks: 12, Done: 3}}
	if got := x.arbitrated(false).Floor; got != 0.5 {
		t.Errorf("a job with a hook has a floor of %v", got)
	}
	x.Progress.Whole = true
	if got := x.arbitrated(false).Floor; got != 1 {
		t.Errorf("floor %v", got)
	}
}
