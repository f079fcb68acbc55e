package queueing

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
	"pgregory.net/rapid"
)

// agrees fails unless got is want, relative to it.
func agrees(t rapid.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s is %.17g, want %.17g: off by %.3g, relative", what, got, want, got/want-1)
	}
}

// diasJob is eq. (1) at the size of the paper's validation: 62 phases.
func diasJob(t testing.TB, theta, mean float64) PH {
	t.Helper()
	return testkit.Need(TaskLevel(TaskModel{
		Slots: 20, Maps: Exactly(50), Reduces: Exactly(10), MapDrop: theta,
		MapMean: mean, ReduceMean: 0.8 * mean, Setup: mean / 2, Shuffle: mean / 4,
	}))(t)
}

// known is a service with the first two moments in closed form.
type known struct {
	name          string
	ph            PH
	mean, squared float64
}

func services(t testing.TB) []known {
	t.Helper()
	list := []known{
		{"exponential", testkit.Need(exponential(2))(t), 0.5, 0.5},
		{"erlang", testkit.Need(Erlang(7, 14))(t), 0.5, 0.25 + 7.0/(14*14)},
		{"hyperexponential", testkit.Need(hyper([]float64{0.9, 0.1}, []float64{3, 0.5}))(t), 0.3 + 0.2, 2 * (0.9/9 + 0.1/0.25)},
	}
	// Eq. (1), summed by hand: stages are independent, and variances add up.
	mean, variance := 10.0+5, 100.0+25
	for n := 1; n <= 50; n++ {
		step := 20 / float64(min(n, 20))
		mean, variance = mean+step, variance+step*step
	}
	for n := 1; n <= 10; n++ {
		step := 16 / float64(n)
		mean, variance = mean+step, variance+step*step
	}
	return append(list, known{"eq1", diasJob(t, 0, 20), mean, mean*mean + variance})
}

// cobham are the mean waits and sojourns (Cobham 1954; for preemptive resume, Miller 1960).
func cobham(d Discipline, rates []float64, s []known) (waits, sojourns []float64) {
	for k := range s {
		above, from, residual := 0.0, 0.0, 0.0
		for j := range s {
			if j > k {
				above += rates[j] * s[j].mean
			}
			if j >= k {
				from += rates[j] * s[j].mean
			}
			if j >= k || d == NonPreemptive {
				residual += rates[j] * s[j].squared / 2
			}
		}
		wait := residual / ((1 - above) * (1 - from))
		service := s[k].mean
		if d == PreemptiveResume {
			service /= 1 - above
		}
		waits, sojourns = append(waits, wait), append(sojourns, wait+service)
	}
	return waits, sojourns
}

// Means are Cobham's closed forms to 1e-9, for every mix of two and three services.
func TestMeansAreCobhams(t *testing.T) {
	t.Parallel()
	list := services(t)
	check := func(t *testing.T, chosen ...known) {
		t.Helper()
		q := Queue{}
		var names []string
		for i, s := range chosen {
			rho := 0.9 * float64(i+1) / float64(len(chosen)*(len(chosen)+1)/2)
			q.Arrivals.Rates = append(q.Arrivals.Rates, rho/s.mean)
			q.Services = append(q.Services, s.ph)
			names = append(names, s.name)
		}
		for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
			q.Discipline = d
			r := testkit.Need(Solve(q, Options{Moments: 2}))(t)
			waits, sojourns := cobham(d, q.Arrivals.Rates, chosen)
			for k, c := range r.Classes {
				what := fmt.Sprintf("%s %v class %d", d, names, k)
				agrees(t, what+" wait", c.Wait.Mean, waits[k], 1e-12)
				agrees(t, what+" sojourn", c.Sojourn.Mean, sojourns[k], 1e-12)
			}
			agrees(t, "rho", r.Rho, 0.9, 1e-12)
		}
	}
	for _, a := range list {
		for _, b := range list {
			check(t, a, b)
			for _, c := range list {
				check(t, a, b, c)
			}
		}
	}
}

