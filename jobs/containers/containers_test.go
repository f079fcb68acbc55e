// Claims: shares are whole, add up to the total and leave every job its least, by
// every policy and in any order of the jobs; the paper's numbers come out; the
// default's sum of delays is the least of all divisions; a job stops early only
// behind its uncapped finish time and its floor.
package containers_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"headroom/internal/testkit"
	"headroom/jobs/containers"
)

const second = time.Second

// example are the three jobs of the worked example: d = 150, 120, 95 s, D = 100 s.
func example() []containers.Job {
	jobs := []containers.Job{{Name: "a", Finish: 150 * second}, {Name: "b", Finish: 120 * second}, {Name: "c", Finish: 95 * second}}
	for i, held := range []int{10, 10, 8} {
		jobs[i].Known, jobs[i].Uncapped, jobs[i].Held = true, 100*second, held
	}
	return jobs
}

func allocate(t rapid.TB, p containers.Policy, total int, jobs []containers.Job) containers.Plan {
	t.Helper()
	return testkit.Need(containers.Allocate(p, total, jobs, containers.Settings{}))(t)
}

func whole(p containers.Plan) []int {
	var out []int
	for _, s := range p.Shares {
		out = append(out, s.Containers)
	}
	return out
}

// Equation (3) of the paper: shares in proportion to d/D, rounded by largest remainder.
func TestPaperEquation3(t *testing.T) {
	t.Parallel()
	plan := allocate(t, containers.Paper, 28, example())
	for i, want := range []float64{11.507, 9.205, 7.288} {
		if got := plan.Shares[i].Exact; math.Abs(got-want) > 0.0005 {
			t.Errorf("share %d: %.3f, want %.3f", i, got, want)
		}
	}
	if got := whole(plan); !slices.Equal(got, []int{12, 9, 7}) {
		t.Errorf("containers %v, want 12 9 7", got)
	}
}

// Fig. 3: a job that would end before (1-epsilon) D runs more tasks than its floor
// asks for, until it does not, or has no more.
func TestPaperLoop(t *testing.T) {
	t.Parallel()
	jobs := example()
	jobs[2].Finish, jobs[2].More, jobs[2].PerTask = 40*second, 100, second
	plan := allocate(t, containers.Paper, 28, jobs)
	if got := plan.Shares[2].Extra; got < 5 || got > 60 {
		t.Errorf("%d more tasks; at 95 s there is room for some, not for all", got)
	}
	for _, s := range plan.Shares[:2] {
		if s.Extra != 0 {
			t.Errorf("%s is late and runs %d more tasks", s.Name, s.Extra)
		}
	}
	jobs[2].More = 3
	if got := allocate(t, containers.Paper, 28, jobs).Shares[2].Extra; got != 3 {
		t.Errorf("%d more tasks of 3 that it has", got)
	}
}

// The published code: need = floor(c d/D) + 1; when the needs do not fit they are
// scaled; a job that has met its floor keeps 2.
func TestReleasedNeeds(t *testing.T) {
	t.Parallel()
	plan := allocate(t, containers.Released, 28, example())
	for i, want := range []float64{16, 13, 8} {
		if got := plan.Shares[i].Exact; got != want {
			t.Errorf("need %d: %v, want %v", i, got, want)
		}
	}
	if got := whole(plan); !slices.Equal(got, []int{13, 9, 6}) {
		t.Errorf("containers %v, want 13 9 6", got)
	}
	jobs := example()
	jobs[0].Met = true
	if got := whole(allocate(t, containers.Released, 28, jobs)); got[0] < 2 || got[0] > 4 {
		t.Errorf("containers %v: the first has met its floor", got)
	}
	if got := whole(allocate(t, containers.Released, 60, example())); got[0]-16 < 7 || got[0]-16 > 8 {
		t.Errorf("containers %v: what is left over goes round", got)
	}
}

// Largest remainder never takes a job below its least.
func TestRoundKeepsTheLeast(t *testing.T) {
	t.Parallel()
	jobs := example()
	for i := range jobs {
		jobs[i].Overhead, jobs[i].Held = 1, jobs[i].Held+1
	}
	jobs[2].Finish = second
	for _, p := range containers.Policies() {
		if got := whole(allocate(t, p, 7, jobs)); got[2] < 2 || got[0]+got[1]+got[2] != 7 {
			t.Errorf("%s: %v", p, got)
		}
	}
}

