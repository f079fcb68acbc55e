package queueing

import (
	"fmt"
	"math"
	"math/cmplx"
)

// The solver of MMAP[K]/PH[K]/1 with priorities, classes from lowest to highest. Its parts,
// with D0..DK the arrivals, b_j(z) the transform of the time of class j (a matrix may stand
// for z) and rows and columns over the phases of the arrivals:
//
// Extension. While the server works off x units of work, newly come jobs of higher classes
// push in, and those of their busy periods. The phases over all that time, with its length
// transformed, move by exp(Q x), where Q = Q_k(s) is the smallest solution of
//
//	Q = D0 + sum_{j<=k} D_j - s I + sum_{j>k} D_j b_j(-Q),
//
// with b_j(-Q) the mean of exp(Q X_j).
//
// Work ahead. What class k finds before it, U, falls at rate 1 and jumps with the work of
// the classes k and up; under non-preemption it also jumps from 0 by the time of a lower
// job that starts. With p the phases while U rests at 0 and a_j those at the starts of the
// lower class j (per unit of time; none under preemption), all that enters and leaves each
// exp(Q U) in each phase i balances. For M_i = E[exp(Q U); phase i] and a column c, the
// columns x_i = M_i c make a matrix X with
//
//	X (D0 + sum_{j<k} D_j) + sum_{j>=k} b_j(-Q) X D_j - Q X = -Q c p + sum_{j<k} (c - b_j(-Q) c) a_j,
//
// because M_i and b_j(-Q) are functions of Q and so commute. With Q = U T U* in Schur form
// the rows follow one after the other, each from a system of the order of the arrivals only.
// Where T is nearly 0 these systems are nearly singular, at high load above all. So their
// last column gives way to the row sums: with r_j(Q) the mean of the integral of exp(Q x) to
// X_j, b_j(-Q) = I + Q r_j(Q), all is a multiple of Q, and without it
//
//	X 1 - sum_{j>=k} r_j(Q) X D_j 1 = c (p 1) + sum_{j<k} r_j(Q) c (a_j 1),
//
// which at 0 says that the idle part of the time is 1 - load.
//
// Delays. The time until class k starts has the transform tr(D_k X) / rate_k with c = 1;
// the sojourn time is that times b_k(s) without preemption, and with it the same trace for
// c = b_k(-Q) 1. For c the unit vectors the traces at s = 0 are a_k: the classes are solved
// from the lowest up. The phases at rest are p = (1 - load) times the stationary vector of
// Q_{k-1}(0) (preemptive) or Q_{-1}(0) (non-preemptive).
//
// Takine 1999, "The nonpreemptive priority MAP/G/1 queue"; Horvath 2015, "Efficient analysis
// of the MMAP[K]/PH[K]/1 priority queue". Neither an Erlang distribution stands in for a
// time here nor does any matrix have the order of the services.

// mmapQueue is an MMAP[K]/PH[K]/1 priority queue, classes from lowest to highest.
type mmapQueue struct {
	hidden     *matrix
	marked     []*matrix
	arriving   [][]complex128 // D_j 1: arrivals of a class per unit of time in each phase
	rates      []float64
	services   []*serviceWork
	preemptive bool
	classes    []workAhead
}

// workAhead is what decides the work that an arriving job of a class finds before it.
type workAhead struct {
	rest   []complex128   // phases while there is none
	starts [][]complex128 // phases at starts of the lower classes per unit of time; none under preemption
	radius float64        // the transforms of the delays are analytic this far around 0
}

// newMMAPQueue prepares the solution for all classes.
func newMMAPQueue(arrivals *MMAP, services []*serviceWork, preemptive bool) (*mmapQueue, error) {
	q := &mmapQueue{hidden: realMatrix(arrivals.hidden), rates: arrivals.classes, services: services, preemptive: preemptive}
	for _, rows := range arrivals.marked {
		marked := realMatrix(rows)
		q.marked, q.arriving = append(q.marked, marked), append(q.arriving, marked.applied(ones(marked.order)))
	}
	if err := checkLoad(q.load(0)); err != nil {
		return nil, err
	}
	if work := q.work(); work > workMax {
		return nil, &NumericError{
			What: fmt.Sprintf("a queue of %d classes with %d arrival phases and such services is too large: %.2g multiplications a step, %.2g at most",
				len(services), q.hidden.order, work, workMax),
			Hint: "use fewer phases (cost grows with the cube of arrival phases), merge classes, or simulate",
		}
	}
	var starts [][]complex128
	for k := range services {
		class, err := q.prepare(k, starts)
		if err != nil {
			return nil, err
		}
		q.classes = append(q.classes, class)
		if preemptive {
			continue
		}
		at, err := q.startsOf(k)
		if err != nil {
			return nil, err
		}
		starts = append(starts, at)
	}
	return q, nil
}

