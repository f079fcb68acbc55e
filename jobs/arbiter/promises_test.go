// Claims: a job keeps the containers that it was promised against those of its class, as far as that does not cost more than
// it gains, and never against a higher class; what is kept never exceeds the pool; a job with an error bound needs no more
// than what that asks for.
package arbiter_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/jobs/arbiter"
	"headroom/progress"
)

// fresh is a contender with so many tasks of 10 s that have not begun, submitted so long ago.
func fresh(c arbiter.Contender, tasks, age int) arbiter.Contender {
	c.Tasks, c.Running, c.Pending, c.Age, c.Elapsed = tasks, 0, tasks, time.Duration(age)*second, 1
	c.Outlook.Rest = rest(float64(tasks), 10)
	return c
}

// pledged is a contender with so many containers promised.
func pledged(c arbiter.Contender, containers int) arbiter.Contender {
	c.Promised = containers
	return c
}

func TestPromises(t *testing.T) {
	t.Parallel()
	// Of 40 containers, a came long before b: without a promise it uses them all.
	large, small := fresh(busy("a"), 400, 90), fresh(busy("b"), 40, 10)
	due := func(c arbiter.Contender, s int) arbiter.Contender {
		c.Deadline = time.Duration(s) * second
		return c
	}
	for name, x := range map[string]struct {
		jobs []arbiter.Contender
		want string
	}{
		"nothing is promised":            {[]arbiter.Contender{large, small}, "a:40 b:0"},
		"a promise is kept":              {[]arbiter.Contender{large, pledged(small, 10)}, "a:30 b:10"},
		"no more than it can use":        {[]arbiter.Contender{large, pledged(fresh(busy("b"), 4, 10), 10)}, "a:36 b:4"},
		"no more than the pool has":      {[]arbiter.Contender{large, pledged(small, 4000)}, "a:0 b:40"},
		"not against a higher class":     {[]arbiter.Contender{fresh(urgent("a"), 400, 1), pledged(small, 10)}, "a:40 b:0"},
		"from what that one leaves":      {[]arbiter.Contender{fresh(urgent("a"), 25, 1), fresh(busy("c"), 100, 90), pledged(fresh(busy("b"), 10, 10), 10)}, "a:25 c:5 b:10"},
		"not where others lose more":     {[]arbiter.Contender{due(fresh(busy("a"), 40, 90), 16), pledged(fresh(busy("b"), 800, 10), 20)}, "a:40 b:0"},
		"before a lower class that came": {[]arbiter.Contender{fresh(busy("a"), 400, 900), pledged(fresh(urgent("b"), 40, 1), 10)}, "b:40 a:0"},
		"two of them": {
			[]arbiter.Contender{large, pledged(small, 10), pledged(fresh(busy("c"), 40, 5), 20)}, "a:10 b:10 c:20",
		},
		"the first of them keeps its own": {
			[]arbiter.Contender{pledged(large, 30), pledged(small, 20)}, "a:30 b:10",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m arbiter.Movers
			if got := shares(m.Step(0, jointly(x.jobs...))); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
		})
	}
}

// What is foreseen follows from the promises that are kept.
func TestForeseenWithPromises(t *testing.T) {
	t.Parallel()
	left := func(id string, jobs ...arbiter.Contender) float64 {
		var m arbiter.Movers
		return m.Step(0, jointly(jobs...)).Foreseen[id].Left.Seconds()
	}
	near, large, small := fresh(busy("a"), 40, 200), fresh(busy("z"), 400, 90), fresh(busy("b"), 100, 10)
	high := fresh(urgent("a"), 400, 1)
	for name, x := range map[string]struct {
		got, want float64
	}{
		"by its place":                      {left("b", near, large, small), 540.0/4 + 5},
		"on what was promised":              {left("b", near, large, pledged(small, 20)), 100/2 + 5},
		"one that is nearly done":           {left("a", near, large, pledged(small, 20)), 10 + 5 + 10},
		"a large one":                       {left("z", near, large, pledged(small, 20)), 440.0/4 + 5 + 25},
		"not against a higher class":        {left("b", high, pledged(small, 20)), left("b", high, small)},
		"two promises do not exceed a pool": {left("c", near, large, pledged(small, 30), pledged(fresh(busy("c"), 40, 5), 30)), 40 + 5},
	} {
		if math.Abs(x.got-x.want) > 0.01 {
			t.Errorf("%s: %v s, want %v", name, x.got, x.want)
		}
	}
}

