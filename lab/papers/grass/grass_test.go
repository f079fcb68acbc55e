// Claims: the same seed gives the same numbers; every policy runs the same jobs with the same times of copies; estimates are
// as accurate as the paper's; the load has the paper's tail; targets report what is missing, and mistakes make them worse.
package grass

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"headroom/internal/leaks"
	"headroom/internal/testkit"
	"headroom/jobs/speculation"
	"headroom/lab/report"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m, os.Stderr)) }

// ran is a small study of some scenes.
func ran(t *testing.T, seed uint64, scenes ...string) []trial {
	t.Helper()
	s := study{jobs: 6, history: 36, scenes: scenes}
	trials, err := s.run(context.Background(), seed, 2, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return trials
}

func TestSameSeedSameNumbers(t *testing.T) {
	t.Parallel()
	if a, b := ran(t, 1, deadlinesFew, deadlinesCapped), ran(t, 1, deadlinesFew, deadlinesCapped); !same(a, b) {
		t.Errorf("%v, then %v", a, b)
	}
}

// same compares trials; what is unknown is NaN.
func same(a, b []trial) bool {
	return slices.EqualFunc(a, b, func(a, b trial) bool {
		return maps.EqualFunc(a, b, func(a, b result) bool { return fmt.Sprint(a) == fmt.Sprint(b) })
	})
}

// Whichever policy starts the k-th copy of a task, it takes the same time.
func TestCopiesAreAlike(t *testing.T) {
	t.Parallel()
	s := load(3, 6, nil)[1]
	s.draw()
	seen := map[float64]bool{}
	for task := range 5 {
		for k := range 3 {
			a, _ := s.copied(task, k)
			if b, _ := s.copied(task, k); a != b || seen[a] {
				t.Errorf("task %d, copy %d: %v, then %v", task, k, a, b)
			}
			seen[a] = true
		}
	}
}

// Times have a median as computed, the slowest is 8 medians, and the tail is the paper's, up to the cut.
func TestTimesArePareto(t *testing.T) {
	t.Parallel()
	s := spec{seed: 5, tasks: 20_000, width: 100}
	s.draw()
	var times []float64
	for i := range s.tasks {
		work, _ := s.copied(i, 0)
		times = append(times, work)
	}
	slices.Sort(times)
	if got := times[len(times)/2]; math.Abs(got/median()-1) > 0.03 {
		t.Errorf("median %v, want %v", got, median())
	}
	if got := times[len(times)-1]; got > slowestMost*median() || got < 7*median() || times[0] < unit {
		t.Errorf("from %v to %v, median %v", times[0], got, median())
	}
	// P(x > 2 x_m) of the cut tail.
	cut := math.Pow(slowestMost*median()/unit, -tail)
	want := (math.Pow(2, -tail) - cut) / (1 - cut)
	at, _ := slices.BinarySearch(times, 2*unit)
	if got := 1 - float64(at)/float64(len(times)); math.Abs(got-want) > 0.02 {
		t.Errorf("%v of the tasks take over twice the shortest, want %v", got, want)
	}
}

// Estimates of t_rem and t_new are about as accurate as the paper's, 72 and 76 %, where no copies change what ends.
func TestAccuracy(t *testing.T) {
	t.Parallel()
	var left, fresh, n float64
	jobs := load(11, 24, nil)
	for i := range jobs {
		sc := scenes()[0]
		o := testkit.Need(play(&jobs[i], variant{policy: speculation.None}, sc.promise(&jobs[i]), nil, sc.caps))(t)
		a, ok := o.left.Value()
		if b, ok2 := o.fresh.Value(); ok && ok2 {
			left, fresh, n = left+a, fresh+b, n+1
		}
	}
	if math.Abs(left/n-0.72) > 0.05 || math.Abs(fresh/n-0.76) > 0.05 {
		t.Errorf("accuracies %.3f and %.3f of %v jobs", left/n, fresh/n, n)
	}
}

// GRASS does more than LATE by the deadline, and the oracle more than all.
func TestOrder(t *testing.T) {
	t.Parallel()
	f := &figures{trials: ran(t, 21, deadlinesFew, deadlines)}
	if g := f.gain(deadlines, ras, late, everything); !(g.Mean > 0) {
		t.Errorf("RAS against LATE: %v", g)
	}
	if g := f.gain(deadlinesFew, oracle, grassName, everything); !(g.Mean > 0) {
		t.Errorf("the oracle against GRASS: %v", g)
	}
	for _, target := range f.targets() {
		missing := strings.HasPrefix(target.ID, "C2") || strings.HasPrefix(target.ID, "C3") || strings.HasPrefix(target.ID, "G2") || strings.HasPrefix(target.ID, "C9")
		if missing && target.Verdict != report.Short && target.Verdict != report.NotRun {
			t.Errorf("%s was not run and is %s", target.ID, target.Verdict)
		}
	}
}

// A mistake makes it worse: GS loses without copies.
func TestMistakeShows(t *testing.T) {
	t.Parallel()
	s := study{jobs: 6, history: 36, scenes: []string{deadlines}, only: []string{gs}, mistake: func(v *variant) { v.noCopies = true }}
	wrong, err := s.run(context.Background(), 31, 1, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.mistake = nil
	honest, err := s.run(context.Background(), 31, 1, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	k := key{deadlines, gs}
	if wrong[0][k].by[everything] >= honest[0][k].by[everything] {
		t.Errorf("%v, honest %v", wrong[0][k], honest[0][k])
	}
}

// Suffixes of a job are its samples.
func TestSamplesOfAJob(t *testing.T) {
	t.Parallel()
	o := outcome{took: 10, at: []float64{1, 4, 6, 9}}
	if o.within(5) != 2 || o.within(10) != 4 || o.last(2) != 6 || o.last(4) != 10 || o.last(1) != 4 {
		t.Errorf("%v %v %v %v %v", o.within(5), o.within(10), o.last(2), o.last(4), o.last(1))
	}
	testkit.Check(t, (&scene{}).add(speculation.NewSamples(speculation.AllFactors), &spec{tasks: 4, width: 2}, speculation.GS, o))
}

// Flags that make no sense, and folders without the trace.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--seeds", "0"}, "--seeds 0: must be from 1 to 1000"},
		{[]string{"--traces", t.TempDir()}, "--traces: "},
		{[]string{"--engine", "yarn"}, "--engine"},
	} {
		if exit, _, stderr := testkit.Run(t, NewCommand(), "", c.args...); exit != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, exit, stderr)
		}
	}
}
