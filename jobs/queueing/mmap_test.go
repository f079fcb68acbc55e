// Claims: with Poisson arrivals the general solver gives what the Poisson solver does; with
// other arrivals it gives what chains solved by other means give (a quasi birth-death
// process, two classes on a grid) and what a simulation finds; work is conserved at any
// load; the highest class sees nobody else; correlated arrivals wait longer; what cannot be
// solved to the digits promised is refused.
package queueing

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"headroom/internal/testkit"

	"gonum.org/v1/gonum/mat"
)

// square is a matrix of numbers, row by row.
func square(x ...float64) *mat.Dense {
	n := int(math.Sqrt(float64(len(x))))
	return mat.NewDense(n, n, x)
}

// bursty are arrivals of some classes with rates that sum to rate, from three phases that
// differ in how many jobs and of which class they bring; moves bring jobs too.
func bursty(t *testing.T, classes int, rate float64) []*mat.Dense {
	t.Helper()
	d := []*mat.Dense{square(0, 0.2, 0.05, 0.01, 0, 0.03, 0.1, 0, 0)}
	for k := range classes {
		x := float64(k + 1)
		d = append(d, square(3/x, 0, 0.1, 0, 0.3*x, 0.02*x, 0.02, 0.02/x, 0.2))
	}
	return scaled(t, d, rate)
}

// scaled sets the diagonal of d[0] and the total rate of jobs.
func scaled(t *testing.T, d []*mat.Dense, rate float64) []*mat.Dense {
	t.Helper()
	n, _ := d[0].Dims()
	for i := range n {
		out := 0.0
		for _, dk := range d {
			out += mat.Sum(dk.RowView(i))
		}
		d[0].Set(i, i, d[0].At(i, i)-out)
	}
	factor := rate / mass(testkit.Need(newMMAP(d))(t).classes)
	for _, dk := range d {
		dk.Scale(factor, dk)
	}
	return d
}

func solveD(t *testing.T, discipline Discipline, d []*mat.Dense, o Options, services ...PH) Result {
	t.Helper()
	return testkit.Need(Solve(Queue{Discipline: discipline, Arrivals: Arrivals{D: d}, Services: services}, o))(t)
}

func threeServices(t *testing.T) []PH {
	t.Helper()
	return []PH{
		testkit.Need(Erlang(3, 3))(t), testkit.Need(hyper([]float64{0.3, 0.7}, []float64{0.5, 2}))(t),
		testkit.Need(NewPH([]float64{0.6, 0.4, 0}, [][]float64{{-3, 1, 0.5}, {0.2, -2, 1}, {1, 0, -4}}))(t),
	}
}

// One phase, also at 62 phases a service, and three phases that all bring the same jobs are
// Poisson arrivals: moments to 1e-9, percentiles to 1e-7, under both disciplines.
func TestMMAPIsPoisson(t *testing.T) {
	t.Parallel()
	rates := []float64{0.3, 0.2, 0.25}
	three := []*mat.Dense{square(-1.05, 0.1, 0.2, 2, -2.75, 0, 0, 5, -5.75)}
	for _, rate := range rates {
		three = append(three, square(rate, 0, 0, 0, rate, 0, 0, 0, rate))
	}
	long := []PH{diasJob(t, 0, 0.15), diasJob(t, 0.2, 0.1)}
	for name, c := range map[string]struct {
		d        []*mat.Dense
		services []PH
	}{
		"one phase":    {[]*mat.Dense{square(-0.75), square(0.3), square(0.2), square(0.25)}, threeServices(t)},
		"three phases": {three, threeServices(t)},
		"long":         {[]*mat.Dense{square(-0.5), square(0.3), square(0.2)}, long},
	} {
		o := Options{Moments: 3, Percentiles: []float64{0.5, 0.95, 0.999}}
		for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
			want := testkit.Need(Solve(Queue{Discipline: discipline, Arrivals: Arrivals{Rates: rates[:len(c.services)]}, Services: c.services}, o))(t)
			got := solveD(t, discipline, c.d, o, c.services...)
			agrees(t, "rho", got.Rho, want.Rho, 1e-12)
			for k := range c.services {
				sameMeasure(t, name+" "+string(discipline)+" wait", got.Classes[k].Wait, want.Classes[k].Wait)
				sameMeasure(t, name+" "+string(discipline)+" sojourn", got.Classes[k].Sojourn, want.Classes[k].Sojourn)
			}
		}
	}
}