// However much is promised: shares fit the pool, a promise changes nothing of what higher classes get, and what a job gets
// with a promise is no less than what it gets without.
func TestPromiseLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t)
		pool := arbiter.Pool{Containers: rapid.IntRange(0, 100).Draw(t, "containers"), Overhead: rapid.IntRange(0, 2).Draw(t, "overhead")}
		at := rapid.IntRange(0, len(jobs)-1).Draw(t, "job")
		for i := range jobs {
			jobs[i].Deadline = 0
			if i != at && rapid.Bool().Draw(t, "promised") {
				jobs[i].Promised = rapid.IntRange(1, 60).Draw(t, "containers promised")
			}
		}
		step := func(jobs []arbiter.Contender) map[string]int {
			var m arbiter.Movers
			look := jointly(jobs...)
			look.Pools[""] = pool
			out, sum := map[string]int{}, 0
			for _, s := range m.Step(0, look).Divisions[""].Shares {
				out[s.ID] = s.Containers
				sum += s.Containers
			}
			if sum > pool.Containers {
				t.Fatalf("%d containers of %+v are shared out", sum, pool)
			}
			return out
		}
		without := step(jobs)
		more := slices.Clone(jobs)
		more[at].Promised = rapid.IntRange(1, 100).Draw(t, "promise")
		with := step(more)
		for _, c := range jobs {
			if c.Rank < jobs[at].Rank && with[c.ID] < without[c.ID] {
				t.Fatalf("%s of a higher class has %d instead of %d", c.ID, with[c.ID], without[c.ID])
			}
		}
		if id := jobs[at].ID; with[id] < without[id] {
			t.Fatalf("%s has %d with a promise, and %d without", id, with[id], without[id])
		}
	})
}

// A promise at the margin does not turn from look to look while estimates are noisy.
func TestPromisesDoNotSwing(t *testing.T) {
	t.Parallel()
	var m arbiter.Movers
	turns, last := 0, -1
	for step := range 200 {
		a := fresh(busy("a"), 100, 90)
		b := pledged(fresh(busy("b"), 48+step%5, 10), 20) // at 50 the promise costs as much as it gains
		for _, s := range m.Step(time.Duration(step)*every, jointly(a, b)).Divisions[""].Shares {
			if s.ID == "b" {
				if last >= 0 && (s.Containers > 0) != (last > 0) {
					turns++
				}
				last = s.Containers
			}
		}
	}
	if turns > 2 {
		t.Errorf("the promise was kept and broken %d times", turns)
	}
}

// What is expected of a job with an error bound is when that is met.
func TestErrorBoundEnds(t *testing.T) {
	t.Parallel()
	finish := func(e float64) (at float64, left float64, aim int) {
		var a arbiter.Arbiter
		in := arbiter.Input{Settings: arbiter.DefaultSettings(), Containers: 20}
		in.Settings.Joint = true
		var o arbiter.Outlook
		for i := range 10 {
			done := 10 * i
			in.Jobs = []arbiter.Job{{
				ID: "a", Tasks: 200, Done: done, Running: 20, Pending: 180 - done, Work: float64(done) + 1, Reduced: -1, Phase: progress.Map, Elapsed: time.Duration(5*i+1) * second,
				Floor: 1 - e, Held: 20, Power: 200 * watt, Full: full, ByRatio: true, Error: e,
			}}
			o = a.Step(time.Duration(5*i)*second, in).Outlooks[0]
		}
		return o.Finish.At.Seconds(), o.Rest.Work, o.AimTasks
	}
	all, work, aim := finish(0)
	part, less, fewer := finish(0.25)
	if part >= all || math.Abs(work-less-50) > 1 || aim != 200 || fewer != 150 {
		t.Errorf("all tasks end at %v s with %v left, and %d are aimed at; with an error bound of a quarter %v s, %v and %d", all, work, aim, part, less, fewer)
	}
}

// A job with an error bound needs what that asks for, also where it was not told how many tasks are left.
func TestErrorBound(t *testing.T) {
	t.Parallel()
	bound := func(e float64, containers int) arbiter.Moves {
		var m arbiter.Movers
		c := fresh(busy("a"), 100, 1)
		c.Floor, c.ErrorBound, c.Outlook.Rest.Known = 1-e, e, false
		look := jointly(c, fresh(busy("b"), 100, 0))
		look.Pools[""] = arbiter.Pool{Containers: containers}
		return m.Step(0, look)
	}
	exact, loose := bound(0, 40), bound(0.3, 40)
	if a, b := exact.Foreseen["a"].Left, loose.Foreseen["a"].Left; b >= a {
		t.Errorf("with an error bound it ends in %v, without in %v", b, a)
	}
	if got := shares(bound(0.3, 100)); got != "a:70 b:30" {
		t.Errorf("%s", got)
	}
	if len(loose.Deflates) > 0 {
		t.Errorf("it gives up tasks beside what its bound leaves out: %+v", loose.Deflates)
	}
	// Once the bound is met, what has not begun is dropped: 20 of the last 30 tasks.
	for running, want := range map[int]float64{11: 0, 10: 0.2} {
		var m arbiter.Movers
		c := fresh(busy("a"), 100, 1)
		c.Floor, c.ErrorBound, c.Running, c.Pending = 0.7, 0.3, running, 20
		out := m.Step(0, jointly(c))
		if got := len(out.Deflates) > 0; got != (want > 0) || got && math.Abs(out.Deflates[0].Theta-want) > 1e-9 {
			t.Errorf("with %d tasks running: %+v", running, out.Deflates)
		}
	}
}
