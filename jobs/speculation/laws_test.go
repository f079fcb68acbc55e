// Claims: whatever the view, a policy gives at most one action a slot, to tasks that there are and in the right state;
// the answer is the same every time; no policy beats the oracle; bad input is an error with its place; one decision
// for 10,000 tasks takes less than 100 us (a benchmark).
package speculation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// drawn is a view of up to so many tasks.
func drawn(t *rapid.T, tasks int) View {
	v := View{Slots: rapid.IntRange(0, 4).Draw(t, "slots")}
	if v.Bound.ByDeadline = rapid.Bool().Draw(t, "by deadline"); v.Bound.ByDeadline {
		v.Bound.Left = time.Duration(rapid.IntRange(0, 12).Draw(t, "left")) * second
	} else {
		v.Bound.Error = rapid.Float64Range(0, 1).Draw(t, "error")
		v.Bound.Ceil = rapid.Bool().Draw(t, "ceil")
	}
	for id := range rapid.IntRange(1, tasks).Draw(t, "tasks") {
		x := Task{ID: id, State: State(rapid.IntRange(0, 2).Draw(t, "state")), New: time.Duration(rapid.IntRange(1, 5).Draw(t, "new")) * second}
		if x.State == Running {
			x.Copies = rapid.IntRange(1, 2).Draw(t, "copies")
			x.Remaining = time.Duration(rapid.IntRange(0, 9).Draw(t, "left")) * second
			x.Speed = rapid.Float64Range(0, 1).Draw(t, "speed")
			x.Measured = rapid.Float64Range(0, 1).Draw(t, "measured")
		}
		v.Tasks = append(v.Tasks, x)
	}
	if rapid.Bool().Draw(t, "capped") {
		for range v.Slots {
			v.Speeds = append(v.Speeds, rapid.Float64Range(0.01, 1).Draw(t, "slot's speed"))
		}
	}
	return v
}

func TestActionsFitTheView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawn(t, 12)
		p := rapid.SampledFrom(slices.DeleteFunc(Policies(), func(p Policy) bool { return p == Oracle })).Draw(t, "policy")
		before := slices.Clone(v.Tasks)
		got := decide(t, p, v)
		if again := decide(t, p, v); !reflect.DeepEqual(got, again) || !reflect.DeepEqual(before, v.Tasks) {
			t.Fatalf("%s: %v, then %v; tasks %v, then %v", p, got, again, before, v.Tasks)
		}
		if len(got) > v.Slots || v.Slots > 0 && len(got) == 0 {
			t.Fatalf("%s: %d actions for %d slots", p, len(got), v.Slots)
		}
		seen := map[int]bool{}
		for i, a := range got {
			if a.Kind == Wait {
				if i != len(got)-1 {
					t.Fatalf("%s: waits before the last: %v", p, got)
				}
				continue
			}
			x := v.Tasks[a.Task]
			launched := seen[a.Task]
			if a.Kind == Launch && (x.State != Waiting || launched) || a.Kind == Copy && x.State != Running && !launched {
				t.Fatalf("%s: %v of %+v in %v", p, a, x, got)
			}
			if knows := p != LATE && p != Mantri; knows && v.Bound.ByDeadline && x.New > v.Bound.Left {
				t.Fatalf("%s: %v cannot end in time", p, a)
			}
			if p == None && a.Kind == Copy {
				t.Fatalf("%s: %v", p, got)
			}
			seen[a.Task] = true
		}
	})
}

// Our copies never run on a node capped harder than the original's.
func TestOursCopiesToFasterNodes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawn(t, 12)
		for _, a := range decide(t, Ours, v) {
			x := v.Tasks[max(0, a.Task)]
			if a.Kind == Copy && x.State == Running && percent(v.slotSpeed(a.Slot)) < percent(speedOr1(x.Speed)) {
				t.Fatalf("%v from speed %v to %v", a, x.Speed, v.slotSpeed(a.Slot))
			}
		}
	})
}

