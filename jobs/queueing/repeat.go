package queueing

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// PreemptiveRepeat kills the running job and puts it back at the head of its buffer; it
// starts again with the same work: "p". DIAS's baseline P. It can only be simulated.
const PreemptiveRepeat Discipline = "p"

// Simulation states how much to simulate.
type Simulation struct {
	// Jobs is how many jobs arrive in a replication; the first tenth is not counted.
	// 0 is 20 000.
	Jobs int
	// Replications, each from an empty server, give the intervals; 0 is 10.
	Replications int
	Options
}

// Bounds of a [Simulation].
const (
	maxSimulated    = 20_000_000
	maxReplications = 1000
	// Left over at the end of a replication, more jobs than this part of all that came
	// mean that they come faster than they go.
	backlogMost, backlogLeast = 0.02, 200
)

// Interval is a simulated value with the bounds of its 95 % confidence interval.
type Interval struct{ Value, Low, High float64 }

// Simulated is what a simulation saw.
type Simulated struct {
	// Rho is the part of the time in which the server works, killed runs included.
	Rho Interval
	// Waste is the server's time for killed runs as a part of all its work.
	Waste   Interval
	Classes []SimulatedClass
}

// SimulatedClass is one class; the meanings are those of [ClassResult]. A wait ends with
// the first run, also where that is killed. Of a class with 0 Jobs nothing is known: its
// values are NaN.
type SimulatedClass struct {
	// Jobs were counted, in all replications.
	Jobs          int
	Sojourn, Wait SimulatedMeasure
}

// SimulatedMeasure is a [Measure] with intervals.
type SimulatedMeasure struct {
	Mean        Interval
	Moments     []Interval
	Percentiles []SimulatedPercentile
}

// SimulatedPercentile is a [Percentile] with its interval.
type SimulatedPercentile struct {
	P  float64
	At Interval
}

// Simulate runs the queue under any of the disciplines; the same source gives the same
// answer. Below Poisson arrivals an unstable queue is refused before it runs, by the
// exact load with repeated runs; below other arrivals, by the jobs that were left over.
func Simulate(q Queue, s Simulation, from Source) (Simulated, error) {
	if err := s.check(&q); err != nil {
		return Simulated{}, err
	}
	if err := q.checkRepeatedLoad(); err != nil {
		return Simulated{}, err
	}
	arrivals, err := newArriving(q.Arrivals)
	if err != nil {
		return Simulated{}, err
	}
	samplers := make([]*sampler, len(q.Services))
	for k, p := range q.Services {
		samplers[k] = newSampler(p)
	}
	runs := make([]*replication, s.Replications)
	for i := range runs {
		runs[i] = &replication{
			discipline: q.Discipline, arrivals: arrivals.begin(from), services: samplers, from: from,
			buffers: make([]buffer, len(q.Services)), waits: make([][]float64, len(q.Services)), sojourns: make([][]float64, len(q.Services)),
		}
		if err := runs[i].run(s.Jobs); err != nil {
			return Simulated{}, err
		}
	}
	return summary(runs, s), nil
}

// check fills in what is usual and refuses what is not possible.
func (s *Simulation) check(q *Queue) error {
	if s.Jobs == 0 {
		s.Jobs = 20_000
	}
	if s.Replications == 0 {
		s.Replications = 10
	}
	if s.Moments == 0 {
		s.Moments = 1
	}
	switch {
	case q.Discipline != NonPreemptive && q.Discipline != PreemptiveResume && q.Discipline != PreemptiveRepeat:
		return bad("discipline", "is %q; want %s, %s or %s", q.Discipline, NonPreemptive, PreemptiveResume, PreemptiveRepeat)
	case s.Replications < 2 || s.Replications > maxReplications:
		return bad("replications", "are %d; must be from 2 to %d", s.Replications, maxReplications)
	case s.Jobs < 100 || s.Jobs > maxSimulated/s.Replications:
		return bad("jobs", "are %d; must be from 100 to %d in each of %d replications", s.Jobs, maxSimulated/s.Replications, s.Replications)
	}
	if err := s.Options.check(); err != nil {
		return err
	}
	return q.checkParts()
}

// checkRepeatedLoad refuses an unstable queue below Poisson arrivals.
func (q Queue) checkRepeatedLoad() error {
	if q.Arrivals.D != nil {
		return nil
	}
	rho := 0.0
	for k, service := range q.Services {
		kills := 0.0
		if q.Discipline == PreemptiveRepeat {
			kills = mass(q.Arrivals.Rates[k+1:])
		}
		if q.Arrivals.Rates[k] > 0 {
			rho += q.Arrivals.Rates[k] * service.repeated(kills)
		}
	}
	if !(rho < 1) {
		return &UnstableError{Rho: rho}
	}
	return nil
}