// Where even the least does not fit, the error names who goes without, the youngest.
func TestTooFew(t *testing.T) {
	t.Parallel()
	jobs := example()
	for i := range jobs {
		jobs[i].Overhead, jobs[i].Elapsed = 1, time.Duration(3-i)*second
	}
	_, err := containers.Allocate(containers.Stretch, 5, jobs, containers.Settings{})
	few, ok := errors.AsType[*containers.TooFewError](err)
	if !ok || few.Containers != 5 || few.Needed != 6 || !slices.Equal(few.Without, []string{"c"}) {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), "5 containers") || !strings.Contains(err.Error(), "c would get none") {
		t.Errorf("%v", err)
	}
}

// Senseless input is refused.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(jobs []containers.Job){
		"no name":   func(j []containers.Job) { j[0].Name = "" },
		"twice":     func(j []containers.Job) { j[0].Name = j[1].Name },
		"negative":  func(j []containers.Job) { j[0].Held = -1 },
		"no finish": func(j []containers.Job) { j[0].Finish = 0 },
		"exponent":  func(j []containers.Job) { j[0].Beta = 1.5 },
		"no D":      func(j []containers.Job) { j[0].Uncapped = 0 },
	} {
		jobs := example()
		spoil(jobs)
		if _, err := containers.Allocate(containers.Stretch, 28, jobs, containers.Settings{}); !errors.Is(err, containers.ErrJob) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := containers.Allocate("best", 28, example(), containers.Settings{}); !errors.Is(err, containers.ErrPolicy) {
		t.Errorf("%v", err)
	}
	if plan := allocate(t, containers.Paper, 28, nil); len(plan.Shares) != 0 {
		t.Errorf("nobody got %v", plan.Shares)
	}
}

// drawJobs are n jobs as they may be, with any knowledge about them.
func drawJobs(t *rapid.T, n int) []containers.Job {
	var jobs []containers.Job
	for i := range n {
		overhead := rapid.IntRange(0, 1).Draw(t, "overhead")
		elapsed := time.Duration(rapid.IntRange(0, 300).Draw(t, "elapsed")) * second
		jobs = append(jobs, containers.Job{
			Name: string(rune('a' + i)), Held: rapid.IntRange(0, 12).Draw(t, "held"), Overhead: overhead,
			Least: rapid.IntRange(0, 2).Draw(t, "least"), Most: rapid.IntRange(0, 9).Draw(t, "most"),
			Known: rapid.IntRange(0, 4).Draw(t, "known") > 0, Elapsed: elapsed,
			Finish:   elapsed + time.Duration(rapid.IntRange(1, 400).Draw(t, "left"))*second,
			Uncapped: time.Duration(rapid.IntRange(1, 500).Draw(t, "uncapped")) * second,
			More:     rapid.IntRange(0, 20).Draw(t, "more"), PerTask: time.Duration(rapid.IntRange(0, 9).Draw(t, "each")) * second,
			Met: rapid.Bool().Draw(t, "met"), Beta: rapid.SampledFrom([]float64{0, 0.8, 0.5}).Draw(t, "beta"),
		})
	}
	return jobs
}

// Whatever the jobs: the sum is exact, nobody is below its least, and the order of
// the jobs does not matter.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, rapid.IntRange(1, 8).Draw(t, "jobs"))
		least := 0
		for _, j := range jobs {
			least += max(j.Least, j.Overhead+1)
		}
		total := least + rapid.IntRange(0, 40).Draw(t, "spare")
		p := rapid.SampledFrom(containers.Policies()).Draw(t, "policy")
		plan := allocate(t, p, total, jobs)
		sum := 0
		for i, s := range plan.Shares {
			sum += s.Containers
			if s.Containers < max(jobs[i].Least, jobs[i].Overhead+1) || s.Extra > jobs[i].More || s.Name != jobs[i].Name {
				t.Fatalf("%s: %+v for %+v", p, s, jobs[i])
			}
		}
		if sum != total {
			t.Fatalf("%s: %d containers of %d", p, sum, total)
		}
		if got := containers.StretchOf(total, jobs, whole(plan)); math.Abs(got-plan.Stretch) > 1e-9*(1+got) {
			t.Fatalf("%s: stretch %v, counted again %v", p, plan.Stretch, got)
		}
		back := slices.Clone(jobs)
		slices.Reverse(back)
		again := allocate(t, p, total, back)
		slices.Reverse(again.Shares)
		if !slices.Equal(plan.Shares, again.Shares) {
			t.Fatalf("%s: %v, in reverse %v", p, plan.Shares, again.Shares)
		}
	})
}