// Below one class of exponential services the sojourn time is exponential: all moments
// and percentiles are known, also near a load of 1.
func TestOneExponentialClass(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	for _, rho := range []float64{0.01, 0.5, 0.9, 0.999, 0.99999} {
		q := Queue{NonPreemptive, Arrivals{Rates: []float64{rho}}, []PH{e}}
		c := testkit.Need(Solve(q, Options{Moments: 5, Percentiles: []float64{0.001, 0.5, 0.95, 0.999}}))(t).Classes[0]
		rate, want := 1-rho, 1.0
		for n, m := range c.Sojourn.Moments {
			want *= float64(n+1) / rate
			agrees(t, fmt.Sprintf("moment %d at rho %v", n+1, rho), m, want, 1e-10)
		}
		for _, p := range c.Sojourn.Percentiles {
			agrees(t, fmt.Sprintf("percentile %v at rho %v", p.P, rho), p.At, -math.Log1p(-p.P)/rate, 1e-7)
		}
		// The wait is 0 with probability 1-rho, and beyond as the sojourn.
		for _, p := range c.Wait.Percentiles {
			agrees(t, fmt.Sprintf("wait's percentile %v at rho %v", p.P, rho), p.At, max(0, math.Log(rho/(1-p.P))/rate), 1e-7)
		}
	}
}

// Percentiles agree to 1e-7 with the oracle: other formulas, other axis, 400 bits.
func TestPercentilesAgreeWithOracle(t *testing.T) {
	t.Parallel()
	e, h := testkit.Need(exponential(1))(t), testkit.Need(hyper([]float64{0.8, 0.2}, []float64{4, 0.25}))(t)
	erlang := testkit.Need(Erlang(4, 4))(t)
	cases := []struct {
		name     string
		rates    []float64
		services []PH
		terms    int64
	}{
		{"exponential", []float64{0.4, 0.4}, []PH{e, e}, 40},
		{"hyperexponential under Erlang", []float64{0.5, 0.3}, []PH{h, erlang}, 45},
		{"three classes", []float64{0.3, 0.2, 0.3}, []PH{erlang, h, e}, 45},
	}
	for _, c := range cases {
		for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
			t.Run(c.name+" "+string(d), func(t *testing.T) {
				t.Parallel()
				compareWithOracle(t, Queue{d, Arrivals{Rates: c.rates}, c.services}, 0.95, c.terms)
			})
		}
	}
}

// compareWithOracle checks the percentiles of all measures of a queue.
func compareWithOracle(t *testing.T, q Queue, p float64, terms int64) {
	t.Helper()
	r := testkit.Need(Solve(q, Options{Percentiles: []float64{p}}))(t)
	for k, c := range r.Classes {
		for sojourn, m := range map[bool]Measure{false: c.Wait, true: c.Sojourn} {
			at := m.Percentiles[0].At
			if at == 0 { // most jobs do not wait: then the atom is above p
				if atom := testkit.Need(m.cdf(0))(t); atom < p {
					t.Errorf("class %d: percentile 0 with an atom of %v", k, atom)
				}
				continue
			}
			textbook{q, k, sojourn}.compare(t, m, terms)
		}
	}
}

// At the size of DIAS's own cases, 62 phases a class, percentiles agree too: those of the
// low class, which meets everything there is.
func TestPercentilesAgreeWithOracleAtDIASSize(t *testing.T) {
	t.Parallel()
	for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
		q := Queue{d, Arrivals{Rates: []float64{0.9 * 0.8 / 157, 0.1 * 0.8 / 157}}, []PH{diasJob(t, 0, 20), diasJob(t, 0, 8.5)}}
		r := testkit.Need(Solve(q, Options{Percentiles: []float64{0.95}}))(t)
		textbook{q, 0, true}.compare(t, r.Classes[0].Sojourn, 60)
	}
}

// Where the classes above leave almost nothing, rounding shows: percentiles still agree.
func TestPercentilesAgreeWithOracleNearSaturation(t *testing.T) {
	t.Parallel()
	e, erlang := testkit.Need(exponential(1))(t), testkit.Need(Erlang(3, 3))(t)
	const above = 0.99999
	q := Queue{PreemptiveResume, Arrivals{Rates: []float64{(1 - above) / 2, above}}, []PH{e, erlang}}
	compareWithOracle(t, q, 0.95, 45)
	compareWithOracle(t, q, 0.999, 45)
}