// repeated returns the mean server time of a job that starts again, with the same work B, at
// each arrival of a Poisson stream of that rate: E[(exp(rate B)-1)/rate], which is
// alpha (-A - rate I)^-1 1, infinite unless the matrix is a regular M-matrix (its
// solution is then positive).
func (p PH) repeated(rate float64) float64 {
	n := p.Phases()
	m, ones := mat.NewDense(n, n, nil), mat.NewVecDense(n, nil)
	m.Scale(-1, p.A)
	for i := range n {
		m.Set(i, i, m.At(i, i)-rate)
		ones.SetVec(i, 1)
	}
	var x mat.VecDense
	if x.SolveVec(m, ones) != nil || !(mat.Min(&x) > 0) {
		return math.Inf(1)
	}
	return dot(p.Alpha, x.RawVector().Data)
}

// job is one arrival. Under preemptive resume left falls below work.
type jobRun struct {
	class               int
	arrived, work, left float64
	started             bool
	counted             bool
}

// buffer is a queue that can also be put back to.
type buffer struct {
	jobs []*jobRun
	head int
}

func (b *buffer) empty() bool { return b.head == len(b.jobs) }

func (b *buffer) put(j *jobRun) { b.jobs = append(b.jobs, j) }

// putBack puts a job that was taken last at the head again.
func (b *buffer) putBack(j *jobRun) {
	b.head--
	b.jobs[b.head] = j
}

func (b *buffer) take() *jobRun {
	j := b.jobs[b.head]
	b.head++
	// A slot is kept before the head for the job in service, should it come back.
	if b.head > 1024 && b.head > len(b.jobs)/2 {
		b.jobs = append(b.jobs[:0], b.jobs[b.head-1:]...)
		b.head = 1
	}
	return j
}

// replication is one run of the queue from empty.
type replication struct {
	discipline Discipline
	arrivals   arrivalStream
	services   []*sampler
	from       Source
	buffers    []buffer
	running    *jobRun
	began, now float64
	waiting    int // jobs in the buffers
	open       int // counted jobs that have not left
	// Since counting began: when it did, and the server's time.
	since, busy, wasted float64
	counting            bool
	waits, sojourns     [][]float64
}

// run lets jobs arrive, of which the first tenth is not counted, and then more until the
// last counted one has left.
func (r *replication) run(jobs int) error {
	for n := 0; n < jobs || r.open > 0; n++ {
		if n == jobs && r.waiting > backlogLeast && float64(r.waiting) > backlogMost*float64(jobs) || n > 3*jobs {
			return &NumericError{
				What: fmt.Sprintf("unstable: %d jobs were still queued after %d arrivals", r.waiting, n),
				Hint: "lower the arrival rates or shorten the service times; near load 1, simulate more jobs",
			}
		}
		if n == jobs/10 {
			r.settleAccounts()
			r.counting, r.since, r.busy, r.wasted = true, r.now, 0, 0
		}
		at, class := r.arrivals.next()
		r.serveUntil(at)
		r.arrive(class, r.counting && n < jobs)
	}
	r.settleAccounts()
	return nil
}

// serveUntil ends the jobs that end before the time.
func (r *replication) serveUntil(at float64) {
	for r.running != nil && r.began+r.running.left <= at {
		r.now = r.began + r.running.left
		r.busy += r.running.left
		j := r.running
		if j.counted {
			r.sojourns[j.class] = append(r.sojourns[j.class], r.now-j.arrived)
			r.open--
		}
		r.running = nil
		r.dispatch()
	}
	r.now = at
}

// settleAccounts books the work of the running job so far.
func (r *replication) settleAccounts() {
	if r.running != nil && r.discipline != PreemptiveRepeat {
		r.busy += r.now - r.began
		r.running.left -= r.now - r.began
		r.began = r.now
	}
}

func (r *replication) arrive(class int, counted bool) {
	j := &jobRun{class: class, arrived: r.now, work: r.services[class].sample(r.from), counted: counted}
	j.left = j.work
	if counted {
		r.open++
	}
	r.buffers[class].put(j)
	r.waiting++
	if r.running != nil && r.running.class < class && r.discipline != NonPreemptive {
		r.preempt()
	}
	if r.running == nil {
		r.dispatch()
	}
}

func (r *replication) preempt() {
	j, ran := r.running, r.now-r.began
	r.busy += ran
	if r.discipline == PreemptiveRepeat {
		r.wasted += ran
	} else {
		j.left -= ran
	}
	r.buffers[j.class].putBack(j)
	r.waiting++
	r.running = nil
}

// dispatch starts the head of the highest buffer that has one.
func (r *replication) dispatch() {
	for k := len(r.buffers) - 1; k >= 0; k-- {
		if r.buffers[k].empty() {
			continue
		}
		j := r.buffers[k].take()
		r.waiting--
		if !j.started && j.counted {
			r.waits[k] = append(r.waits[k], r.now-j.arrived)
		}
		j.started, r.running, r.began = true, j, r.now
		return
	}
}

// arrivalStream tells when the next job comes, and of which class.
type arrivalStream interface {
	next() (at float64, class int)
}

// arriving is laid out for drawing: a chain with, per state, what follows.
type arriving struct {
	rate   []float64   // of leaving a state, by an arrival or not
	follow [][]float64 // sums of the probabilities
	class  [][]int     // -1 for a change without an arrival
	state  [][]int
}

