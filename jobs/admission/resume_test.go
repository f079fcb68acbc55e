// Claims: asking changes nothing and foretells what Submit decides; a job that comes from another controller keeps its
// slots and its deadline, within the capacity; what others have learned counts.
package admission_test

import (
	"errors"
	"reflect"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
)

func TestAskChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom(admission.Policies()).Draw(t, "policy")
		capacity := rapid.IntRange(0, 12).Draw(t, "capacity")
		asked, other := testkit.Need(admission.New(policy, capacity))(t), testkit.Need(admission.New(policy, capacity))(t)
		now, open := 0.0, []string{}
		both := func(do func(c *admission.Controller) []admission.Decision) {
			if a, b := do(asked), do(other); !reflect.DeepEqual(a, b) {
				t.Fatalf("with asking %+v, without %+v", a, b)
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Float64Range(0, 5).Draw(t, "pause")
			in := admission.Job{
				ID: strconv.Itoa(i), Tasks: rapid.IntRange(1, 8).Draw(t, "tasks"), Waited: time.Duration(rapid.IntRange(0, 3).Draw(t, "waited")) * time.Second,
				Deadline: time.Duration(rapid.IntRange(1, 40).Draw(t, "deadline")) * time.Second, Work: time.Duration(rapid.IntRange(1, 60).Draw(t, "work")) * time.Second,
			}
			slots, others := asked.Capacity()
			foretold := testkit.Need(asked.Ask(at(now), in, slots, others))(t)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				open = append(open, in.ID)
				both(func(c *admission.Controller) []admission.Decision {
					out := testkit.Need(c.Submit(at(now), in))(t)
					if d := testkit.Need(admission.Of(out, in.ID))(t); !reflect.DeepEqual(d, foretold) {
						t.Fatalf("foretold %+v, decided %+v", foretold, d)
					}
					return out
				})
			case 2:
				slots := rapid.IntRange(0, 12).Draw(t, "slots")
				both(func(c *admission.Controller) []admission.Decision {
					return testkit.Need(c.SetCapacity(at(now), slots))(t)
				})
			case 3:
				slots := rapid.IntRange(0, 12).Draw(t, "others")
				both(func(c *admission.Controller) []admission.Decision {
					return testkit.Need(c.SetOthers(at(now), slots))(t)
				})
			default:
				if len(open) == 0 {
					continue
				}
				id := rapid.SampledFrom(open).Draw(t, "who")
				work := time.Duration(rapid.IntRange(0, 60).Draw(t, "had")) * time.Second
				both(func(c *admission.Controller) []admission.Decision {
					out, _, err := c.Finished(at(now), id, work)
					if err != nil && !errors.Is(err, admission.ErrUnknown) {
						t.Fatal(err)
					}
					return out
				})
			}
		}
	})
}

// A job that runs already keeps its slots as far as there are any, gets them back when the capacity comes back, and its
// deadline counts from its submission.
func TestResumedJobKeepsPromise(t *testing.T) {
	t.Parallel()
	for _, policy := range []admission.Policy{admission.Adaptive, admission.Pythia} {
		c := testkit.Need(admission.New(policy, 3))(t)
		in := admission.Job{ID: "a", Tasks: 8, Deadline: time.Minute, Waited: 20 * time.Second}
		out := testkit.Need(c.Resume(at(0), in, 5))(t)
		d := testkit.Need(admission.Of(out, "a"))(t)
		if slots, runs := c.Promised("a"); !runs || slots != 3 || d.Slots > 3 || !d.Due.Equal(at(40)) {
			t.Errorf("%s: %d slots, %+v", policy, slots, d)
		}
		testkit.Need(c.SetCapacity(at(1), 8))(t)
		held := 0.0
		for _, slots := range c.Running() {
			held += slots
		}
		if held < 5 {
			t.Errorf("%s: %v slots of the 5 came back", policy, held)
		}
		if _, met, err := c.Finished(at(41), "a", time.Second); err == nil && met {
			t.Errorf("%s: met a deadline that had passed", policy)
		}
		if _, err := c.Resume(at(42), admission.Job{ID: "b", Tasks: 1, Deadline: time.Second}, -1); !errors.Is(err, admission.ErrJob) {
			t.Errorf("%s: less than nothing: %v", policy, err)
		}
	}
}

// Policies that share need no number of slots for a job, whether it is submitted or resumed.
func TestResumedJobShares(t *testing.T) {
	t.Parallel()
	for _, policy := range []admission.Policy{admission.NoDrop, admission.Reactive} {
		a, b := testkit.Need(admission.New(policy, 4))(t), testkit.Need(admission.New(policy, 4))(t)
		in := admission.Job{ID: "a", Tasks: 8, Deadline: time.Minute}
		submitted := testkit.Need(admission.Of(testkit.Need(a.Submit(at(0), in))(t), "a"))(t)
		resumed := testkit.Need(admission.Of(testkit.Need(b.Resume(at(0), in, 2))(t), "a"))(t)
		if !reflect.DeepEqual(submitted, resumed) || resumed.Need != 0 || resumed.Slots != 4 {
			t.Errorf("%s: submitted %+v, resumed %+v", policy, submitted, resumed)
		}
	}
}

// A job that comes when nothing is free pauses, and goes on when something is.
func TestResumedJobPauses(t *testing.T) {
	t.Parallel()
	for _, policy := range []admission.Policy{admission.Adaptive, admission.Pythia} {
		c := testkit.Need(admission.New(policy, 0))(t)
		testkit.Need(c.Resume(at(0), admission.Job{ID: "a", Tasks: 4, Deadline: time.Minute}, 2))(t)
		testkit.Need(c.SetCapacity(at(1), 4))(t)
		if slots, runs := c.Promised("a"); !runs || slots < 1 {
			t.Errorf("%s: %d slots", policy, slots)
		}
	}
}

func TestLearnedElsewhere(t *testing.T) {
	t.Parallel()
	for _, policy := range []admission.Policy{admission.Adaptive, admission.Pythia} {
		c := testkit.Need(admission.New(policy, 4))(t)
		in := admission.Job{ID: "a", Tasks: 4, Deadline: 10 * time.Second}
		testkit.Check(t, c.Learn(in, 20*time.Second))
		testkit.Check(t, c.Learn(in, 0))
		d := testkit.Need(c.Ask(at(0), in, 4, 0))(t)
		if d.Samples != 1 || d.Need != 2 || d.Work != 20*time.Second {
			t.Errorf("%s: %+v", policy, d)
		}
		if err := c.Learn(in, -1); !errors.Is(err, admission.ErrJob) {
			t.Errorf("%s: less than no work: %v", policy, err)
		}
	}
}
