package queueing

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 11)) }

// With the same work at each restart a job of length b takes (exp(rate b)-1)/rate of the
// server's time: waste and load have a closed form, and the simulation meets it.
func TestRepeatWasteIsExact(t *testing.T) {
	t.Parallel()
	low, high := testkit.Need(Erlang(10, 10))(t), testkit.Need(Erlang(4, 8))(t)
	q := Queue{Discipline: PreemptiveRepeat, Arrivals: Arrivals{Rates: []float64{0.35, 0.4}}, Services: []PH{low, high}}
	busy := 0.35*(math.Pow(10/(10-0.4), 10)-1)/0.4 + 0.4*0.5
	got := testkit.Need(Simulate(q, Simulation{Jobs: 15_000, Replications: 20}, source(1)))(t)
	inside(t, "rho", busy, got.Rho)
	inside(t, "waste", 1-(0.35+0.2)/busy, got.Waste)
	// The highest class never meets the others.
	alone := testkit.Need(Solve(Queue{NonPreemptive, Arrivals{Rates: []float64{0.4}}, []PH{high}}, Options{}))(t).Classes[0]
	inside(t, "the high class's wait", alone.Wait.Mean, got.Classes[1].Wait.Mean)
	inside(t, "the high class's sojourn", alone.Sojourn.Mean, got.Classes[1].Sojourn.Mean)
}

// A load below 1 may be unstable with restarts, and then is refused with what it comes to.
func TestRepeatRefusesUnstable(t *testing.T) {
	t.Parallel()
	slow := testkit.Need(Erlang(10, 5))(t)
	quick := testkit.Need(Erlang(10, 50))(t)
	_, err := Simulate(Queue{Discipline: PreemptiveRepeat, Arrivals: Arrivals{Rates: []float64{0.2, 1}}, Services: []PH{slow, quick}}, Simulation{}, source(1))
	if u, ok := errors.AsType[*UnstableError](err); !ok || !(u.Rho > 1 && u.Rho < 2) {
		t.Errorf("error %v, want one with rho between 1 and 2", err)
	}
	// Restarted more often than it ends, an exponential service takes forever.
	e := testkit.Need(exponential(1))(t)
	_, err = Simulate(Queue{Discipline: PreemptiveRepeat, Arrivals: Arrivals{Rates: []float64{0.01, 1.5}}, Services: []PH{e, quick}}, Simulation{}, source(1))
	if u, ok := errors.AsType[*UnstableError](err); !ok || !math.IsInf(u.Rho, 1) {
		t.Errorf("error %v, want one with an infinite rho", err)
	}
	// Below other arrivals, the jobs that are left over tell.
	d := []*mat.Dense{
		mat.NewDense(2, 2, []float64{-3, 1, 1, -2}), mat.NewDense(2, 2, []float64{1, 0, 0, 0.5}), mat.NewDense(2, 2, []float64{1, 0, 0, 0.5}),
	}
	_, err = Simulate(Queue{Discipline: PreemptiveRepeat, Arrivals: Arrivals{D: d}, Services: []PH{e, e}}, Simulation{}, source(1))
	if err == nil || !strings.Contains(err.Error(), "unstable") {
		t.Errorf("error %v, want one about an unstable queue", err)
	}
}

// An MMAP of one state is a Poisson stream: the same source gives the same answer.
func TestSimulatedMMAPOfOneState(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	q := Queue{Discipline: PreemptiveResume, Arrivals: Arrivals{Rates: []float64{0.25, 0.25}}, Services: []PH{e, e}}
	s := Simulation{Jobs: 2000, Replications: 3, Options: Options{Percentiles: []float64{0.95}}}
	a := testkit.Need(Simulate(q, s, source(3)))(t)
	one := func(x float64) *mat.Dense { return mat.NewDense(1, 1, []float64{x}) }
	q.Arrivals = Arrivals{D: []*mat.Dense{one(-0.5), one(0.25), one(0.25)}}
	if b := testkit.Need(Simulate(q, s, source(3)))(t); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v and %+v differ", a, b)
	}
	if c := testkit.Need(Simulate(q, s, source(4)))(t); reflect.DeepEqual(a, c) {
		t.Error("another seed gives the same answer")
	}
	if !(a.Waste.Value == 0 && a.Waste.High == 0) {
		t.Errorf("suspending wastes %v", a.Waste)
	}
}

// What cannot be simulated is refused with its place.
func TestSimulationsRefused(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	ok := Queue{PreemptiveRepeat, Arrivals{Rates: []float64{0.2, 0.2}}, []PH{e, e}}
	one := func(x float64) *mat.Dense { return mat.NewDense(1, 1, []float64{x}) }
	for want, c := range map[string]struct {
		q Queue
		s Simulation
	}{
		"jobs are 5;":              {ok, Simulation{Jobs: 5}},
		"replications are 1;":      {ok, Simulation{Replications: 1}},
		"percentiles[0] is 2":      {ok, Simulation{Options: Options{Percentiles: []float64{2}}}},
		"discipline is \"x\"":      {Queue{"x", ok.Arrivals, ok.Services}, Simulation{}},
		"arrivals.D[0][0][0] is":   {Queue{NonPreemptive, Arrivals{D: []*mat.Dense{one(-1), one(0.2), one(0.2)}}, ok.Services}, Simulation{}},
		"arrivals.D[2][0][0] is":   {Queue{NonPreemptive, Arrivals{D: []*mat.Dense{one(-0.4), one(0.6), one(-0.2)}}, ok.Services}, Simulation{}},
		"arrivals.D[1] is missing": {Queue{NonPreemptive, Arrivals{D: []*mat.Dense{one(-0.4), nil, one(0.2)}}, ok.Services}, Simulation{}},
	} {
		if _, err := Simulate(c.q, c.s, source(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
