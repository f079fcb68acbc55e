// Claim: the nearest deadline of a refusal would not be refused, asked at once with nothing else changed, and a shorter one
// would; also where what is expected of a job grows with its deadline, or the job has waited.
package admission_test

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
)

// policiesWithADoor are those that refuse.
var policiesWithADoor = []admission.Policy{admission.Adaptive, admission.Pythia, admission.Oracle}

func TestNearestIsTaken(t *testing.T) {
	t.Parallel()
	named := map[admission.Policy]int{}
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom(policiesWithADoor).Draw(t, "policy")
		c := testkit.Need(admission.New(policy, rapid.IntRange(1, 30).Draw(t, "capacity")))(t)
		now := 0.0
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Float64Range(0, 10).Draw(t, "pause")
			var running []string
			for id := range c.Running() {
				running = append(running, id)
			}
			var out []admission.Decision
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0:
				out = testkit.Need(c.SetCapacity(at(now), rapid.IntRange(0, 30).Draw(t, "slots")))(t)
			case what == 1:
				out = testkit.Need(c.SetOthers(at(now), rapid.IntRange(0, 30).Draw(t, "others")))(t)
			case what < 6 && len(running) > 0:
				work := time.Duration(rapid.Float64Range(0.1, 400).Draw(t, "worked") * 1e9)
				got, _, err := c.Finished(at(now), rapid.SampledFrom(running).Draw(t, "ended"), work)
				out = testkit.Need(got, err)(t)
			default:
				out = c.Tick(at(now))
			}
			in := admission.Job{
				ID: strconv.Itoa(i), Tasks: rapid.IntRange(1, 60).Draw(t, "tasks"), User: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "user"),
				Deadline: time.Duration(rapid.Float64Range(0.1, 100).Draw(t, "deadline") * 1e9), Work: time.Duration(rapid.Float64Range(0.1, 400).Draw(t, "work") * 1e9),
			}
			in.Waited = time.Duration(rapid.Float64Range(0, 1).Draw(t, "waited") * float64(in.Deadline))
			if rapid.Bool().Draw(t, "fresh") {
				in.Waited = 0
			}
			in.Earlier = earlierRuns().Draw(t, "earlier")
			out = append(out, testkit.Need(c.Submit(at(now), in))(t)...)
			if d := testkit.Need(admission.Of(out, in.ID))(t); d.Verdict == admission.Refused && d.Nearest > 0 {
				named[policy]++
				takes(t, c, now, in, d.Nearest)
			}
		}
	})
	for _, p := range policiesWithADoor {
		if named[p] == 0 {
			t.Errorf("%s named no deadline", p)
		}
	}
}

// takes asks about a refused job with its nearest deadline, with longer ones, and with a shorter one.
func takes(t *rapid.T, c *admission.Controller, now float64, in admission.Job, nearest time.Duration) {
	slots, others := c.Capacity()
	ask := func(deadline time.Duration) admission.Verdict {
		o := in
		o.Deadline = min(deadline, admission.TimeMost)
		return testkit.Need(c.Ask(at(now), o, slots, others))(t).Verdict
	}
	for _, longer := range []time.Duration{nearest, nearest + time.Millisecond, nearest + nearest/10, 3 * nearest} {
		if v := ask(longer); v != admission.Admitted && v != admission.Queued {
			t.Fatalf("%+v: the nearest deadline is %s, and %s is %s", in, nearest, longer, v)
		}
	}
	if shorter := nearest - nearest/1000 - time.Millisecond; shorter > in.Deadline {
		if v := ask(shorter); v != admission.Refused {
			t.Fatalf("%+v: the nearest deadline is %s, and %s is %s", in, nearest, shorter, v)
		}
	}
}

// A job that needs more slots than there are, whatever its deadline, is judged by how long tasks took before.
func TestNearestOfAWideJob(t *testing.T) {
	t.Parallel()
	c := newController(t, admission.Adaptive, 10)
	submit(t, c, 0, "first", 10, 20*time.Second)
	finish(t, c, 10, "first", 100*time.Second) // 10 s a task, half of its deadline
	d := submit(t, c, 10, "wide", 100, 20*time.Second)
	if d.Verdict != admission.Refused || d.Nearest < 200*time.Second || d.Nearest > 201*time.Second {
		t.Fatalf("%+v, want 100 tasks of at most twice 10 s on 10 slots to take 200 s", d)
	}
	if d := submit(t, c, 10, "again", 100, d.Nearest); d.Verdict != admission.Admitted || d.Slots != 10 {
		t.Errorf("%+v", d)
	}
}
