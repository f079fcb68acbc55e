// Claims: no deadline is promised, or waited for, that the fastest earlier run of the job could not meet on the slots that it
// can get; one that it could meet is not refused for that reason. Runs count for the same user, the same name and about the
// same input only.
package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/admission"
)

// earlierRuns draws runs as they can be: the longest chain fits into the runtime, and the work into the slots held.
func earlierRuns() *rapid.Generator[[]admission.Run] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) admission.Run {
		r := admission.Run{Slots: rapid.IntRange(1, 30).Draw(t, "slots"), Runtime: time.Duration(rapid.Float64Range(0.1, 60).Draw(t, "runtime") * 1e9)}
		r.Longest = time.Duration(rapid.Float64Range(0, 1).Draw(t, "longest") * float64(r.Runtime))
		r.Work = time.Duration(rapid.Float64Range(0, 1).Draw(t, "work") * float64(r.Runtime) * float64(r.Slots))
		return r
	}), 0, 4)
}

func TestNoDeadlineBelowTheFastestRun(t *testing.T) {
	t.Parallel()
	refused, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]admission.Policy{admission.Adaptive, admission.Pythia}).Draw(t, "policy")
		capacity := rapid.IntRange(1, 30).Draw(t, "capacity")
		c := testkit.Need(admission.New(policy, capacity))(t)
		for i := range rapid.IntRange(0, 5).Draw(t, "ended") { // others teach whatever they teach
			testkit.Check(t, c.Learn(admission.Job{ID: fmt.Sprint("e", i), Tasks: rapid.IntRange(1, 60).Draw(t, "their tasks"), Deadline: time.Minute}, time.Second))
		}
		in := admission.Job{ID: "a", Tasks: rapid.IntRange(1, 60).Draw(t, "tasks"), Deadline: time.Duration(rapid.Float64Range(0.1, 60).Draw(t, "deadline") * 1e9)}
		in.Earlier = earlierRuns().Draw(t, "earlier")
		// The slowest that the fastest run can have been, told anew: a run on as many slots or more bounds this one.
		slots := min(in.Tasks, capacity)
		hopeless := len(in.Earlier) > 0
		for _, r := range in.Earlier {
			hopeless = hopeless && r.Slots >= slots && r.Runtime > in.Deadline+time.Millisecond
		}
		d := testkit.Need(c.Ask(at(0), in, capacity, rapid.IntRange(0, 30).Draw(t, "others")))(t)
		if hopeless {
			refused++
			if d.Verdict != admission.Refused || d.Nearest > 0 && d.Nearest < in.Deadline {
				t.Fatalf("every earlier run on %d slots or more took longer than %s: %+v", slots, in.Deadline, d)
			}
			if _, ok := admission.Hopeless(at(0), in, capacity); !ok {
				t.Fatalf("%+v is not hopeless on %d slots", in, capacity)
			}
		}
		bare := in
		bare.Earlier = nil
		if plain := testkit.Need(c.Ask(at(0), bare, capacity, 0))(t); plain.Verdict == admission.Admitted && d.Verdict == admission.Admitted {
			taken++
			if d.Need < plain.Need {
				t.Fatalf("its earlier runs lower its need from %d to %d", plain.Need, d.Need)
			}
		}
	})
	if refused == 0 || taken == 0 {
		t.Errorf("%d refused, %d taken", refused, taken)
	}
}

func TestRefusalNamesTheFastestRun(t *testing.T) {
	t.Parallel()
	c := newController(t, admission.Adaptive, 2)
	in := admission.Job{ID: "a", Tasks: 4, Deadline: 3 * time.Second, Earlier: []admission.Run{
		{Slots: 2, Runtime: 8300 * time.Millisecond, Work: 16 * time.Second, Longest: 2 * time.Second},
		{Slots: 2, Runtime: 9 * time.Second, Work: 16 * time.Second, Longest: 2 * time.Second},
	}}
	d := testkit.Need(c.Ask(at(0), in, 2, 0))(t)
	if want := "the fastest of its 2 earlier runs would take 8.3s on the 2 slots that it can use; the shortest feasible deadline is 8.31s"; d.Reason() != want {
		t.Errorf("%s\nwant %s", d.Reason(), want)
	}
	// Twice the slots may halve it, no more: no task is shorter than before.
	in.Deadline = 4500 * time.Millisecond
	if d := testkit.Need(c.Ask(at(0), in, 4, 0))(t); d.Verdict != admission.Admitted || d.Need != 4 {
		t.Errorf("%+v", d)
	}
	in.Deadline = time.Second
	if d := testkit.Need(c.Ask(at(0), in, 400, 0))(t); d.Verdict != admission.Refused || !strings.Contains(d.Reason(), "would take 4s on the 4 slots") {
		t.Errorf("%s", d.Reason())
	}
}

func TestEarlier(t *testing.T) {
	t.Parallel()
	var e admission.Earlier
	ann := admission.Known{User: "ann", Name: "words"}
	whole := func(size int64) admission.Input { return admission.Input{Size: size, Part: 1} }
	run := admission.Run{Slots: 2, Runtime: 8 * time.Second, Work: 16 * time.Second, Longest: 2 * time.Second}
	e.Add(ann, whole(1000), run)
	e.Add(ann, whole(0), run)
	e.Add(admission.Known{User: "ann"}, whole(1000), run)
	e.Add(ann, whole(1000), admission.Run{Slots: 2})
	for name, c := range map[string]struct {
		known admission.Known
		in    admission.Input
		want  []admission.Run
	}{
		"the same":               {ann, whole(1000), []admission.Run{run}},
		"larger":                 {ann, whole(2000), []admission.Run{run}},
		"half":                   {ann, whole(500), []admission.Run{{Slots: 2, Runtime: 4 * time.Second, Work: 8 * time.Second, Longest: time.Second}}},
		"three quarters suffice": {ann, admission.Input{Size: 1000, Part: 0.75}, []admission.Run{{Slots: 2, Runtime: 6 * time.Second, Work: 12 * time.Second, Longest: 1500 * time.Millisecond}}},
		"too large":              {ann, whole(2001), nil},
		"too small":              {ann, whole(499), nil},
		"unknown":                {ann, whole(0), nil},
		"another user's":         {admission.Known{User: "bob", Name: "words"}, whole(1000), nil},
		"another name":           {admission.Known{User: "ann", Name: "word"}, whole(1000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := e.Of(c.known, c.in); !slices.Equal(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestEarlierIsBounded(t *testing.T) {
	t.Parallel()
	var e admission.Earlier
	in := admission.Input{Size: 1, Part: 1}
	for i := range 10_000 {
		k := admission.Known{User: "ann", Name: fmt.Sprint("job", i)}
		for range 3 {
			e.Add(k, in, admission.Run{Slots: 1, Runtime: time.Second})
		}
	}
	for range 20 {
		e.Add(admission.Known{User: "ann", Name: "job9999"}, in, admission.Run{Slots: 1, Runtime: time.Second})
	}
	if n := len(e.Of(admission.Known{User: "ann", Name: "job9999"}, in)); n != 8 {
		t.Errorf("%d runs of one name are kept", n)
	}
	if e.Of(admission.Known{User: "ann", Name: "job1"}, in) != nil || e.Of(admission.Known{User: "ann", Name: "job9998"}, in) == nil {
		t.Error("not the oldest name has gone")
	}
}