func speedOr1(s float64) float64 {
	if s == 0 {
		return 1
	}
	return s
}

// A capped node is known as a straggler before its progress shows it; a slot on a node
// that is capped harder gets no copy.
func TestOursKnowsCaps(t *testing.T) {
	t.Parallel()
	straggler := running(1, 3, 3)
	straggler.Speed, straggler.Measured = 0.3, 1
	v := View{Bound: Bound{ByDeadline: true, Left: 7 * second}, Slots: 1, Tasks: []Task{straggler, waiting(2, 3)}}
	if got := decide(t, RAS, v); got[0] != (Action{Kind: Launch, Task: 2}) {
		t.Errorf("RAS: %v", got)
	}
	// It would end after 10 s.
	if got := decide(t, Ours, v); got[0] != (Action{Kind: Copy, Task: 1}) {
		t.Errorf("ours: %v", got)
	}
	// In time a slow slot is not given up for a fast one.
	v.Bound.Left = 11 * second
	if got := decide(t, Ours, v); got[0] != (Action{Kind: Launch, Task: 2}) {
		t.Errorf("ours, in time: %v", got)
	}
	v.Bound, v.Speeds = Bound{}, []float64{0.29}
	if got := decide(t, Ours, v); got[0] != (Action{Kind: Launch, Task: 2}) {
		t.Errorf("ours, harder capped: %v", got)
	}
	// The faster slot gets the copy, whatever its place.
	v.Slots, v.Speeds, v.Greedy = 2, []float64{0.29, 1}, true
	if got := decide(t, Ours, v); !reflect.DeepEqual(got, []Action{{Kind: Copy, Task: 1, Slot: 1}, {Kind: Launch, Task: 2, Slot: 0}}) {
		t.Errorf("ours, two slots: %v", got)
	}
}

func TestNoPolicyBeatsTheOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawn(t, 5)
		v.Slots, v.Speeds = max(1, min(2, v.Slots)), nil
		for i := range v.Tasks {
			v.Tasks[i].Speed, v.Tasks[i].Measured = 0, 0
		}
		best, err := v.Search()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range Policies() {
			if p == Oracle {
				continue
			}
			done, end := play(t, p, v)
			if v.Bound.ByDeadline && done > best.Done || !v.Bound.ByDeadline && end < best.End {
				t.Fatalf("%s: %d done at %v, the oracle %+v", p, done, end, best)
			}
		}
		if done, end := play(t, Oracle, v); v.Bound.ByDeadline && done != best.Done || !v.Bound.ByDeadline && end != best.End {
			t.Fatalf("the oracle's own first actions lead to %d at %v, not to %+v", done, end, best)
		}
	})
}

