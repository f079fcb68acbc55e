package deflation

import (
	"math"

	"headroom/jobs/queueing"
	"headroom/units"
)

// Setting is what one class gets, and what comes of it.
type Setting struct {
	// Theta is the drop ratio.
	Theta float64
	// After is the sprint timeout in seconds after dispatch; +Inf: never.
	After float64
	// Error is by how much results are off: see [ErrorAt].
	Error float64
	// Mean is the mean time from arrival to end, in seconds.
	Mean float64
	// Percentiles of that time: those with a bound, and the 95th.
	Percentiles []queueing.Percentile
	// Service is the mean time on the cluster, in seconds, with the sprints that are granted.
	Service float64
	// Sprinting is the part of that time that is sprinted.
	Sprinting float64
	// Granted is the part of the sprints' joules that the budget pays.
	Granted float64
}

// Point is one setting of all classes.
type Point struct {
	// Classes are in the order of the problem's.
	Classes []Setting
	// Error is the mean of the classes' errors, by weight.
	Error float64
	// Latency is the mean time from arrival to end over all jobs, in seconds.
	Latency float64
	// Power is what jobs and sprints draw in the mean, beyond an idle cluster; without
	// Problem.Busy that of sprints alone.
	Power units.Power
	// Load is the part of the time that the cluster works, below 1.
	Load float64
}

// loadMost is from where on a queue counts as unstable: beyond it a percent more work makes
// it that, and no latency is worth a promise.
const loadMost = 0.99

// pick is one option of each class, as indices of ratios and timeouts.
type pick struct{ ratio, timeout []int }

// outcome is what a pick comes to, as far as means go.
type outcome struct {
	error, latency, watts, load float64
	granted                     []float64
	services                    []Sprinted
	means                       []float64
}

// solver is a problem with everything that is computed once.
type solver struct {
	*Problem
	menus []menu
	calls int
	// pots are the sprint budget's, and pot[i] that of class i, below 0 where it has none.
	pots []Bucket
	pot  []int
}

func newSolver(p *Problem) (*solver, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	all, err := menus(p)
	if err != nil {
		return nil, err
	}
	d := &solver{Problem: p, menus: all, pot: make([]int, len(p.Classes))}
	d.divide()
	return d, nil
}

// divide makes the pots: one for all, or one for each class with a share.
func (d *solver) divide() {
	if d.Budget == nil {
		return
	}
	for i, c := range d.Classes {
		d.pot[i] = -1
		if c.SprintShare > 0 {
			d.pot[i] = len(d.pots)
			d.pots = append(d.pots, Bucket{
				Capacity: units.Energy(c.SprintShare * float64(d.Budget.Capacity)),
				Refill:   units.Power(c.SprintShare * float64(d.Budget.Refill)),
			})
		}
	}
	if len(d.pots) == 0 {
		d.pots = []Bucket{*d.Budget}
		clear(d.pot)
	}
}

// options returns those of a pick.
func (d *solver) options(at pick) []*option {
	out := make([]*option, len(d.menus))
	for i := range d.menus {
		out[i] = d.menus[i].at(at.ratio[i], at.timeout[i])
	}
	return out
}

// granted returns the part of the sprints that the budget pays, by class.
func (d *solver) granted(options []*option) []float64 {
	out := make([]float64, len(options))
	parts := make([]float64, len(d.pots))
	draws := make([][]Draw, len(d.pots))
	for i, o := range options {
		if o.whole.Sprint > 0 && d.Budget != nil && d.pot[i] >= 0 {
			draws[d.pot[i]] = append(draws[d.pot[i]], Draw{Rate: d.Classes[i].Rate, Extra: d.Classes[i].SprintExtra, Sprinted: o.whole})
		}
	}
	for j, b := range d.pots {
		parts[j] = b.Granted(draws[j])
	}
	for i := range out {
		switch {
		case d.Budget == nil:
			out[i] = 1
		case d.pot[i] >= 0:
			out[i] = parts[d.pot[i]]
		}
	}
	return out
}