func sameMeasure(t *testing.T, what string, got, want Measure) {
	t.Helper()
	agrees(t, what+" mean", got.Mean, want.Mean, 1e-9)
	for i := range want.Moments {
		agrees(t, what+" moment", got.Moments[i], want.Moments[i], 1e-9)
	}
	for i := range want.Percentiles {
		agrees(t, what+" percentile", got.Percentiles[i].At, want.Percentiles[i].At, 1e-7)
	}
	gotNone, wantNone := testkit.Need(got.cdf(0))(t), testkit.Need(want.cdf(0))(t)
	if math.Abs(gotNone-wantNone) > 1e-9 {
		t.Errorf("%s is 0 with probability %v, want %v", what, gotNone, wantNone)
	}
}

// birthDeath solves MAP/M/1 by its rate matrix R, the limit of R = -(D1 + mu R^2) B^-1, and
// gives the phases of arriving jobs by the number that they meet, until they are rare.
func birthDeath(t *testing.T, d []*mat.Dense, mu float64) [][]float64 {
	t.Helper()
	n, _ := d[0].Dims()
	var stay, inverse, r, next mat.Dense
	stay.CloneFrom(d[0])
	for i := range n {
		stay.Set(i, i, stay.At(i, i)-mu)
	}
	testkit.Check(t, inverse.Inverse(&stay))
	r.CloneFrom(mat.NewDense(n, n, nil))
	for range 5000 {
		next.Mul(&r, &r)
		next.Scale(-mu, &next)
		next.Sub(&next, d[1])
		var product mat.Dense
		product.Mul(&next, &inverse)
		r.CloneFrom(&product)
	}
	// x0 (D0 + mu R) = 0, x0 (I - R)^-1 1 = 1.
	var empty, left mat.Dense
	empty.Scale(mu, &r)
	empty.Add(&empty, d[0])
	x := stationary(rowsOf(&empty))
	left.Sub(eye(n), &r)
	testkit.Check(t, inverse.Inverse(&left))
	var all mat.Dense
	all.Mul(mat.NewDense(1, n, x), &inverse)
	row := mat.NewDense(1, n, x)
	row.Scale(1/mat.Sum(&all), row)
	rate := testkit.Need(newMMAP(d))(t).classes[0]
	var met [][]float64
	for level := 0; level < 100 || mat.Sum(row) > 1e-16; level++ {
		var at, up mat.Dense
		at.Mul(row, d[1])
		at.Scale(1/rate, &at)
		met = append(met, at.RawRowView(0))
		up.Mul(row, &r)
		row = mat.DenseCopyOf(&up)
	}
	return met
}

func eye(n int) *mat.Dense {
	m := mat.NewDense(n, n, nil)
	for i := range n {
		m.Set(i, i, 1)
	}
	return m
}

// erlangTail is the probability that n exponential times take longer than t in sum.
func erlangTail(n int, jumps float64) float64 {
	total, term := 0.0, math.Exp(-jumps)
	for i := range n {
		total += term
		term *= jumps / float64(i+1)
	}
	return total
}

