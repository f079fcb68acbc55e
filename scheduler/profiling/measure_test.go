// Claims: seeds choose tasks again and again the same, a larger part has all tasks of a
// smaller one, and an interrupted measurement ends with its cause.
package profiling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/quality"
)

// remembers is an engine that remembers what it ran.
type remembers struct {
	ran [][]int
	err error
}

func (r *remembers) Run(_ context.Context, tasks []int) ([]byte, error) {
	r.ran = append(r.ran, tasks)
	return fmt.Appendf(nil, "sum\t%d\n", len(tasks)), r.err
}

func measured(t *testing.T, r *remembers, choice string) ([]quality.Point, error) {
	t.Helper()
	m := measurement{
		runner: r, tasks: 20, comparison: quality.Value, ratios: []float64{0.8, 0.25, 1}, seeds: 4, choice: choice,
		note: func(string, ...any) {},
	}
	return m.points(t.Context())
}

func TestSeedsChoose(t *testing.T) {
	t.Parallel()
	a, b := &remembers{}, &remembers{}
	points := testkit.Need(measured(t, a, chooseRandom))(t)
	if _, err := measured(t, b, chooseRandom); err != nil || !slices.EqualFunc(a.ran, b.ran, slices.Equal[[]int]) {
		t.Errorf("%v\nthen %v, %v", a.ran, b.ran, err)
	}
	if len(points) != 3 || points[0].Runs != 4 || points[0].Accuracy != 0.25 || points[2].Accuracy != 1 || points[2].Runs != 1 {
		t.Errorf("%+v", points)
	}
	// The whole first, then 5 and 16 tasks for each of four seeds, then all again.
	if len(a.ran) != 1+4+4+1 || len(a.ran[0]) != 20 {
		t.Fatalf("%v", a.ran)
	}
	for seed := range 4 {
		small, large := a.ran[1+seed], a.ran[5+seed]
		if len(small) != 5 || len(large) != 16 || !slices.IsSorted(large) {
			t.Fatalf("%v, %v", small, large)
		}
		for _, i := range small {
			if !slices.Contains(large, i) {
				t.Errorf("seed %d: task %d is in the quarter, not in the larger part", seed+1, i)
			}
		}
		if seed > 0 && slices.Equal(small, a.ran[seed]) {
			t.Errorf("seeds %d and %d choose alike: %v", seed, seed+1, small)
		}
	}
	first := &remembers{}
	if _, err := measured(t, first, chooseFirst); err != nil || len(first.ran) != 4 || !slices.Equal(first.ran[1], []int{0, 1, 2, 3, 4}) {
		t.Errorf("%v, %v", first.ran, err)
	}
}

func TestMeasurementEndsWithItsCause(t *testing.T) {
	t.Parallel()
	if _, err := measured(t, &remembers{err: context.Canceled}, chooseRandom); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