func TestCheckNamesThePlace(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*View){
		"no tasks":                             func(v *View) { v.Tasks = nil },
		"slots is -1":                          func(v *View) { v.Slots = -1 },
		"the deadline passed 1s ago":           func(v *View) { v.Bound = Bound{ByDeadline: true, Left: -second} },
		"the deadline is":                      func(v *View) { v.Bound = Bound{ByDeadline: true, Left: TimeMost + 1} },
		"error is 1.5":                         func(v *View) { v.Bound.Error = 1.5 },
		"error is NaN":                         func(v *View) { v.Bound.Error = math.NaN() },
		"2 speeds for 1 slots":                 func(v *View) { v.Speeds = []float64{1, 1} },
		"speeds[0] is 0":                       func(v *View) { v.Speeds = []float64{0} },
		"durations[1] is 1":                    func(v *View) { v.Durations = []float64{2, 1} },
		"utilisation 2":                        func(v *View) { v.Utilisation = 2 },
		"tasks[1]: ID 1 after 1":               func(v *View) { v.Tasks[1].ID = 1 },
		"tasks[1]: t_new is -1s":               func(v *View) { v.Tasks[1].New = -second },
		"tasks[0]: t_rem is":                   func(v *View) { v.Tasks[0].Remaining = math.MaxInt64 },
		"tasks[1]: 1 copies of a waiting task": func(v *View) { v.Tasks[1].Copies = 1 },
		"tasks[0]: 1001 copies":                func(v *View) { v.Tasks[0].Copies = 1001 },
		"tasks[0]: rate is +Inf":               func(v *View) { v.Tasks[0].Rate = math.Inf(1) },
		"tasks[0]: speeds NaN":                 func(v *View) { v.Tasks[0].Speed = math.NaN() },
		"tasks[0]: state 7 is unknown":         func(v *View) { v.Tasks[0].State = 7 },
		"no task has an estimate":              func(v *View) { v.Tasks[0].New, v.Tasks[1].New = 0, 0 },
		"typical -1s and width 0 must be":      func(v *View) { v.Typical = -second },
	} {
		v := View{Slots: 1, Tasks: []Task{running(1, 2, 1), waiting(2, 1)}}
		change(&v)
		if _, err := Decide(GS, v, nil); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Decide("best", View{Slots: 1, Tasks: []Task{waiting(1, 1)}}, nil); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	if _, err := ParsePolicy("best"); !errors.Is(err, ErrInput) {
		t.Error(err)
	}
	var many View
	for id := range searchTasksMost + 1 {
		many.Tasks = append(many.Tasks, waiting(id, 1))
	}
	if _, err := many.Search(); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// Missing estimates have their fallbacks, and a job whose tasks all straggle is a job.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	unknown := Task{ID: 1, State: Running, Remaining: -1}
	v := View{Slots: 1, Tasks: []Task{unknown, {ID: 2}, waiting(3, 4)}}
	for p, want := range map[Policy]Action{GS: {Kind: Launch, Task: 2}, RAS: {Kind: Launch, Task: 2}, Mantri: {Kind: Launch, Task: 2}, None: {Kind: Launch, Task: 2}} {
		if got := decide(t, p, v); got[0] != want {
			t.Errorf("%s: %v", p, got)
		}
	}
	all := View{Slots: 3, Tasks: []Task{running(1, 100, 1), running(2, 300, 1), running(3, 200, 1)}}
	for _, p := range Policies() {
		got := decide(t, p, all)
		if p == None && got[0].Kind != Wait || p != None && got[0].Kind != Copy {
			t.Errorf("%s: %v", p, got)
		}
	}
	if got := decide(t, RAS, all); !reflect.DeepEqual(got, []Action{{Copy, 2, 0}, {Copy, 3, 1}, {Copy, 1, 2}}) {
		t.Errorf("the greatest saving first: %v", got)
	}
	// LATE: one copy, of the slowest.
	if got := decide(t, LATE, all); !reflect.DeepEqual(got, []Action{{Copy, 2, 0}, {Wait, 0, 1}}) {
		t.Errorf("LATE: %v", got)
	}
	// Mantri: with 3 of 4 durations below t_rem c / (c+1), P is 0.75; with 1 it is 0.25.
	m := View{Slots: 1, Tasks: []Task{running(1, 6, 2)}, Durations: []float64{0.5, 1, 1.4, 2}}
	m.Tasks = append(m.Tasks, waiting(2, 1))
	if got := decide(t, Mantri, m); got[0].Kind != Copy {
		t.Errorf("Mantri: %v", got)
	}
	m.Durations = []float64{1, 1.5, 3, 9}
	if got := decide(t, Mantri, m); got[0].Kind != Launch {
		t.Errorf("Mantri: %v", got)
	}
	kept := View{Slots: 2, Bound: Bound{Error: 1}, Tasks: []Task{waiting(1, 1)}}
	if got := decide(t, GS, kept); !reflect.DeepEqual(got, []Action{{Kind: Wait}}) {
		t.Errorf("nothing is needed: %v", got)
	}
}