// The highest class under preemptive resume is an M/PH/1 queue of its own, whose wait is
// phase-type: a matrix exponential gives it. Cyclic services take the dense way there.
func TestHighestClassIsMPH1(t *testing.T) {
	t.Parallel()
	cyclic := testkit.Need(NewPH([]float64{0.7, 0, 0.3}, [][]float64{{-3, 2, 0.5}, {1, -4, 2}, {0.5, 3, -4}}))(t)
	low := testkit.Need(exponential(0.1))(t)
	for name, service := range map[string]PH{"eq1": diasJob(t, 0.2, 0.05), "cyclic": cyclic} {
		rate := 0.7 / service.Mean()
		q := Queue{PreemptiveResume, Arrivals{Rates: []float64{0.02, rate}}, []PH{low, service}}
		c := testkit.Need(Solve(q, Options{Moments: 3}))(t).Classes[1]
		// The wait's chain: residual services, followed by one more with probability rho.
		n, mean := service.Phases(), service.Mean()
		start := equilibrium(service, mean)
		a, exit := mat.DenseCopyOf(service.A), service.exit()
		for i := range n {
			for j := range n {
				a.Set(i, j, a.At(i, j)+0.7*exit[i]*start[j])
			}
		}
		alpha := make([]float64, n)
		for i := range alpha {
			alpha[i] = 0.7 * start[i]
		}
		for _, at := range []float64{0.1, 0.5, 1, 3, 10} {
			got := testkit.Need(c.Wait.cdf(at * mean))(t)
			agrees(t, fmt.Sprintf("%s: P(W > %v means)", name, at), 1-got, matrixExponential(alpha, a, at*mean), 1e-8)
		}
	}
}

// equilibrium is the distribution of the phase that a random moment of service is in:
// alpha (-A)^-1 / mean.
func equilibrium(p PH, mean float64) []float64 {
	var inverse mat.Dense
	if err := inverse.Inverse(p.A); err != nil {
		panic(err)
	}
	out := make([]float64, p.Phases())
	for j := range out {
		for i, a := range p.Alpha {
			out[j] -= a * inverse.At(i, j) / mean
		}
	}
	return out
}

// A cyclic distribution that equals an acyclic one gives the same queue: the dense and
// the sparse evaluation agree.
func TestDenseAndSparseAgree(t *testing.T) {
	t.Parallel()
	// Repeating an exponential phase with probability 1/3 leaves it exponential. Two
	// phases take turns in that.
	cyclic := testkit.Need(NewPH([]float64{1, 0}, [][]float64{{-3, 1}, {1, -3}}))(t)
	same := testkit.Need(exponential(2))(t)
	other := testkit.Need(Erlang(3, 6))(t)
	for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
		solve := func(x PH) Result {
			q := Queue{d, Arrivals{Rates: []float64{0.6, 0.8}}, []PH{other, x}}
			return testkit.Need(Solve(q, Options{Moments: 6, Percentiles: []float64{0.3, 0.95, 0.999}}))(t)
		}
		dense, sparse := solve(cyclic), solve(same)
		for k := range dense.Classes {
			for i, m := range dense.Classes[k].Sojourn.Moments {
				agrees(t, fmt.Sprintf("%s class %d moment %d", d, k, i+1), m, sparse.Classes[k].Sojourn.Moments[i], 1e-12)
			}
			for i, p := range dense.Classes[k].Wait.Percentiles {
				agrees(t, fmt.Sprintf("%s class %d percentile %v", d, k, p.P), p.At, sparse.Classes[k].Wait.Percentiles[i].At, 1e-9)
			}
		}
	}
}

// Any order of priorities leaves the work as it is: sum of rho_k W_k does not change
// (Kleinrock's conservation law), and the number of jobs is Little's.
func TestWorkIsConserved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "classes")
		q := Queue{Discipline: NonPreemptive}
		var loads []float64
		for k := range n {
			p := drawPH(t, fmt.Sprint("service", k))
			load := rapid.Float64Range(0.01, 0.95/float64(n)).Draw(t, "load")
			q.Services, q.Arrivals.Rates = append(q.Services, p), append(q.Arrivals.Rates, load/p.Mean())
			loads = append(loads, load)
		}
		total := func(q Queue, loads []float64) float64 {
			r := testkit.Need(Solve(q, Options{}))(t)
			sum := 0.0
			for k, c := range r.Classes {
				sum += loads[k] * c.Wait.Mean
			}
			return sum
		}
		before := total(q, loads)
		turned := Queue{Discipline: NonPreemptive}
		var turnedLoads []float64
		for k := n - 1; k >= 0; k-- {
			turned.Services, turned.Arrivals.Rates = append(turned.Services, q.Services[k]), append(turned.Arrivals.Rates, q.Arrivals.Rates[k])
			turnedLoads = append(turnedLoads, loads[k])
		}
		if after := total(turned, turnedLoads); math.Abs(after-before) > 1e-10*before {
			t.Fatalf("the work waiting is %v in one order and %v in the other", before, after)
		}
	})
}