// A Markov-modulated process, one whose moves bring jobs, and two independent ones
// superposed before exponential service, against the birth-death process: means to 1e-9,
// the 95th percentile to 1e-7.
func TestMMAPIsBirthDeath(t *testing.T) {
	t.Parallel()
	modulated := []*mat.Dense{square(-1.02, 0.02, 0.05, -0.15), square(1, 0, 0, 0.1)}
	moving := bursty(t, 1, 0.6)
	superposed := superpose(modulated, moving)
	for name, c := range map[string]struct {
		d  []*mat.Dense
		mu float64
	}{"modulated": {modulated, 1}, "moving": {moving, 1}, "superposed": {superposed, 1.4}} {
		met := birthDeath(t, c.d, c.mu)
		wait, second, delayed := 0.0, 0.0, 0.0
		for n, x := range met {
			wait += mass(x) * float64(n) / c.mu
			second += mass(x) * float64(n*(n+1)) / c.mu / c.mu
			if n > 0 {
				delayed += mass(x)
			}
		}
		for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
			got := solveD(t, discipline, c.d, Options{Moments: 2, Percentiles: []float64{0.95}}, testkit.Need(exponential(c.mu))(t)).Classes[0]
			agrees(t, name+" wait", got.Wait.Mean, wait, 1e-9)
			agrees(t, name+" wait squared", got.Wait.Moments[1], second, 1e-9)
			agrees(t, name+" sojourn", got.Sojourn.Mean, wait+1/c.mu, 1e-9)
			agrees(t, name+" starts at once", testkit.Need(got.Wait.cdf(0))(t), 1-delayed, 1e-9)
			search := quantiles{mean: wait, law: func(at float64) (float64, float64, error) {
				tail := 0.0
				for n, x := range met {
					tail += mass(x) * erlangTail(n, c.mu*at)
				}
				return 1 - tail, math.NaN(), nil
			}}
			want := testkit.Need(search.find(0.95))(t)
			agrees(t, name+" 95th percentile", got.Wait.Percentiles[0].At, want, 1e-7)
		}
	}
}

// superpose is the process of all arrivals of a and b, which are independent and have the
// same classes: the Kronecker sums of their matrices.
func superpose(a, b []*mat.Dense) (d []*mat.Dense) {
	for k := range a {
		n, _ := a[k].Dims()
		m, _ := b[k].Dims()
		one := func(order int) *mat.Dense {
			i := mat.NewDense(order, order, nil)
			for x := range order {
				i.Set(x, x, 1)
			}
			return i
		}
		var left, right mat.Dense
		left.Kronecker(a[k], one(m))
		right.Kronecker(one(n), b[k])
		left.Add(&left, &right)
		d = append(d, &left)
	}
	return d
}

// grid is the chain of two classes with exponential services: the numbers of jobs below
// gridMost each, the phase, and which class is served.
type grid struct {
	d       []*mat.Dense
	mu      [2]float64
	preempt bool
}

const gridMost = 34

type gridState struct{ low, high, phase, served int }

func (g grid) index(s gridState) int {
	n, _ := g.d[0].Dims()
	return ((s.low*gridMost+s.high)*n+s.phase)*2 + s.served
}

// next is who is served after s changed; the one served stays if it may.
func (g grid) next(s gridState, goesOn bool) gridState {
	switch {
	case goesOn && !g.preempt:
	case s.high > 0:
		s.served = 1
	default:
		s.served = 0
	}
	return s
}

// moves calls to for every move out of s. Jobs that find the grid full are lost.
func (g grid) moves(s gridState, to func(s gridState, rate float64)) {
	n, _ := g.d[0].Dims()
	for j := range n {
		for k := range g.d {
			after, rate := s, g.d[k].At(s.phase, j)
			after.phase = j
			switch {
			case k == 0 && j == s.phase || rate == 0:
				continue
			case k == 1:
				after.low = min(s.low+1, gridMost-1)
			case k == 2:
				after.high = min(s.high+1, gridMost-1)
			}
			to(g.next(after, s.low+s.high > 0), rate)
		}
	}
	if s.served == 1 && s.high > 0 {
		after := s
		after.high--
		to(g.next(after, false), g.mu[1])
	}
	if s.served == 0 && s.low > 0 {
		after := s
		after.low--
		to(g.next(after, false), g.mu[0])
	}
}