// workMax keeps a solution with a few percentiles within minutes: it takes some ten
// thousand steps.
const workMax = 1e6

// work returns the number of multiplications to take the transforms of the services once for
// every class.
func (q *mmapQueue) work() float64 {
	order, work := float64(q.hidden.order), 0.0
	for j, w := range q.services {
		entries := 0
		for _, row := range w.up {
			entries += len(row)
		}
		work += float64(j+1) * (float64(len(w.decay))*order + float64(entries)) * order * order
	}
	return work
}

// prepare finds the phases at rest and the radius of the class k.
func (q *mmapQueue) prepare(k int, starts [][]complex128) (workAhead, error) {
	from := 0
	if q.preemptive {
		from = k
	}
	rest, err := q.rest(from)
	if err != nil {
		return workAhead{}, err
	}
	radius, err := q.radius(k, from)
	return workAhead{rest: rest, starts: starts, radius: radius}, err
}

// load returns the load of the classes from a class up.
func (q *mmapQueue) load(from int) float64 {
	load := 0.0
	for j := from; j < len(q.services); j++ {
		load += q.rates[j] * q.services[j].mean
	}
	return load
}

// rest returns the phases while no class from a class up is served: its sum is 1 - load.
func (q *mmapQueue) rest(from int) ([]complex128, error) {
	moves, err := q.exponent(from-1, 0)
	if err != nil {
		return nil, err
	}
	g := make([][]float64, moves.order)
	for i := range g {
		for _, x := range moves.row(i) {
			g[i] = append(g[i], math.Max(real(x), 0))
		}
	}
	rest := make([]complex128, moves.order)
	for i, p := range stationary(g) {
		rest[i] = complex(p*(1-q.load(from)), 0)
		if cmplx.IsNaN(rest[i]) {
			return nil, tooStiff("the phases of an empty queue are lost to rounding")
		}
	}
	return rest, nil
}

// without returns D0 + .. + D_below: the phases as they move while only the classes above the
// class below bring work.
func (q *mmapQueue) without(below int) *matrix {
	m := q.hidden.clone()
	for j := range below + 1 {
		m.add(1, q.marked[j])
	}
	return m
}

// stepsMax bounds the search for an exponent; a load of 1 - 1e-6 needs some thousand.
const stepsMax = 20000

// exponent returns Q_k(s): by substitution, sped up by extrapolating the last two steps where
// that lessens the error (Anderson 1965). It starts as if work took no time, which keeps
// the row sums at s = 0 and so leaves out the slowest of the ways to the solution.
func (q *mmapQueue) exponent(k int, s complex128) (*matrix, error) {
	at := q.without(len(q.services) - 1)
	at.shift(-s)
	return q.exponentFrom(k, s, at)
}

// exponentFrom returns exponent with another start.
func (q *mmapQueue) exponentFrom(k int, s complex128, at *matrix) (*matrix, error) {
	base := q.without(k)
	base.shift(-s)
	if k == len(q.services)-1 {
		return base, nil
	}
	scale := base.largest()
	var before, errorBefore *matrix
	best, stuck := math.Inf(1), 0
	for range stepsMax {
		next, err := q.substitute(k, base, at)
		if err != nil {
			return nil, err
		}
		off := next.clone()
		off.add(-1, at)
		size := off.largest()
		if math.IsNaN(size) || math.IsInf(size, 0) {
			return nil, tooStiff("the busy periods of the higher classes are not finite")
		}
		if size <= 4*epsilon*scale {
			return next, nil
		}
		if size < best {
			best, stuck = size, 0
		} else if stuck++; stuck > 20 && best < 64*epsilon*scale {
			return next, nil // rounding lets it come no nearer
		}
		at = extrapolated(next, off, before, errorBefore)
		before, errorBefore = next, off
	}
	return nil, tooStiff(fmt.Sprintf("the busy periods of the higher classes do not converge in %d steps", stepsMax))
}

