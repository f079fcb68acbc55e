package queueing

import (
	"fmt"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// rows is a PH's matrix as a list.
func rows(p PH) [][]float64 {
	out := make([][]float64, p.Phases())
	for i := range out {
		out[i] = p.A.RawRowView(i)
	}
	return out
}

// The tasks that are left are ceil(n(1-theta)), without the rounding of 50*(1-0.1).
func TestDIASKeptTasks(t *testing.T) {
	t.Parallel()
	for theta, want := range map[float64]int{0: 50, 0.1: 45, 0.2: 40, 0.4: 30, 0.9: 5, 0.99: 1, 1: 0, 0.11: 45} {
		if got := Kept(50, theta); got != want {
			t.Errorf("of 50 tasks %d are kept at %v, want %d", got, theta, want)
		}
	}
	for n := range 1000 {
		for tenths := range 11 {
			if got, want := Kept(n, float64(tenths)/10), (n*(10-tenths)+9)/10; got != want {
				t.Errorf("of %d tasks %d are kept at %d/10, want %d", n, got, tenths, want)
			}
		}
	}
}

// Eq. (1) entry by entry: setup enters the maps that are left, numbers that share what is
// left of them add up, min(t, C) run at a time, the last map leads to the shuffle.
func TestDIASEq1(t *testing.T) {
	t.Parallel()
	p := testkit.Need(TaskLevel(TaskModel{
		Slots: 2, Maps: []float64{0, 0, 0.25, 0.25, 0, 0.5}, MapDrop: 0.5, // 2, 3, 5 maps leave 1, 2, 3
		Reduces: []float64{0, 0, 0.4, 0.6}, ReduceDrop: 0.4, // 2, 3 reduces both leave 2
		MapMean: 10, ReduceMean: 5, Setup: 4, Shuffle: 2,
	}))(t)
	want := [][]float64{
		{-0.25, 0.125, 0.0625, 0.0625, 0, 0, 0},
		{0, -0.2, 0.2, 0, 0, 0, 0},
		{0, 0, -0.2, 0.2, 0, 0, 0},
		{0, 0, 0, -0.1, 0.1, 0, 0},
		{0, 0, 0, 0, -0.5, 0.5, 0},
		{0, 0, 0, 0, 0, -0.4, 0.4},
		{0, 0, 0, 0, 0, 0, -0.2},
	}
	if diff := cmp.Diff(want, rows(p), cmpopts.EquateApprox(0, 1e-15)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]float64{1, 0, 0, 0, 0, 0, 0}, p.Alpha); diff != "" {
		t.Error(diff)
	}
}

// With one slot the map stage still leads to the shuffle: M_0 is S.
func TestDIASEq1OneSlot(t *testing.T) {
	t.Parallel()
	p := testkit.Need(TaskLevel(TaskModel{Slots: 1, Maps: Exactly(3), Reduces: Exactly(2), MapMean: 1, ReduceMean: 2, Setup: 1, Shuffle: 1}))(t)
	agrees(t, "the mean", p.Mean(), 1+3+1+4, 1e-14)
}

// With theta = 1 setup goes straight to the shuffle; a job with nothing left is refused.
func TestDIASEq1AllDropped(t *testing.T) {
	t.Parallel()
	m := TaskModel{Slots: 20, Maps: Exactly(50), Reduces: Exactly(10), MapDrop: 1, ReduceDrop: 1, MapMean: 1, ReduceMean: 1, Setup: 3, Shuffle: 2}
	p := testkit.Need(TaskLevel(m))(t)
	if want := [][]float64{{-1. / 3, 1. / 3}, {0, -0.5}}; !cmp.Equal(want, rows(p)) {
		t.Error(cmp.Diff(want, rows(p)))
	}
	m.Setup, m.Shuffle = 0, 0
	if _, err := TaskLevel(m); err == nil || !strings.Contains(err.Error(), "takes no time with probability 1") {
		t.Errorf("error %v, want one about a job that is nothing", err)
	}
}