// Mantri (section 5.1 of its paper): at most three copies; once no task waits, whatever ends three
// intervals of reports earlier is copied; restarts only where they are permitted, at most three.
func TestMantri(t *testing.T) {
	t.Parallel()
	v := View{Slots: 1, Report: second, Tasks: []Task{running(1, 5.5, 2)}}
	if got := decide(t, Mantri, v); got[0].Kind != Copy {
		t.Errorf("3.5 s are gained: %v", got)
	}
	v.Tasks[0].Remaining = 5 * second
	if got := decide(t, Mantri, v); got[0].Kind != Wait {
		t.Errorf("3 s are gained: %v", got)
	}
	v.Tasks[0].Remaining, v.Tasks[0].Copies = 50*second, 3
	if got := decide(t, Mantri, v); got[0].Kind != Wait {
		t.Errorf("three copies: %v", got)
	}
	v.Tasks[0].Copies = 1
	v.Tasks = append(v.Tasks, waiting(2, 1))
	if d, err := Decide(Mantri, v, nil); err != nil || len(d.Restart) != 0 || d.Actions[0].Kind != Copy {
		t.Errorf("%+v, %v", d, err)
	}
	v.Restarts = true
	if d, err := Decide(Mantri, v, nil); err != nil || !slices.Equal(d.Restart, []int{1}) || d.Actions[0] != (Action{Kind: Launch, Task: 2}) {
		t.Errorf("%+v, %v", d, err)
	}
	v.Tasks[0].Restarted = 3
	if d, err := Decide(Mantri, v, nil); err != nil || len(d.Restart) != 0 || d.Actions[0].Kind != Copy {
		t.Errorf("%+v, %v", d, err)
	}
}

