// Claims: Algorithms 1 and 2 of PYTHIA do step by step what the paper says, with its gaps resolved as lab/docs/pythia.md
// names them.
package admission_test

import (
	"math"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
)

func at(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * 1e9)) }

func newController(t testing.TB, p admission.Policy, capacity int) *admission.Controller {
	t.Helper()
	return testkit.Need(admission.New(p, capacity))(t)
}

// submit submits a job and returns the decision about it.
func submit(t *testing.T, c *admission.Controller, now float64, id string, tasks int, deadline time.Duration) admission.Decision {
	t.Helper()
	out, err := c.Submit(at(now), admission.Job{ID: id, Tasks: tasks, Deadline: deadline, Work: time.Second})
	testkit.Check(t, err)
	return find(t, out, id)
}

func find(t *testing.T, out []admission.Decision, id string) admission.Decision {
	t.Helper()
	for _, d := range out {
		if d.ID == id {
			return d
		}
	}
	t.Fatalf("no decision about %s in %v", id, out)
	return admission.Decision{}
}

func finish(t *testing.T, c *admission.Controller, now float64, id string, work time.Duration) (out []admission.Decision, met bool) {
	t.Helper()
	out, met, err := c.Finished(at(now), id, work)
	testkit.Check(t, err)
	return out, met
}

// W = 1000 s, D = 50 s, r = 40: the rate is 20/40, and on 30 slots 20/30. The next job of 7 tasks gets 4 and 5.
func TestPythiaWorkedExample(t *testing.T) {
	t.Parallel()
	for capacity, want := range map[int]struct {
		first, next float64
		fraction    float64
	}{100: {40, 4, .5}, 30: {30, 5, 2. / 3}} {
		c := newController(t, admission.Pythia, capacity)
		if d := submit(t, c, 0, "a", 40, 50*time.Second); d.Verdict != admission.Admitted || d.Slots != want.first || c.Fraction() != -1 {
			t.Errorf("bootstrap: %+v, fraction %v", d, c.Fraction())
		}
		if _, met := finish(t, c, 1000/want.first, "a", 1000*time.Second); !met || math.Abs(c.Fraction()-want.fraction) > 1e-12 {
			t.Errorf("met %v, fraction %v, want %v", met, c.Fraction(), want.fraction)
		}
		if d := submit(t, c, 60, "b", 7, 50*time.Second); d.Verdict != admission.Admitted || d.Slots != want.next {
			t.Errorf("%+v, want %v slots", d, want.next)
		}
	}
}

// The fraction only rises, also by a job that missed, and never above 1.
func TestPythiaFractionRises(t *testing.T) {
	t.Parallel()
	c := newController(t, admission.Pythia, 100)
	for i, step := range []struct {
		work, took, want float64
		met              bool
	}{{100, 10, .2, true}, {50, 25, .2, true}, {300, 50, .6, true}, {9000, 60, 1, false}, {10, 1, 1, true}} {
		id := string(rune('a' + i))
		now := float64(1000 * i)
		submit(t, c, now, id, 10, 50*time.Second)
		if _, met := finish(t, c, now+step.took, id, time.Duration(step.work)*time.Second); met != step.met || c.Fraction() != step.want {
			t.Errorf("step %d: met %v, fraction %v, want %v", i, met, c.Fraction(), step.want)
		}
	}
}

// A job that does not fit waits. Its need grows while it waits, the smallest is served first, and what can no longer
// meet its deadline is refused with the nearest deadline that would not be: twice what it has waited.
func TestPythiaQueue(t *testing.T) {
	t.Parallel()
	c := newController(t, admission.Pythia, 10)
	submit(t, c, 0, "first", 10, 20*time.Second)
	finish(t, c, 10, "first", 100*time.Second) // rate 5/10
	if d := submit(t, c, 10, "runs", 16, 100*time.Second); d.Slots != 8 {
		t.Fatalf("%+v", d)
	}
	wide := submit(t, c, 10, "wide", 10, 100*time.Second) // needs 5 of 2
	small := submit(t, c, 10, "small", 6, 100*time.Second)
	short := submit(t, c, 10, "short", 8, 20*time.Second)
	if wide.Verdict != admission.Queued || small.Verdict != admission.Queued || short.Verdict != admission.Queued || wide.Need != 5 || small.Need != 3 {
		t.Fatalf("%+v %+v %+v", wide, small, short)
	}
	// Half of its deadline on all of its tasks: it has to begin within 10 s.
	if !short.Until.Equal(at(20)) {
		t.Errorf("until %v, want %v", short.Until, at(20))
	}
	tick, ok := c.NextTick()
	if !ok || tick.Sub(at(20)) > time.Millisecond {
		t.Fatalf("next tick %v", tick)
	}
	if d := find(t, c.Tick(tick), "short"); d.Verdict != admission.Refused || d.Nearest < 20*time.Second || d.Nearest > 20*time.Second+time.Millisecond {
		t.Errorf("%+v", d)
	}
	// At 50 s, 40 s have passed: 6 tasks need 6 * 0.5 * 100/60 = 5, 10 tasks 8.3.
	out, _ := finish(t, c, 50, "runs", 1)
	if d := find(t, out, "small"); d.Verdict != admission.Admitted || d.Slots != 5 {
		t.Errorf("%+v", d)
	}
	out, _ = finish(t, c, 51, "small", 1)
	if d := find(t, out, "wide"); d.Verdict != admission.Admitted || d.Slots != 9 {
		t.Errorf("%+v", d)
	}
}

// Until a job has ended, jobs get what is free; without a free slot they wait.
func TestPythiaBootstrap(t *testing.T) {
	t.Parallel()
	c := newController(t, admission.Pythia, 10)
	a, b := submit(t, c, 0, "a", 7, time.Minute), submit(t, c, 0, "b", 7, time.Minute)
	if a.Slots != 7 || b.Slots != 3 {
		t.Errorf("%v and %v slots", a.Slots, b.Slots)
	}
	if d := submit(t, c, 0, "c", 1, time.Minute); d.Verdict != admission.Queued {
		t.Errorf("%+v", d)
	}
}