// The default takes nobody's equal share who is late without it, and of all divisions that do not, tried one by one,
// none has a smaller sum of delays; speeds follow containers less than in proportion too.
func TestStretchIsTheLeast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		jobs := drawJobs(t, rapid.IntRange(1, 4).Draw(t, "jobs"))
		least := 0
		for i := range jobs {
			jobs[i].Known = true
			least += max(jobs[i].Least, jobs[i].Overhead+1)
		}
		total := least + rapid.IntRange(0, 9).Draw(t, "spare")
		s := containers.Settings{Epsilon: -1}
		plan := testkit.Need(containers.Allocate(containers.Stretch, total, jobs, s))(t)
		fair, wrong := false, wronged(jobs, total, whole(plan))
		try(jobs, total, make([]int, len(jobs)), 0, func(given []int) {
			if wronged(jobs, total, given) {
				return
			}
			fair = true
			if other := containers.StretchOf(total, jobs, given); !wrong && other < plan.Stretch-1e-9*(1+plan.Stretch) {
				t.Fatalf("%v gives %v, %v only %v", whole(plan), plan.Stretch, given, other)
			}
		})
		if wrong && fair {
			t.Fatalf("%v leaves a job late with less than an equal share", whole(plan))
		}
	})
}

// wronged reports whether a division leaves a job with less than its equal share, though it is late and could use more.
// The odd containers are those of the jobs that hold most.
func wronged(jobs []containers.Job, total int, given []int) bool {
	share, odd := total/len(jobs), total%len(jobs)
	hold := func(j containers.Job) int {
		if j.Held == 0 {
			j.Held = max(1, share)
		}
		return max(j.Held, j.Overhead+1)
	}
	for i, j := range jobs {
		before := 0
		for k, other := range jobs {
			if hold(other) > hold(j) || hold(other) == hold(j) && k < i {
				before++
			}
		}
		even := share
		if before < odd {
			even++
		}
		late := containers.StretchOf(max(1, share), jobs[i:i+1], given[i:i+1]) > 1e-9
		if given[i] < even && late && (j.Most == 0 || given[i] < j.Most) {
			return true
		}
	}
	return false
}

// try calls f with every division of left containers among the jobs from at on.
func try(jobs []containers.Job, left int, given []int, at int, f func([]int)) {
	least := max(jobs[at].Least, jobs[at].Overhead+1)
	if at == len(jobs)-1 {
		if given[at] = left; left >= least {
			f(given)
		}
		return
	}
	for n := least; n <= left; n++ {
		given[at] = n
		try(jobs, left-n, given, at+1, f)
	}
}

// Ending early counts nothing: the job that can end in time on its floor gets no more
// than that needs while another is late, and what is left over goes to quality.
func TestStretchSparesTheTolerant(t *testing.T) {
	t.Parallel()
	jobs := []containers.Job{
		{Name: "exact", Held: 14, Known: true, Finish: 160 * second, Uncapped: 100 * second},
		{Name: "tolerant", Held: 14, Known: true, Finish: 40 * second, Uncapped: 100 * second, More: 30, PerTask: second},
	}
	if got := whole(allocate(t, containers.Stretch, 28, jobs)); got[1] != 6 {
		t.Errorf("%v: 6 containers end the tolerant one at 93 s, 5 at 112 s", got)
	}
	plan := allocate(t, containers.Stretch, 48, jobs)
	if got := whole(plan); got[0] < 24 || got[1] < 11 || plan.Shares[1].Extra != 30 {
		t.Errorf("%v: 24 end the exact one at 93 s, 11 the other with all its tasks at 89 s; it aims at %d", got, plan.Shares[1].Extra)
	}
}

// A job whose end is unknown gets its equal share.
func TestUnknownIsEqual(t *testing.T) {
	t.Parallel()
	for _, p := range containers.Policies() {
		if got := whole(allocate(t, p, 30, []containers.Job{{Name: "a"}, {Name: "b"}, {Name: "c"}})); !slices.Equal(got, []int{10, 10, 10}) {
			t.Errorf("%s: %v", p, got)
		}
	}
	jobs := example()
	jobs[1].Known = false
	if got := whole(allocate(t, containers.Stretch, 28, jobs)); got[1] != 9 {
		t.Errorf("%v: a third of 28 is 9", got)
	}
}

