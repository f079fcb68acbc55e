// Claims: drop ratios are tried that leave another number of tasks, and of waves only those that drop whole ones; loads of
// dispatch are those of the input, and no input makes a run panic.
package solve

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"headroom/internal/jsonfile"
	"headroom/internal/testkit"
	"headroom/jobs/queueing"
	"headroom/lab/dispatch"
	"headroom/lab/traces"
)

// Only ratios that leave another number of tasks are tried; of waves only whole ones.
func TestRatios(t *testing.T) {
	t.Parallel()
	if got := ratios(50, 20, true); !slices.Equal(got, []float64{0, 0.2, 0.6}) {
		t.Errorf("waves: %v", got)
	}
	if got := ratios(4, 2, false); !slices.Equal(got, []float64{0, 0.25, 0.5, 0.75}) {
		t.Errorf("4 tasks: %v", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		tasks, slots := rapid.IntRange(1, 5000).Draw(t, "tasks"), rapid.IntRange(1, 100).Draw(t, "slots")
		waves := rapid.Bool().Draw(t, "waves")
		got := ratios(tasks, slots, waves)
		if got[0] != 0 || len(got) > 16 || !slices.IsSorted(got) || got[len(got)-1] >= 1 {
			t.Fatalf("%v", got)
		}
		left := tasks + 1
		for _, theta := range got {
			n := queueing.Kept(tasks, theta)
			if n >= left || math.Abs(float64(tasks)*(1-theta)-float64(n)) > 1e-6 {
				t.Fatalf("theta %v leaves %d of %d tasks, before it %d", theta, n, tasks, left)
			}
			left = n
		}
	})
}

// A load rescales the arrivals: 38 s of work on 4 workers are half of their time in 19 s.
func TestStretch(t *testing.T) {
	t.Parallel()
	in := &dispatching{Workers: 4, Trace: "trace", Load: new(0.5)}
	stretch := testkit.Need(in.stretch(strings.NewReader("0 2 1 0.5 1.5\n1.5 1 30 30\n4 3 2 2 2 2\n")))(t)
	if want := 38.0 / (4 * 4 * 0.5); math.Abs(stretch-want) > 1e-12 {
		t.Errorf("stretched by %v, want %v", stretch, want)
	}
}

// Whatever the file contains, reading it ends in a run or in an error.
func FuzzDispatch(f *testing.F) {
	f.Add(`{"policy":"pigeon","workers":4,"groups":2,"reserved":1,"w":3,"cutoff_s":5,"hop_s":0,"distributors":1,"seed":1,"trace":"t"}`)
	f.Add(`{"policy":"eagle","workers":40,"groups":4,"reserved":1,"cutoff_s":1e9,"distributors":1,"srpt":true,"trace":"t","load":0.5}`)
	f.Add(`{"policy":"ours","workers":9,"groups":3,"cutoff_s":0,"distributors":1,"trace":"t","caps":[{"at_s":1,"group":1,"speed":0.5,"usable":2}]}`)
	f.Add(`{"policy":"sparrow","workers":1e3}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in dispatching
		if jsonfile.Read(strings.NewReader(text), "--input", "-", &in) != nil || check(reflect.ValueOf(in), "", "") != nil || in.Workers > 500 || in.Distributors > 20 {
			return // what is valid beyond them is slow to try
		}
		s, err := in.setup()
		if err != nil {
			return
		}
		jobs := []traces.Job{{Times: []float64{0.5, 3}}, {Arrival: 1, Times: []float64{100}}}
		_, _ = dispatch.Run(t.Context(), s, traces.All(jobs)) // it must not panic
	})
}