// A sprint's speed divides every time.
func TestDIASEffectiveSprintRate(t *testing.T) {
	t.Parallel()
	m := TaskModel{Slots: 20, Maps: Exactly(50), MapMean: 20, Setup: 3, Speed: 2.5}
	fast := testkit.Need(TaskLevel(m))(t)
	m.Speed = 1
	agrees(t, "the mean", fast.Mean(), testkit.Need(TaskLevel(m))(t).Mean()/2.5, 1e-14)
}

// The matrix of section 4.2 as it is printed: jobs of one wave enter at the last wave.
func TestDIASWaveMatrix(t *testing.T) {
	t.Parallel()
	e := func(rate float64) PH { return testkit.Need(exponential(rate))(t) }
	m := WaveModel{
		Slots: 20, Maps: make([]float64, 51), Reduces: Exactly(25), MapDrop: 0.2, // 50 and 20 maps leave 40 and 16
		Setup: e(1), MapWaves: []PH{e(2), e(3)}, Shuffle: e(4), ReduceWaves: []PH{e(5), e(6)},
	}
	m.Maps[50], m.Maps[20] = 0.75, 0.25
	p := testkit.Need(WaveLevel(m))(t)
	want := [][]float64{
		{-1, 0.75, 0.25, 0, 0, 0},
		{0, -3, 3, 0, 0, 0},
		{0, 0, -2, 2, 0, 0},
		{0, 0, 0, -4, 4, 0},
		{0, 0, 0, 0, -6, 6},
		{0, 0, 0, 0, 0, -5},
	}
	if diff := cmp.Diff(want, rows(p)); diff != "" {
		t.Error(diff)
	}
}

// 50 maps on 20 slots run in 3, 3, 2, 2 and 1 waves at the paper's drop ratios.
func TestDIASWaveCounts(t *testing.T) {
	t.Parallel()
	wave := testkit.Need(Erlang(10, 1))(t)
	for theta, want := range map[float64]float64{0: 3, 0.1: 3, 0.2: 2, 0.4: 2, 0.9: 1} {
		p := testkit.Need(WaveLevel(WaveModel{Slots: 20, Maps: Exactly(50), MapDrop: theta, MapWaves: []PH{wave}}))(t)
		agrees(t, fmt.Sprintf("waves at %v", theta), p.Mean()/10, want, 1e-13)
	}
}

// What is no job is refused.
func TestDIASJobsRefused(t *testing.T) {
	t.Parallel()
	ok := TaskModel{Slots: 2, Maps: Exactly(4), MapMean: 1}
	for want, change := range map[string]func(m *TaskModel){
		"slots are 0":                 func(m *TaskModel) { m.Slots = 0 },
		"maps[0] is -1":               func(m *TaskModel) { m.Maps = []float64{-1, 2} },
		"maps sums to 0.5":            func(m *TaskModel) { m.Maps = []float64{0, 0.5} },
		"map drop ratio is 1.1":       func(m *TaskModel) { m.MapDrop = 1.1 },
		"reduce drop ratio is -0.1":   func(m *TaskModel) { m.ReduceDrop = -0.1 },
		"maps mean is 0":              func(m *TaskModel) { m.MapMean = 0 },
		"setup mean is -1":            func(m *TaskModel) { m.Setup = -1 },
		"speed is -2":                 func(m *TaskModel) { m.Speed = -2 },
		"the maximum is 2000 tasks":   func(m *TaskModel) { m.Maps = Exactly(2001) },
		"job has 2004 phases":         func(m *TaskModel) { m.Maps, m.Reduces, m.ReduceMean = Exactly(2000), Exactly(4), 1 },
		"with probability 0.25; give": func(m *TaskModel) { m.Maps = []float64{0.25, 0.75} },
	} {
		m := ok
		change(&m)
		if _, err := TaskLevel(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := WaveLevel(WaveModel{Slots: 2, Maps: Exactly(4)}); err == nil || !strings.Contains(err.Error(), "waves are missing") {
		t.Errorf("error %v, want one about missing waves", err)
	}
}