// drawPH is any distribution of up to 5 phases, cyclic or not.
func drawPH(t *rapid.T, name string) PH {
	n := rapid.IntRange(1, 5).Draw(t, name+" phases")
	alpha, a := make([]float64, n), make([][]float64, n)
	alpha[0] = 1
	for i := range n {
		a[i] = make([]float64, n)
		leave := rapid.Float64Range(0.1, 5).Draw(t, "exit")
		for j := range n {
			if i != j && rapid.Bool().Draw(t, "moves") {
				a[i][j] = rapid.Float64Range(0.1, 5).Draw(t, "rate")
				leave += a[i][j]
			}
		}
		a[i][i] = -leave
	}
	return testkit.Need(NewPH(alpha, a))(t)
}

// A cdf rises from its atom to 1, percentiles lie on it, and moments are those of it.
func TestDistributionsAreDistributions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := Queue{Discipline: rapid.SampledFrom([]Discipline{NonPreemptive, PreemptiveResume}).Draw(t, "discipline")}
		n := rapid.IntRange(1, 3).Draw(t, "classes")
		for k := range n {
			p := drawPH(t, fmt.Sprint("service", k))
			q.Services = append(q.Services, p)
			q.Arrivals.Rates = append(q.Arrivals.Rates, rapid.Float64Range(0.01, 0.95/float64(n)).Draw(t, "load")/p.Mean())
		}
		r := testkit.Need(Solve(q, Options{Moments: 2, Percentiles: []float64{0.3, 0.95, 0.999}}))(t)
		for k, c := range r.Classes {
			for what, m := range map[string]Measure{"wait": c.Wait, "sojourn": c.Sojourn} {
				last := 0.0
				for i := range 10 {
					x, err := m.cdf(m.Mean * float64(i) / 3)
					if err != nil || x < last-1e-9 || x > 1 {
						t.Fatalf("class %d %s: cdf %v after %v, error %v", k, what, x, last, err)
					}
					last = x
				}
				for _, p := range m.Percentiles {
					if x, err := m.cdf(p.At); err != nil || p.At > 0 && math.Abs(x-p.P) > 1e-9 || x < p.P-1e-9 {
						t.Fatalf("class %d %s: the cdf at percentile %v is %v, error %v", k, what, p.P, x, err)
					}
				}
				if m.Moments[1] < m.Mean*m.Mean {
					t.Fatalf("class %d %s: moments %v have a negative variance", k, what, m.Moments)
				}
			}
			if c.Sojourn.Mean < c.Wait.Mean {
				t.Fatalf("class %d stays %v and waits %v", k, c.Sojourn.Mean, c.Wait.Mean)
			}
		}
	})
}

// A class without jobs waits as a rare job would, and changes nothing for the others.
func TestClassWithoutJobs(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	with := testkit.Need(Solve(Queue{NonPreemptive, Arrivals{Rates: []float64{0.5, 0}}, []PH{e, e}}, Options{Percentiles: []float64{0.95}}))(t)
	alone := testkit.Need(Solve(Queue{NonPreemptive, Arrivals{Rates: []float64{0.5}}, []PH{e}}, Options{Percentiles: []float64{0.95}}))(t)
	agrees(t, "the other class's mean", with.Classes[0].Sojourn.Mean, alone.Classes[0].Sojourn.Mean, 1e-14)
	agrees(t, "the other class's percentile", with.Classes[0].Sojourn.Percentiles[0].At, alone.Classes[0].Sojourn.Percentiles[0].At, 1e-10)
	agrees(t, "the rare job's wait", with.Classes[1].Wait.Mean, 0.5, 1e-14)
}