// outcome returns what options come to, with these parts of the sprints granted.
func (d *solver) outcome(options []*option, granted []float64) outcome {
	out := outcome{granted: granted, services: make([]Sprinted, len(options))}
	var weights, rates float64
	for i, o := range options {
		c := &d.Classes[i]
		s := o.whole.Granted(granted[i], o.plain)
		out.services[i] = s
		out.load += c.Rate * s.Moments[0]
		out.watts += c.Rate * (s.Moments[0]*d.Busy.Watts() + s.Sprint*c.SprintExtra.Watts())
		out.error += c.Weight * o.error
		weights += c.Weight
	}
	out.error /= weights
	if out.load >= loadMost {
		out.latency = math.Inf(1)
		return out
	}
	out.means = d.means(out.services)
	for i, m := range out.means {
		out.latency += d.Classes[i].Rate * m
		rates += d.Classes[i].Rate
	}
	out.latency /= rates
	return out
}

// means returns the mean times from arrival to end, in closed form (Cobham 1954; for
// preemptive-resume Conway, Maxwell and Miller 1967): they need two moments of the services
// and no distribution. The load must be below 1.
func (d *solver) means(services []Sprinted) []float64 {
	out := make([]float64, len(services))
	var all float64 // of the work that an arrival finds in service
	for i, s := range services {
		all += d.Classes[i].Rate * s.Moments[1] / 2
	}
	var above, residual float64 // of the classes from the highest one on
	for i := len(services) - 1; i >= 0; i-- {
		rate, m := d.Classes[i].Rate, services[i].Moments
		upTo := above + rate*m[0]
		residual += rate * m[1] / 2
		if d.Discipline == queueing.PreemptiveResume {
			out[i] = m[0]/(1-above) + residual/((1-above)*(1-upTo))
		} else {
			out[i] = m[0] + all/((1-above)*(1-upTo))
		}
		above = upTo
	}
	return out
}

// percentiles asks the queueing model, which takes milliseconds: for each class those with
// a bound and the 95th.
func (d *solver) percentiles(options []*option, o outcome) ([][]queueing.Percentile, error) {
	d.calls++
	q := queueing.Queue{Discipline: d.Discipline}
	var asked []float64
	for i := range options {
		ph, err := options[i].service(o.granted[i], d.Sprints)
		if err != nil {
			return nil, because(d.place(i), "has job times that cannot be fitted", err)
		}
		q.Services = append(q.Services, ph)
		q.Arrivals.Rates = append(q.Arrivals.Rates, d.Classes[i].Rate)
		asked = append(asked, d.asked(i)...)
	}
	asked = sorted(asked)
	r, err := queueing.Solve(q, queueing.Options{Percentiles: asked})
	if err != nil {
		return nil, because("classes", "cannot be solved as a queue", err)
	}
	out := make([][]queueing.Percentile, len(options))
	for i, c := range r.Classes {
		for _, want := range sorted(d.asked(i)) {
			for _, got := range c.Sojourn.Percentiles {
				if got.P == want {
					out[i] = append(out[i], got)
				}
			}
		}
	}
	return out, nil
}

// usual is the percentile that is told without being asked for.
const usual = 0.95

func (d *solver) asked(class int) []float64 {
	out := []float64{usual}
	for _, p := range d.Classes[class].Percentiles {
		out = append(out, p.P)
	}
	return out
}

// point returns a pick with all there is to say of it.
func (d *solver) point(options []*option, o outcome, percentiles [][]queueing.Percentile) Point {
	out := Point{Error: o.error, Latency: o.latency, Power: units.FromWatts(o.watts), Load: o.load}
	for i, x := range options {
		s := Setting{
			Theta: x.theta, After: x.after, Error: x.error, Granted: o.granted[i],
			Service: o.services[i].Moments[0], Sprinting: o.services[i].Fraction(),
		}
		if o.means != nil {
			s.Mean, s.Percentiles = o.means[i], percentiles[i]
		}
		out.Classes = append(out.Classes, s)
	}
	return out
}