// substitute puts at into the right side of the equation for Q_k(s).
func (q *mmapQueue) substitute(k int, base, at *matrix) (*matrix, error) {
	next := base.clone()
	for j := k + 1; j < len(q.services); j++ {
		b, err := q.services[j].transformAt(at)
		if err != nil {
			return nil, err
		}
		next.addProduct(q.marked[j], b)
	}
	return next, nil
}

// extrapolated mixes two steps such that their errors cancel as far as they can; a mix that
// would throw far or that follows a step that gained nothing is left.
func extrapolated(next, off, before, errorBefore *matrix) *matrix {
	if before == nil || off.largest() > errorBefore.largest() {
		return next
	}
	var over complex128
	under := 0.0
	for i, x := range off.of {
		d := x - errorBefore.of[i]
		over += cmplx.Conj(d) * x
		under += real(d)*real(d) + imag(d)*imag(d)
	}
	if under == 0 {
		return next
	}
	mix := over / complex(under, 0)
	if cmplx.Abs(mix) > 1e4 {
		return next
	}
	at := next.clone()
	at.add(-mix, next)
	at.add(mix, before)
	return at
}

// extension is Q_k(s) in Schur form, with what every delay at this s shares.
type extension struct {
	form    *schur
	times   []*matrix  // b_j(-T), T the triangle of the form; nil where not needed
	rests   []*matrix  // r_j(T)
	kernels []*factors // by row
}

func (q *mmapQueue) extension(k int, s complex128) (*extension, error) {
	exponent, err := q.exponent(k, s)
	if err != nil {
		return nil, err
	}
	return q.extensionOf(k, s, exponent)
}

// extensionOf returns extension for an exponent that is known already.
func (q *mmapQueue) extensionOf(k int, s complex128, exponent *matrix) (*extension, error) {
	form, err := exponent.triangular()
	if err != nil {
		return nil, err
	}
	for i := range form.t.order {
		if real(s) > 0 && real(form.t.at(i, i)) > epsilon*exponent.largest() {
			return nil, tooStiff("the busy periods of the higher classes grow")
		}
	}
	e := &extension{form: form, times: make([]*matrix, len(q.services)), rests: make([]*matrix, len(q.services))}
	for j := range q.services {
		if j < k && q.preemptive {
			continue
		}
		if e.rests[j], err = q.services[j].restAt(form.t); err != nil {
			return nil, err
		}
		e.times[j] = identity(form.t.order)
		e.times[j].addProduct(form.t, e.rests[j])
	}
	return e, q.factorKernels(k, e)
}

// factorKernels prepares the systems of the rows of X, which differ in an eigenvalue of Q.
func (q *mmapQueue) factorKernels(k int, e *extension) error {
	base := q.without(k - 1)
	for r := range base.order {
		kernel := base.clone()
		for j := k; j < len(q.services); j++ {
			kernel.add(e.times[j].at(r, r), q.marked[j])
		}
		kernel.shift(-e.form.t.at(r, r))
		for i := range base.order {
			total := complex128(1)
			for j := k; j < len(q.services); j++ {
				total -= e.rests[j].at(r, r) * q.arriving[j][i]
			}
			kernel.row(i)[base.order-1] = total
		}
		f, err := kernel.factor()
		if err != nil {
			return err
		}
		e.kernels = append(e.kernels, f)
	}
	return nil
}

// found returns tr(D_k X) for the column c: the mean over the arriving jobs of class k, times
// their rate, of exp(Q U) c, where U is the work that they find ahead.
func (q *mmapQueue) found(k int, e *extension, c []complex128) complex128 {
	order := len(c)
	column := e.form.u.adjoint().applied(c)
	x, right := newMatrix(order), q.entering(k, e, column)
	for r := order - 1; r >= 0; r-- {
		q.addLater(k, e, r, x, right.row(r))
		copy(x.row(r), e.kernels[r].solveRight(right.row(r)))
	}
	back := newMatrix(order)
	back.addProduct(e.form.u, x)
	var trace complex128
	for i := range order {
		for l, rate := range q.marked[k].row(i) {
			trace += rate * back.at(l, i)
		}
	}
	return trace
}

// entering returns what the phases at rest and at starts of lower classes bring into X, by row;
// the last column is for the equation of the row sums.
func (q *mmapQueue) entering(k int, e *extension, column []complex128) *matrix {
	class, last := q.classes[k], len(column)-1
	right, moved := newMatrix(len(column)), e.form.t.applied(column)
	for r := range column {
		addTimes(right.row(r), -moved[r], class.rest)
		right.row(r)[last] = column[r] * sum(class.rest)
	}
	for j, starts := range class.starts {
		rest := e.rests[j].applied(column)
		moved := e.form.t.applied(rest)
		total := sum(starts)
		for r := range column {
			to := right.row(r)
			addTimes(to[:last], -moved[r], starts[:last])
			to[last] += rest[r] * total
		}
	}
	return right
}