// numbers are the mean numbers of jobs of the classes in the system, by Gauss and Seidel.
func (g grid) numbers() (low, high float64) {
	n, _ := g.d[0].Dims()
	type entry struct {
		from int
		rate float64
	}
	size := gridMost * gridMost * n * 2
	into, out, states := make([][]entry, size), make([]float64, size), make([]gridState, size)
	for i := range size {
		s := gridState{i / 2 / n / gridMost, i / 2 / n % gridMost, i / 2 % n, i % 2}
		states[i] = s
		if s.served == 1 && s.high == 0 || s.served == 0 && s.low == 0 && s.high > 0 {
			continue // cannot be
		}
		g.moves(s, func(to gridState, rate float64) {
			if j := g.index(to); j != i {
				into[j] = append(into[j], entry{i, rate})
				out[i] += rate
			}
		})
	}
	p := make([]float64, size)
	for i := range p {
		if out[i] > 0 {
			p[i] = 1
		}
	}
	for range 2000 {
		most := 0.0
		for i := range p {
			if out[i] == 0 {
				continue
			}
			x := 0.0
			for _, e := range into[i] {
				x += p[e.from] * e.rate
			}
			x /= out[i]
			most = max(most, math.Abs(x-p[i]))
			p[i] = x
		}
		total := mass(p)
		for i := range p {
			p[i] /= total
		}
		if most < 1e-16 {
			break
		}
	}
	for i, x := range p {
		low += x * float64(states[i].low)
		high += x * float64(states[i].high)
	}
	return low, high
}

// Two classes with correlated arrivals, also between the classes, against the chain of all
// their numbers: mean sojourn times by Little's law to 1e-8 (what the grid cuts off).
func TestMMAPIsGrid(t *testing.T) {
	t.Parallel()
	arrivals := scaled(t, []*mat.Dense{square(0, 0.3, 0.1, 0), square(0.4, 0.1, 0, 0.05), square(0.05, 0, 0.2, 0.4)}, 0.4)
	rates := testkit.Need(newMMAP(arrivals))(t).classes
	mu := [2]float64{1, 1.6}
	services := []PH{testkit.Need(exponential(mu[0]))(t), testkit.Need(exponential(mu[1]))(t)}
	for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
		low, high := grid{arrivals, mu, discipline == PreemptiveResume}.numbers()
		got := solveD(t, discipline, arrivals, Options{}, services...)
		agrees(t, string(discipline)+" low", got.Classes[0].Sojourn.Mean, low/rates[0], 1e-8)
		agrees(t, string(discipline)+" high", got.Classes[1].Sojourn.Mean, high/rates[1], 1e-8)
	}
}

// The work in the system does not depend on the order of service. Without preemption it is
// what waits, jobs times their mean length, and what is left of the one served.
func TestMMAPConservesWork(t *testing.T) {
	t.Parallel()
	services := threeServices(t)
	for load, tolerance := range map[float64]float64{0.3: 1e-9, 0.9: 1e-9, 0.999: 1e-9, 0.99999: 1e-8} {
		d := bursty(t, 3, 1)
		rates := testkit.Need(newMMAP(d))(t).classes
		offered := 0.0
		for k, p := range services {
			offered += rates[k] * p.Mean()
		}
		for _, dk := range d {
			dk.Scale(load/offered, dk)
		}
		var work []float64
		for _, order := range [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			turned, sorted := []*mat.Dense{d[0]}, []PH{}
			for _, k := range order {
				turned, sorted = append(turned, d[k+1]), append(sorted, services[k])
			}
			got := solveD(t, NonPreemptive, turned, Options{}, sorted...)
			total := 0.0
			for i, k := range order {
				total += load / offered * rates[k] * got.Classes[i].Wait.Mean * services[k].Mean()
			}
			work = append(work, total)
		}
		agrees(t, "work, turned around", work[1], work[0], tolerance)
		agrees(t, "work, in another order", work[2], work[0], tolerance)
		// All as one class in order of arrival: the services of the classes differ in
		// mean, so only with one service for all is that the same queue.
		same := []PH{services[1], services[1], services[1]}
		var all mat.Dense
		all.Add(d[1], d[2])
		all.Add(&all, d[3])
		if services[1].Mean()*load/offered*mass(rates) >= 1 {
			continue
		}
		one := solveD(t, NonPreemptive, []*mat.Dense{d[0], &all}, Options{}, same[0]).Classes[0].Wait.Mean
		three := solveD(t, NonPreemptive, d, Options{}, same...)
		mixed := 0.0
		for k := range same {
			mixed += rates[k] / mass(rates) * three.Classes[k].Wait.Mean
		}
		agrees(t, "mean wait of all classes", mixed, one, tolerance)
	}
}