func newArriving(a Arrivals) (*arriving, error) {
	d := a.D
	if d == nil {
		d = []*mat.Dense{mat.NewDense(1, 1, []float64{-mass(a.Rates)})}
		for _, rate := range a.Rates {
			d = append(d, mat.NewDense(1, 1, []float64{rate}))
		}
	}
	if d[0] == nil || d[0].IsEmpty() {
		return nil, bad("arrivals.D[0]", "is empty")
	}
	n, _ := d[0].Dims()
	arrive := &arriving{rate: make([]float64, n), follow: make([][]float64, n), class: make([][]int, n), state: make([][]int, n)}
	for c, m := range d {
		if m == nil {
			return nil, bad(fmt.Sprintf("arrivals.D[%d]", c), "is missing")
		}
		if rows, columns := m.Dims(); rows != n || columns != n {
			return nil, bad(fmt.Sprintf("arrivals.D[%d]", c), "is %d by %d, not %d by %d as D[0]", rows, columns, n, n)
		}
		for i := range n {
			for j := range n {
				x := m.At(i, j)
				if c == 0 && i == j || x == 0 {
					continue
				}
				if !(x > 0) || math.IsInf(x, 1) {
					return nil, bad(fmt.Sprintf("arrivals.D[%d][%d][%d]", c, i, j), "is %v; a rate is at least 0 and finite", x)
				}
				arrive.rate[i] += x
				arrive.follow[i] = append(arrive.follow[i], arrive.rate[i])
				arrive.class[i], arrive.state[i] = append(arrive.class[i], c-1), append(arrive.state[i], j)
			}
		}
	}
	for i, rate := range arrive.rate {
		if x := d[0].At(i, i); !(math.Abs(rate+x) <= tolerance*rate) || rate == 0 {
			return nil, bad(fmt.Sprintf("arrivals.D[0][%d][%d]", i, i), "is %v; it must be minus the other rates of row %d in all matrices, %v", x, i, -rate)
		}
	}
	return arrive, nil
}

// begin starts a stream in state 0.
func (a *arriving) begin(from Source) arrivalStream { return &arrivingNow{arriving: a, from: from} }

type arrivingNow struct {
	*arriving
	from  Source
	at    float64
	state int
}

func (a *arrivingNow) next() (float64, int) {
	for {
		i := a.state
		a.at += a.from.ExpFloat64() / a.rate[i]
		k := min(pick(a.follow[i], a.from.Float64()*a.rate[i]), len(a.follow[i])-1)
		a.state = a.arriving.state[i][k]
		if c := a.class[i][k]; c >= 0 {
			return a.at, c
		}
	}
}

// summary puts the replications together.
func summary(runs []*replication, s Simulation) Simulated {
	var rho, waste []float64
	for _, r := range runs {
		rho = append(rho, r.busy/(r.now-r.since))
		waste = append(waste, r.wasted/r.busy)
	}
	out := Simulated{Rho: studentInterval(rho), Waste: studentInterval(waste)}
	for k := range runs[0].buffers {
		c := SimulatedClass{}
		var waits, sojourns [][]float64
		for _, r := range runs {
			c.Jobs += len(r.sojourns[k])
			waits, sojourns = append(waits, r.waits[k]), append(sojourns, r.sojourns[k])
		}
		c.Wait, c.Sojourn = measured(waits, s.Options), measured(sojourns, s.Options)
		out.Classes = append(out.Classes, c)
	}
	return out
}

// measured returns a measure from the times of each replication. A class without jobs has
// NaN for unknown.
func measured(runs [][]float64, o Options) SimulatedMeasure {
	var m SimulatedMeasure
	for i := range o.Moments {
		m.Moments = append(m.Moments, over(runs, func(times []float64) float64 {
			sum := 0.0
			for _, t := range times {
				sum += math.Pow(t, float64(i+1))
			}
			return sum / float64(len(times))
		}))
	}
	m.Mean = m.Moments[0]
	for _, times := range runs {
		slices.Sort(times)
	}
	for _, p := range o.Percentiles {
		at := over(runs, func(times []float64) float64 {
			return times[min(len(times)-1, int(math.Ceil(p*float64(len(times))))-1)]
		})
		m.Percentiles = append(m.Percentiles, SimulatedPercentile{P: p, At: at})
	}
	return m
}

// over returns the interval of a value over the replications that have times.
func over(runs [][]float64, value func(times []float64) float64) Interval {
	var values []float64
	for _, times := range runs {
		if len(times) > 0 {
			values = append(values, value(times))
		}
	}
	return studentInterval(values)
}

// studentInterval returns Student's, over independent replications.
func studentInterval(values []float64) Interval {
	n := float64(len(values))
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	mean, squares := mass(values)/n, 0.0
	for _, x := range values {
		squares += (x - mean) * (x - mean)
	}
	if n < 2 {
		return Interval{mean, math.Inf(-1), math.Inf(1)}
	}
	half := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * math.Sqrt(squares/(n-1)/n)
	return Interval{mean, mean - half, mean + half}
}