// Fair is what a fair scheduler gives: what a job cannot use goes to the others.
func TestFairFills(t *testing.T) {
	t.Parallel()
	jobs := []containers.Job{{Name: "a", Most: 3}, {Name: "b"}, {Name: "c"}}
	if got := whole(allocate(t, containers.Fair, 27, jobs)); !slices.Equal(got, []int{3, 12, 12}) {
		t.Errorf("%v", got)
	}
}

// The least number of tasks is the floor rounded up, whatever floating point makes of it.
func TestMinTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n     int
		floor float64
		want  int
	}{{40, 0.7, 28}, {50, 0.9, 45}, {3, 0.5, 2}, {7, 1, 7}, {7, 0, 7}, {7, 1.5, 7}, {7, math.NaN(), 7}, {0, 0.5, 0}, {9, 1e-12, 1}} {
		if got := containers.MinTasks(c.n, c.floor); got != c.want {
			t.Errorf("%d tasks at %v: %d, want %d", c.n, c.floor, got, c.want)
		}
	}
}

// A job may stop behind its uncapped finish time and once its least tasks are done or run, never before.
func TestMayStop(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50).Draw(t, "tasks")
		done := rapid.IntRange(0, n).Draw(t, "done")
		running := rapid.IntRange(0, n-done).Draw(t, "running")
		least := containers.MinTasks(n, rapid.Float64Range(0, 1).Draw(t, "floor"))
		aim := rapid.IntRange(0, n).Draw(t, "aim")
		elapsed := time.Duration(rapid.IntRange(0, 9).Draw(t, "elapsed")) * second
		uncapped := time.Duration(rapid.IntRange(0, 9).Draw(t, "uncapped")) * second
		sure := done + running
		if containers.MayStop(elapsed, uncapped, n, done, running, least, aim) && (sure < least || sure < aim || elapsed <= uncapped || uncapped == 0 || done == n) {
			t.Fatalf("stopped at %v of D %v with %d of %d done and %d running, least %d, aim %d", elapsed, uncapped, done, n, running, least, aim)
		}
	})
	for _, done := range []int{5, 3, 0} {
		if !containers.MayStop(11*second, 10*second, 10, done, 5-done, 5, 0) {
			t.Errorf("behind D it may stop with %d tasks done and the rest of its floor running", done)
		}
	}
}

// A new division replaces the old one when it moves enough or gains enough, and not
// too soon.
func TestDamping(t *testing.T) {
	t.Parallel()
	d := containers.DefaultDamping()
	for name, c := range map[string]struct {
		since         time.Duration
		old, now      []int
		before, after float64
		want          bool
	}{
		"moves two":            {20 * second, []int{10, 10}, []int{12, 8}, 1, 0.98, true},
		"moves two for naught": {20 * second, []int{10, 10}, []int{12, 8}, 1, 0.995, false},
		"moves one, no gain":   {20 * second, []int{10, 10}, []int{11, 9}, 1, 0.95, false},
		"moves one, gains":     {20 * second, []int{10, 10}, []int{11, 9}, 1, 0.8, true},
		"too soon":             {19 * second, []int{10, 10}, []int{20, 0}, 1, 0, false},
		"nothing moves":        {time.Hour, []int{10, 10}, []int{10, 10}, 1, 0, false},
		"no delay before":      {time.Hour, []int{10, 10}, []int{11, 9}, 0, 0, false},
		"the first loses two":  {time.Hour, []int{10, 10}, []int{8, 12}, 0, 0, true},
	} {
		if got := d.Worth(c.since, c.old, c.now, c.before, c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Each policy says what it does.
func TestPolicies(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, p := range containers.Policies() {
		if seen[p.Sentence()] {
			t.Errorf("%s: %q", p, p.Sentence())
		}
		seen[p.Sentence()] = true
	}
	if containers.Fair.Sets() || !containers.Stretch.Sets() {
		t.Error("only fair leaves the shares to the engine")
	}
	if got := containers.QueueFloors(); !slices.Equal(got, []float64{1, 0.75, 0.5}) {
		t.Errorf("%v", got)
	}
}