// addLater adds to the right side of row r what the rows after it, which are known, give.
func (q *mmapQueue) addLater(k int, e *extension, r int, x *matrix, right []complex128) {
	last := x.order - 1
	for i := r + 1; i < x.order; i++ {
		addTimes(right[:last], e.form.t.at(r, i), x.row(i)[:last])
	}
	for j := k; j < len(q.services); j++ {
		known := make([]complex128, x.order)
		for i := r + 1; i < x.order; i++ {
			addTimes(known, e.times[j].at(r, i), x.row(i)[:])
			right[last] += e.rests[j].at(r, i) * inner(x.row(i), q.arriving[j])
		}
		addTimes(right[:last], -1, q.marked[j].leftOf(known)[:last])
	}
}

// startsOf returns the phases at the starts of class k per unit of time: the traces for the
// unit vectors at 0.
func (q *mmapQueue) startsOf(k int) ([]complex128, error) {
	e, err := q.extension(k, 0)
	if err != nil {
		return nil, err
	}
	at, unit := make([]complex128, q.hidden.order), make([]complex128, q.hidden.order)
	for i := range at {
		unit[i] = 1
		at[i] = complex(real(q.found(k, e, unit)), 0)
		unit[i] = 0
	}
	if off := math.Abs(real(sum(at))/q.rates[k] - 1); !(off < noiseMax) {
		return nil, tooStiff(fmt.Sprintf("the starts of class %d differ from its arrivals by a relative error of %.2g", k, off))
	}
	return at, nil
}

// walk evaluates a delay of class k at points that follow each other on a line: each
// exponent is searched from where the line through the last two leads.
type walk struct {
	*mmapQueue
	k            int
	at, before   complex128
	last, second *matrix
}

// extension returns extension at s, the next point of the walk.
func (w *walk) extension(s complex128) (*extension, error) {
	start := w.start(s)
	exponent, err := w.exponentFrom(w.k, s, start)
	if err != nil {
		return nil, err
	}
	w.before, w.second = w.at, w.last
	w.at, w.last = s, exponent
	return w.extensionOf(w.k, s, exponent)
}

// start returns where the search for the exponent at s begins.
func (w *walk) start(s complex128) *matrix {
	switch {
	case w.last == nil:
		start := w.without(len(w.services) - 1)
		start.shift(-s)
		return start
	case w.second == nil:
		start := w.last.clone()
		start.shift(w.at - s)
		return start
	}
	start, by := w.last.clone(), (s-w.at)/(w.at-w.before)
	start.add(by, w.last)
	start.add(-by, w.second)
	return start
}

// waiting begins a walk along the transform of the time until class k is first served.
func (q *mmapQueue) waiting(k int) transform {
	w := &walk{mmapQueue: q, k: k}
	return func(s complex128) (complex128, error) {
		e, err := w.extension(s)
		if err != nil {
			return 0, err
		}
		return q.found(k, e, ones(q.hidden.order)) / complex(q.rates[k], 0), nil
	}
}

// sojourn begins a walk along the transform of the time from arrival to departure of
// class k.
func (q *mmapQueue) sojourn(k int) transform {
	if !q.preemptive {
		wait := q.waiting(k)
		return func(s complex128) (complex128, error) {
			w, err := wait(s)
			return w * q.services[k].transform(s), err
		}
	}
	w := &walk{mmapQueue: q, k: k}
	return func(s complex128) (complex128, error) {
		e, err := w.extension(s)
		if err != nil {
			return 0, err
		}
		u := e.form.u
		served := u.applied(e.times[k].applied(u.adjoint().applied(ones(u.order))))
		return q.found(k, e, served) / complex(q.rates[k], 0), nil
	}
}

// atOnce returns the probability that a job of class k starts as it comes.
func (q *mmapQueue) atOnce(k int) float64 {
	return real(sum(q.marked[k].leftOf(q.classes[k].rest))) / q.rates[k]
}