// LATE (section 4 of its paper): a slow node's slot gets no copy, and waiting tasks get it first.
func TestLATE(t *testing.T) {
	t.Parallel()
	v := View{Slots: 2, Slow: []bool{false, true}, Width: 20, Tasks: []Task{running(1, 9, 2), waiting(2, 1)}}
	if got := decide(t, LATE, v); !reflect.DeepEqual(got, []Action{{Launch, 2, 1}, {Copy, 1, 0}}) {
		t.Errorf("%v", got)
	}
	v.Tasks = v.Tasks[:1]
	if got := decide(t, LATE, v); !reflect.DeepEqual(got, []Action{{Copy, 1, 0}, {Wait, 0, 1}}) {
		t.Errorf("%v", got)
	}
	v.Slow = []bool{true, true}
	if got := decide(t, LATE, v); !reflect.DeepEqual(got, []Action{{Kind: Wait}}) {
		t.Errorf("%v", got)
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n    int
		err  float64
		ceil bool
		want int
	}{
		{6, 0.4, false, 3},
		{6, 0.2, false, 4},
		{6, 0.4, true, 4},
		{6, 0.2, true, 5},
		{10, 0.9, false, 1},
		{10, 0.7, true, 3},
		{7, 0, false, 7},
		{7, 1, true, 0},
	} {
		if got := (Bound{Error: c.err, Ceil: c.ceil}).Need(c.n); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// GRASS switches when its samples say so, and by the strawman without them.
func TestSamples(t *testing.T) {
	t.Parallel()
	// RAS completes 2 tasks a second beyond the first second, GS one from the start: with 1.5 s
	// left GS is better at once, with 20 s RAS first.
	s := NewSamples(AllFactors)
	for i := range 40 {
		size := 0.5 + float64(i)
		for _, greedy := range []bool{false, true} {
			x := Sample{Greedy: greedy, ByDeadline: true, Tasks: 10, Size: size, Result: size, Utilisation: 0.5, Accuracy: 0.7}
			if !greedy {
				x.Result = max(0, 2*(size-1))
			}
			if err := s.Add(x); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := View{Bound: Bound{ByDeadline: true}, Slots: 1, Utilisation: 0.5, Accuracy: 0.7, Tasks: []Task{running(1, 5, 2), waiting(2, 1)}}
	for left, want := range map[time.Duration]bool{1500 * time.Millisecond: true, 20 * second: false} {
		v.Bound.Left = left
		d, err := Decide(GRASS, v, s)
		if err != nil || d.Greedy != want {
			t.Errorf("%v left: %+v, %v", left, d, err)
		}
	}
	v.Greedy = true
	if d, err := Decide(GRASS, v, s); err != nil || !d.Greedy {
		t.Errorf("switched back: %+v, %v", d, err)
	}
	// Other jobs' samples do not count: the strawman decides, whose median task takes 1 s.
	v.Greedy, v.Bound.Left = false, 2*second
	for _, past := range []*Samples{nil, NewSamples(AllFactors)} {
		if d, err := Decide(GRASS, v, past); err != nil || !d.Greedy {
			t.Errorf("%+v, %v", d, err)
		}
	}
	for _, x := range []Sample{{Tasks: 1, Size: -1}, {Tasks: 0, Size: 1}, {Tasks: 1, Size: math.Inf(1)}, {Tasks: 1, Size: 1, Accuracy: 2}} {
		if err := s.Add(x); !errors.Is(err, ErrInput) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	for range 2 * samplesMost {
		if err := s.Add(Sample{Tasks: 1, Size: 1, Result: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.all) != samplesMost {
		t.Errorf("%d samples are held", len(s.all))
	}
}

// Fewer factors let more samples count: one of utilisation alone has no curve.
func TestFactors(t *testing.T) {
	t.Parallel()
	for _, f := range []Factors{ByBound, ByUtilisation, ByAccuracy, ByBound | ByUtilisation, ByBound | ByAccuracy, AllFactors} {
		s := NewSamples(f)
		for i := range 20 {
			for _, greedy := range []bool{false, true} {
				// GS is the better one below a utilisation of a half.
				u := 0.25 + 0.5*float64(i%2)
				result := 1.0
				if greedy == (u < 0.5) {
					result = 2
				}
				if err := s.Add(Sample{Greedy: greedy, ByDeadline: true, Tasks: 2, Size: 10, Result: result, Utilisation: u, Accuracy: 0.5}); err != nil {
					t.Fatal(err)
				}
			}
		}
		v := View{Bound: Bound{ByDeadline: true, Left: 10 * second}, Slots: 1, Accuracy: 0.5, Tasks: []Task{waiting(1, 1), waiting(2, 1)}}
		for u, want := range map[float64]bool{0.25: true, 0.75: false} {
			v.Utilisation = u
			if f&ByUtilisation == 0 {
				want = true // both kinds are alike: nothing is gained by a later switch
			}
			if d, err := Decide(GRASS, v, s); err != nil || d.Greedy != want {
				t.Errorf("factors %b, utilisation %v: %+v, %v", f, u, d, err)
			}
		}
	}
}

func TestExplore(t *testing.T) {
	t.Parallel()
	for draw, want := range map[float64]Policy{0: GS, 0.074: GS, 0.076: RAS, 0.149: RAS, 0.151: GRASS, 0.99: GRASS} {
		if p, sample := Explore(Xi, draw); p != want || sample != (want != GRASS) {
			t.Errorf("%v: %v, %v", draw, p, sample)
		}
	}
}

func TestEstimators(t *testing.T) {
	t.Parallel()
	if left, ok := Remaining(10*second, 0.25, 5*second); !ok || left != 25*second {
		t.Errorf("%v, %v", left, ok)
	}
	if left, ok := Remaining(10*second, 0.5, 60*second); !ok || left != 0 {
		t.Errorf("%v, %v", left, ok)
	}
	for _, p := range []float64{0, -1, 1.1, math.NaN()} {
		if left, ok := Remaining(second, p, 0); ok {
			t.Errorf("%v: %v", p, left)
		}
	}
	if left, ok := Remaining(TimeMost, 1e-300, 0); !ok || left != TimeMost {
		t.Errorf("%v, %v", left, ok)
	}
	var d Durations
	if _, ok := d.New(1); ok || d.Ratios() != nil {
		t.Error("an estimate of nothing")
	}
	for i := range 3 {
		if err := d.Add(time.Duration(1+i)*second, 2); err != nil {
			t.Fatal(err)
		}
	}
	if left, ok := d.New(4); !ok || left != 4*second {
		t.Errorf("%v, %v", left, ok)
	}
	if got := d.Ratios(); !slices.Equal(got, []float64{0.5, 1, 1.5}) {
		t.Error(got)
	}
	if d.Add(0, 1) == nil || d.Add(second, 0) == nil || d.Add(second, math.Inf(1)) == nil {
		t.Error("a duration that makes no sense is taken")
	}
	var a Accuracy
	if _, ok := a.Value(); ok {
		t.Error("accuracy of nothing")
	}
	a.Add(8*second, 10*second)
	a.Add(30*second, 10*second)
	a.Add(second, 0)
	if v, ok := a.Value(); !ok || math.Abs(v-0.4) > 1e-12 {
		t.Errorf("%v, %v", v, ok)
	}
}

func TestNth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SampledFrom([]*rapid.Generator[int64]{rapid.Int64Range(0, 20), rapid.Int64Range(0, math.MaxInt64), rapid.Int64Range(math.MaxInt64-9, math.MaxInt64)}).Draw(t, "kind")
		d := rapid.SliceOfN(values, 1, 300).Draw(t, "values")
		k := rapid.IntRange(0, len(d)-1).Draw(t, "k")
		sorted := slices.Sorted(slices.Values(d))
		first, _ := slices.BinarySearch(sorted, sorted[k])
		if got, alike := nth(slices.Clone(d), k); got != sorted[k] || alike != k-first+1 {
			t.Fatalf("%v, %v; want %v, %v", got, alike, sorted[k], k-first+1)
		}
	})
}

// BenchmarkDecide is one slot of a job of 10,000 tasks with Pareto times.
func BenchmarkDecide(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	pareto := func() time.Duration { return time.Duration(1e9 * math.Pow(1-r.Float64(), -1/1.259)) }
	v := View{Slots: 1, Tasks: make([]Task, 10_000)}
	past := NewSamples(AllFactors)
	for i := range v.Tasks {
		v.Tasks[i] = Task{ID: i, New: min(TimeMost, pareto())}
		if i < 3000 {
			v.Tasks[i].State = Done
		} else if i < 6000 {
			v.Tasks[i].State, v.Tasks[i].Copies, v.Tasks[i].Remaining = Running, 1, min(TimeMost, pareto())
		}
	}
	for i := range samplesMost {
		size := 1 + float64(i)
		if err := past.Add(Sample{Greedy: i%2 == 0, ByDeadline: i%4 < 2, Tasks: 10_000, Size: size, Result: size}); err != nil {
			b.Fatal(err)
		}
	}
	for _, byDeadline := range []bool{true, false} {
		v.Bound = Bound{ByDeadline: byDeadline, Left: 2 * time.Hour, Error: 0.2}
		for _, p := range []Policy{GS, RAS, GRASS, Strawman, LATE, Mantri, None, Ours} {
			b.Run(fmt.Sprintf("%s/deadline=%v", p, byDeadline), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				least, sum, n := time.Duration(math.MaxInt64), time.Duration(0), 0
				for b.Loop() {
					before := threadTime(b)
					if _, err := Decide(p, v, past); err != nil {
						b.Fatal(err)
					}
					took := threadTime(b) - before
					least, sum, n = min(least, took), sum+took, n+1
				}
				// Other work on the machine delays the wall clock, not this thread's own time.
				b.ReportMetric(float64(sum)/float64(n)/1e3, "cpu-us/op")
				b.ReportMetric(float64(least)/1e3, "least-us")
			})
		}
	}
}

// threadTime is the processor time of the calling thread.
func threadTime(b *testing.B) time.Duration {
	b.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