// The same for arrivals, services, classes and loads drawn at random; every distribution
// rises and is where its percentile says.
func TestMMAPLaws(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 22))
	for range 25 {
		classes := 1 + r.IntN(3)
		d := randomArrivals(r, 1+r.IntN(4), classes)
		var services []PH
		for range classes {
			services = append(services, testkit.Need(Fit(0.2+r.Float64(), 0.3+4*r.Float64()))(t))
		}
		d = scaled(t, d, 1)
		rates, offered := testkit.Need(newMMAP(d))(t).classes, 0.0
		for k, p := range services {
			offered += rates[k] * p.Mean()
		}
		load := 0.05 + 0.9*r.Float64()
		for _, dk := range d {
			dk.Scale(load/offered, dk)
		}
		turned, sorted := []*mat.Dense{d[0]}, []PH{}
		for k := classes; k > 0; k-- {
			turned, sorted = append(turned, d[k]), append(sorted, services[k-1])
		}
		agrees(t, "work, turned around", workWaiting(t, turned, sorted), workWaiting(t, d, services), 1e-9)
	}
}

// randomArrivals are rates of all sizes; the phases form a circle at least.
func randomArrivals(r *rand.Rand, phases, classes int) []*mat.Dense {
	d := make([]*mat.Dense, classes+1)
	for k := range d {
		d[k] = mat.NewDense(phases, phases, nil)
		for i := range phases {
			for j := range phases {
				if k > 0 || i != j {
					d[k].Set(i, j, math.Pow(r.Float64(), 4))
				}
			}
		}
		if phases > 1 {
			for i := range phases {
				d[k].Set(i, (i+1)%phases, 1e-2+d[k].At(i, (i+1)%phases))
			}
		}
	}
	return d
}

// workWaiting is the mean work of the jobs that wait; it checks the distributions too.
func workWaiting(t *testing.T, d []*mat.Dense, services []PH) float64 {
	t.Helper()
	got := solveD(t, NonPreemptive, d, Options{Percentiles: []float64{0.95}}, services...)
	rates, total := testkit.Need(newMMAP(d))(t).classes, 0.0
	for k, c := range got.Classes {
		total += rates[k] * c.Wait.Mean * services[k].Mean()
		at := c.Sojourn.Percentiles[0].At
		before, there, after := testkit.Need(c.Sojourn.cdf(at/2))(t), testkit.Need(c.Sojourn.cdf(at))(t), testkit.Need(c.Sojourn.cdf(2*at))(t)
		if math.Abs(there-0.95) > 1e-9 || !(before >= 0 && before < there && there < after && after <= 1) {
			t.Errorf("class %d: %v, %v, %v at half, once and twice the 95th percentile", k, before, there, after)
		}
	}
	return total
}

// Under preemption the highest class waits as if alone, and leaving out the lowest class
// changes nothing for the others.
func TestMMAPPreemptionHidesLower(t *testing.T) {
	t.Parallel()
	services, d := threeServices(t), bursty(t, 3, 0.9)
	o := Options{Moments: 2, Percentiles: []float64{0.95}}
	whole := solveD(t, PreemptiveResume, d, o, services...)
	var hidden mat.Dense
	hidden.Add(d[0], d[1])
	upper := solveD(t, PreemptiveResume, []*mat.Dense{&hidden, d[2], d[3]}, o, services[1:]...)
	sameMeasure(t, "middle", upper.Classes[0].Sojourn, whole.Classes[1].Sojourn)
	sameMeasure(t, "middle waits", upper.Classes[0].Wait, whole.Classes[1].Wait)
	var lower mat.Dense
	lower.Add(&hidden, d[2])
	alone := solveD(t, NonPreemptive, []*mat.Dense{&lower, d[3]}, o, services[2])
	sameMeasure(t, "highest", alone.Classes[0].Sojourn, whole.Classes[2].Sojourn)
	sameMeasure(t, "highest waits", alone.Classes[0].Wait, whole.Classes[2].Wait)
}