// Each refusal names what is wrong, where, and a way out.
func TestQueuesRefused(t *testing.T) {
	t.Parallel()
	e := testkit.Need(exponential(1))(t)
	ok := Queue{NonPreemptive, Arrivals{Rates: []float64{0.3, 0.3}}, []PH{e, e}}
	with := func(change func(q *Queue)) Queue {
		q := ok
		change(&q)
		return q
	}
	for name, c := range map[string]struct {
		q    Queue
		o    Options
		want string
	}{
		"discipline":   {with(func(q *Queue) { q.Discipline = "fifo" }), Options{}, `discipline is "fifo"; want np or pr`},
		"repeat":       {with(func(q *Queue) { q.Discipline = PreemptiveRepeat }), Options{}, "simulate"},
		"no classes":   {with(func(q *Queue) { q.Services = nil }), Options{}, "services are 0"},
		"both":         {with(func(q *Queue) { q.Arrivals.D = []*mat.Dense{} }), Options{}, "either rates or D"},
		"neither":      {with(func(q *Queue) { q.Arrivals.Rates = nil }), Options{}, "either rates or D"},
		"rates":        {with(func(q *Queue) { q.Arrivals.Rates = []float64{1} }), Options{}, "arrivals.rates are 1 for 2 services"},
		"negative":     {with(func(q *Queue) { q.Arrivals.Rates = []float64{0.1, -1} }), Options{}, "arrivals.rates[1] is -1"},
		"NaN":          {with(func(q *Queue) { q.Arrivals.Rates = []float64{math.NaN(), 0} }), Options{}, "arrivals.rates[0] is NaN"},
		"no jobs":      {with(func(q *Queue) { q.Arrivals.Rates = []float64{0, 0} }), Options{}, "at least one class must have jobs"},
		"no service":   {with(func(q *Queue) { q.Services = []PH{e, {}} }), Options{}, "services[1].A is missing"},
		"unstable":     {with(func(q *Queue) { q.Arrivals.Rates = []float64{0.5, 0.75} }), Options{}, "rho is 1.25"},
		"at 1":         {with(func(q *Queue) { q.Arrivals.Rates = []float64{0.5, 0.5} }), Options{}, "rho is 1 "},
		"near 1":       {with(func(q *Queue) { q.Arrivals.Rates = []float64{0.5, 0.4999999} }), Options{}, "rounding"},
		"moments":      {ok, Options{Moments: 21}, "moments is 21"},
		"percentile":   {ok, Options{Percentiles: []float64{0.5, 1}}, "percentiles[1] is 1"},
		"percentile 0": {ok, Options{Percentiles: []float64{0}}, "percentiles[0] is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Solve(c.q, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	_, err := Solve(with(func(q *Queue) { q.Arrivals.Rates = []float64{1, 1} }), Options{})
	if u, ok := errors.AsType[*UnstableError](err); !ok || u.Rho != 2 {
		t.Errorf("error %v, want an UnstableError with rho 2", err)
	}
}

// Rates that are unlike each other by twelve orders still give exact moments, and
// percentiles or an error, never a number that is not one.
func TestStiffServices(t *testing.T) {
	t.Parallel()
	stiff := testkit.Need(hyper([]float64{0.5, 0.5}, []float64{1, 1e12}))(t)
	q := Queue{NonPreemptive, Arrivals{Rates: []float64{0.4, 0.8}}, []PH{stiff, stiff}}
	r := testkit.Need(Solve(q, Options{Moments: 4, Percentiles: []float64{0.95}}))(t)
	s := known{"stiff", stiff, 0.5 * (1 + 1e-12), 1 + 1e-24}
	waits, sojourns := cobham(NonPreemptive, q.Arrivals.Rates, []known{s, s})
	for k, c := range r.Classes {
		agrees(t, "wait", c.Wait.Mean, waits[k], 1e-12)
		agrees(t, "sojourn", c.Sojourn.Mean, sojourns[k], 1e-12)
		if x := testkit.Need(c.Sojourn.cdf(c.Sojourn.Percentiles[0].At))(t); math.Abs(x-0.95) > 1e-9 {
			t.Errorf("class %d: the cdf at percentile 0.95 is %v", k, x)
		}
	}
}

// The trends of DIAS's task-level case: dropping maps of the low class shortens it by
// more than 70 % from 0 to 0.9, and helps the high class only without preemption.
func TestDIASTrends(t *testing.T) {
	t.Parallel()
	job := func(theta, mean float64) PH {
		return testkit.Need(TaskLevel(TaskModel{
			Slots: 20, Maps: Exactly(50), Reduces: Exactly(10), MapDrop: theta,
			MapMean: mean, ReduceMean: mean / 4, Setup: mean / 10, Shuffle: mean / 20,
		}))(t)
	}
	high, exact := job(0, 8.5), job(0, 20)
	rate := 0.8 / (0.9*exact.Mean() + 0.1*high.Mean())
	rates := []float64{0.9 * rate, 0.1 * rate}
	for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
		var lows, highs []float64
		for i, theta := range []float64{0, 0.1, 0.2, 0.4, 0.9} {
			low := job(theta, 20)
			if want := []int{62, 57, 52, 42, 17}[i]; low.Phases() != want {
				t.Errorf("theta %v leaves %d phases, want %d", theta, low.Phases(), want)
			}
			r := testkit.Need(Solve(Queue{d, Arrivals{Rates: rates}, []PH{low, high}}, Options{}))(t)
			lows, highs = append(lows, r.Classes[0].Sojourn.Mean), append(highs, r.Classes[1].Sojourn.Mean)
		}
		if fall := 1 - lows[4]/lows[0]; fall < 0.7 {
			t.Errorf("%s: the low mean falls by %.0f %%, want 70 or more: %v", d, 100*fall, lows)
		}
		for i := 1; i < len(lows); i++ {
			if !(lows[i] < lows[i-1]) {
				t.Errorf("%s: dropping more does not shorten the low class: %v", d, lows)
			}
			if d == PreemptiveResume && highs[i] != highs[0] || d == NonPreemptive && !(highs[i] < highs[i-1]) {
				t.Errorf("%s: the high class goes %v", d, highs)
			}
		}
	}
}

// A simulation of the same queue agrees with the solution, for each discipline: with Poisson
// arrivals, and with bursts before services of all kinds.
func TestSolutionAgreesWithSimulation(t *testing.T) {
	t.Parallel()
	h := testkit.Need(hyper([]float64{0.8, 0.2}, []float64{4, 0.25}))(t)
	for name, c := range map[string]struct {
		arrivals Arrivals
		services []PH
		jobs     int
	}{
		"poisson": {Arrivals{Rates: []float64{0.3, 0.2, 0.2}}, []PH{h, testkit.Need(Erlang(3, 3))(t), h}, 15_000},
		"bursts":  {Arrivals{D: bursty(t, 3, 0.8)}, threeServices(t), 50_000},
	} {
		for _, d := range []Discipline{NonPreemptive, PreemptiveResume} {
			q := Queue{d, c.arrivals, c.services}
			o := Options{Moments: 2, Percentiles: []float64{0.95}}
			solved := testkit.Need(Solve(q, o))(t)
			seen := testkit.Need(Simulate(q, Simulation{Jobs: c.jobs, Replications: 20, Options: o}, rand.New(rand.NewPCG(7, 1))))(t)
			for k, c := range solved.Classes {
				for what, pair := range map[string][2]any{"wait": {c.Wait, seen.Classes[k].Wait}, "sojourn": {c.Sojourn, seen.Classes[k].Sojourn}} {
					m, s := pair[0].(Measure), pair[1].(SimulatedMeasure)
					what = fmt.Sprintf("%s %s class %d %s", name, d, k, what)
					inside(t, what+" mean", m.Mean, s.Mean)
					inside(t, what+" second moment", m.Moments[1], s.Moments[1])
					inside(t, what+" p95", m.Percentiles[0].At, s.Percentiles[0].At)
					if half := s.Mean.High - s.Mean.Value; half > 0.2*m.Mean {
						t.Errorf("%s: the mean is simulated to +- %v only", what, half)
					}
				}
			}
			inside(t, name+" rho", solved.Rho, seen.Rho)
		}
	}
}

// inside fails unless the value is within twice the interval's width: of the some forty
// intervals of a test one in twenty misses.
func inside(t testing.TB, what string, value float64, seen Interval) {
	t.Helper()
	if half := seen.High - seen.Value; !(math.Abs(value-seen.Value) <= 2*half+1e-12) {
		t.Errorf("%s is %v, simulated %v +- %v", what, value, seen.Value, half)
	}
}