// radius returns how far around 0 the delays of class k have analytic transforms. Each of the
// growth rates below is convex in z; the delays end to be analytic at -s where s = growth
// of the higher classes, at the z nearest to 0 of: where that growth is least (the end of
// the busy periods), where the growth of the work ahead is 0 again (its decay), where a
// service has no transform.
func (q *mmapQueue) radius(k, from int) (float64, error) {
	slow := math.Inf(1)
	for j := from; j < len(q.services); j++ {
		slow = math.Min(slow, q.services[j].slow)
	}
	end := -slow * (1 - 1e-6)
	decays := func(z float64) (bool, error) {
		g, err := q.growth(k, z)
		return g >= 0, err
	}
	left, err := turningPoint(end, decays)
	if err != nil {
		return 0, err
	}
	falls := func(z float64) (bool, error) {
		g, err := q.growth(k+1, z)
		if err != nil {
			return false, err
		}
		right, err := q.growth(k+1, z*(1-1e-4))
		return g >= right, err
	}
	if left, err = turningPoint(left, falls); err != nil {
		return 0, err
	}
	g, err := q.growth(k+1, left)
	if err != nil {
		return 0, err
	}
	if r := math.Min(-g, slow); r > 0 {
		return r, nil
	}
	return 0, tooStiff(fmt.Sprintf("the tail of the delays of class %d is too long", k))
}

// turningPoint returns the largest z in [end, 0) where holds is true, which it stays left of it;
// end if it is true nowhere.
func turningPoint(end float64, holds func(z float64) (bool, error)) (float64, error) {
	yes, no := end, 0.0
	if ok, err := holds(end); err != nil || !ok {
		return end, err
	}
	for range 50 {
		middle := (yes + no) / 2
		ok, err := holds(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			yes = middle
		} else {
			no = middle
		}
	}
	return no, nil
}

// growth returns the largest eigenvalue of z I + D0 + sum_{j<from} D_j + sum_{j>=from} D_j b_j(z).
func (q *mmapQueue) growth(from int, z float64) (float64, error) {
	m := q.without(from - 1)
	for j := from; j < len(q.services); j++ {
		m.add(q.services[j].transform(complex(z, 0)), q.marked[j])
	}
	if size := m.largest(); !(size < rateMax) { // next to a pole
		return math.Inf(1), nil
	}
	form, err := m.triangular()
	if err != nil {
		return 0, err
	}
	most := math.Inf(-1)
	for i := range m.order {
		most = math.Max(most, real(form.t.at(i, i)))
	}
	return z + most, nil
}

// transform is the Laplace transform E[exp(-s X)] of a time X.
type transform func(s complex128) (complex128, error)

// circlePoints on the upper half of a circle are enough for the moments: what they alias
// has the weight 2^-64.
const circlePoints = 32

// noiseMax is how far the transform may be from 1 at 0, and the worst error of a mean.
const noiseMax = 1e-9

// circle returns points around 0, symmetric to the imaginary axis, none of them real.
func circle(radius float64) []complex128 {
	points := make([]complex128, circlePoints)
	for i := range points {
		points[i] = cmplx.Rect(radius, (float64(i)+0.5)*math.Pi/circlePoints)
	}
	return points
}

// moments returns E[X], E[X^2] .. from Cauchy's integrals around 0. The transform is analytic
// within the radius, so coefficients of negative powers are 0 but for rounding: what they
// are, the noise, tells the error of the others.
func moments(f transform, radius float64, count int) (list []float64, noise float64, err error) {
	points := circle(radius / 2)
	values := make([]complex128, len(points))
	for i, s := range points {
		if values[i], err = f(s); err != nil {
			return nil, 0, err
		}
	}
	coefficient := func(n int) float64 { // of (2 s / radius)^n
		c := 0.0
		for i, s := range points {
			c += real(values[i] * cmplx.Rect(1, -float64(n)*cmplx.Phase(s)))
		}
		return c / float64(len(points))
	}
	noise = math.Abs(coefficient(0) - 1)
	for n := 1; n <= 8; n++ {
		noise = math.Max(noise, math.Abs(coefficient(-n)))
	}
	scale := 1.0
	for n := 1; n <= count; n++ {
		c := coefficient(n)
		scale *= -float64(n) / (radius / 2)
		list = append(list, c*scale)
		if !(noise <= math.Abs(c)*noiseMax*math.Pow(10, float64(n-1))) {
			return nil, 0, tooStiff(fmt.Sprintf("the moment %d would have a relative error of %.2g", n, noise/math.Abs(c)))
		}
	}
	return list, noise, nil
}

func ones(order int) []complex128 {
	x := make([]complex128, order)
	for i := range x {
		x[i] = 1
	}
	return x
}