// At the same rates, arrivals in bursts wait longer than Poisson arrivals, in every class
// and under both disciplines.
func TestMMAPBurstsWaitLonger(t *testing.T) {
	t.Parallel()
	services, d := threeServices(t), bursty(t, 3, 0.9)
	arrivals := testkit.Need(newMMAP(d))(t)
	for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
		burst := solveD(t, discipline, d, Options{}, services...)
		poisson := testkit.Need(Solve(Queue{Discipline: discipline, Arrivals: Arrivals{Rates: arrivals.classes}, Services: services}, Options{}))(t)
		for k := range services {
			if b, p := burst.Classes[k].Wait.Mean, poisson.Classes[k].Wait.Mean; b <= p {
				t.Errorf("%s class %d: bursts wait %v, Poisson %v", discipline, k, b, p)
			}
		}
	}
}

// What has no steady state or not enough digits is refused with the kind of its error.
func TestMMAPRefuses(t *testing.T) {
	t.Parallel()
	two := func(rate float64) []*mat.Dense {
		return scaled(t, []*mat.Dense{square(0, 0.3, 0.1, 0), square(1, 0, 0, 0.2)}, rate)
	}
	one := testkit.Need(exponential(1))(t)
	var unstable *UnstableError
	if _, err := Solve(Queue{Discipline: NonPreemptive, Arrivals: Arrivals{D: two(1.25)}, Services: []PH{one}}, Options{}); !errors.As(err, &unstable) || math.Abs(unstable.Rho-1.25) > 1e-9 {
		t.Errorf("a load of 1.25: %v", err)
	}
	stiff := scaled(t, []*mat.Dense{square(0, 1e-14, 1e-14, 0), square(1.9, 0, 0, 0.01)}, 0.9)
	cyclic := make([][]float64, cyclicPhasesMax+1)
	for i := range cyclic {
		cyclic[i] = make([]float64, len(cyclic))
		cyclic[i][i] = -3
		cyclic[i][(i+1)%len(cyclic)] = 1
		cyclic[i][(i+len(cyclic)-1)%len(cyclic)] = 1
	}
	alpha := make([]float64, len(cyclic))
	alpha[0] = 1
	long := testkit.Need(Erlang(300, 300))(t)
	wide := mat.NewDense(20, 20, nil)
	for i := range 20 {
		wide.Set(i, (i+1)%20, 1)
	}
	for name, c := range map[string]struct {
		d    []*mat.Dense
		p    PH
		says string
	}{
		"hardly stable": {two(1 - 1e-10), one, "rho is"},
		"near load 1":   {two(1 - 2e-6), one, "percentile 0.95 could be off"},
		"long phases":   {stiff, one, "rates that differ less"},
		"large cycle":   {two(0.1), testkit.Need(NewPH(alpha, cyclic))(t), "cyclic phases"},
		"too large":     {scaled(t, []*mat.Dense{mat.NewDense(20, 20, nil), wide}, 0.5), long, "too large"},
		"rare end":      {two(1e-10), testkit.Need(NewPH([]float64{1, 0, 0}, [][]float64{{-1, 0.3, 0.7}, {0.2, -1 - 1e-9, 0.8}, {0.9, 0.1, -1}}))(t), "too stiff"},
	} {
		for _, discipline := range []Discipline{NonPreemptive, PreemptiveResume} {
			_, err := Solve(Queue{Discipline: discipline, Arrivals: Arrivals{D: c.d}, Services: []PH{c.p}}, Options{Moments: 2, Percentiles: []float64{0.95}})
			var numeric *NumericError
			if !errors.As(err, &numeric) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %s: %v", name, discipline, err)
			}
		}
	}
}
