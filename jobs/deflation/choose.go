package deflation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"headroom/jobs/queueing"
)

// Violation is a bound that a point does not keep.
type Violation struct {
	// Class is the index of the class, and What names the bound: "error", "mean" or "p95".
	Class int
	What  string
	// Value is what the point comes to, and Bound what was asked: seconds, or an error.
	Value, Bound float64
}

// excess returns by what part the bound is missed.
func (v Violation) excess() float64 {
	if v.Bound == 0 {
		return math.Inf(1)
	}
	return v.Value/v.Bound - 1
}

// Binding tells why the chosen point is not a better one: a single step back, and the
// bounds that it would miss.
type Binding struct {
	// Class is the one that would step back: from Theta to the next lower one (Timeout is
	// false), or from After to the next later one.
	Class   int
	Timeout bool
	From    float64
	To      float64
	// Missed are the bounds that the step would miss. Empty: the load would be too high.
	Missed []Violation
	// Load is what the step would make of it.
	Load float64
}

// Miss is a point with the bounds that it misses.
type Miss struct {
	Point  Point
	Missed []Violation
}

// Overload tells of a load that is too high. All are parts of the time that the cluster would
// have to work.
type Overload struct {
	// Plain is the load without dropping and sprints; Least is that when all classes drop what
	// their bounds on the error permit and sprint at once.
	Plain, Least float64
}

// Answer is what [Choose] has found.
type Answer struct {
	// Chosen keeps all bounds; nil: none does.
	Chosen *Point
	// Binding tells what keeps Chosen from being better; at most two for each class.
	Binding []Binding
	// Frontier are the points inside the bounds on the error which no other beats in error,
	// latency and power together: rising in error, evenly chosen where there are more than
	// Problem.FrontierMost.
	Frontier []Point
	// Nearest is, where none is chosen, the point inside the bounds on the error that misses
	// the others by the least part; nil when all are overloaded.
	Nearest *Miss
	// Beyond is, where none is chosen, the point with the least error that keeps all bounds
	// but those on the error; nil: there is none either.
	Beyond *Miss
	// Overload is filled in when the load is too high without dropping and sprints, and
	// nothing is chosen.
	Overload *Overload
	// Settings is how many there are, Calls how many of them the queueing model was asked for.
	Settings, Calls int
	// Complete is false when the bound on the calls ended the search: there may be a better
	// point than Chosen, or one where there is none.
	Complete bool
}

// Choose searches the drop ratios and sprint timeouts of all classes. The error is a
// *ProblemError; that nothing keeps the bounds is an answer, not an error.
func Choose(p Problem) (*Answer, error) {
	d, err := newSolver(&p)
	if err != nil {
		return nil, err
	}
	s := newSearch(d, true)
	out := &Answer{Settings: len(s.found), Complete: true}
	best, err := s.best()
	if err != nil {
		return nil, err
	}
	out.Complete = !s.cut
	if best != nil {
		out.Chosen = &best.point
		if out.Binding, err = d.binding(best.pick); err != nil {
			return nil, err
		}
	} else if err := d.explainInfeasible(out, s); err != nil {
		return nil, err
	}
	if out.Frontier, err = s.frontier(); err != nil {
		return nil, err
	}
	out.Calls = d.calls
	return out, nil
}

// solved is a pick with what it comes to.
type solved struct {
	pick   pick
	point  Point
	missed []Violation
}

// solve asks the model for a pick, whose load is below the most.
func (d *solver) solve(at pick) (*solved, error) {
	options := d.options(at)
	o := d.outcome(options, d.granted(options))
	return d.finish(at, options, o)
}

func (d *solver) finish(at pick, options []*option, o outcome) (*solved, error) {
	var percentiles [][]queueing.Percentile
	if o.means != nil {
		var err error
		if percentiles, err = d.percentiles(options, o); err != nil {
			return nil, err
		}
	}
	out := &solved{pick: at, point: d.point(options, o, percentiles)}
	out.missed = d.missed(&out.point)
	return out, nil
}

// missed returns the bounds that a point does not keep.
func (d *solver) missed(p *Point) []Violation {
	var out []Violation
	for i, s := range p.Classes {
		c := &d.Classes[i]
		check := func(what string, value, bound float64) {
			if value > bound {
				out = append(out, Violation{Class: i, What: what, Value: value, Bound: bound})
			}
		}
		check("error", s.Error, c.ErrorMax)
		if p.Load >= loadMost {
			continue
		}
		if c.MeanMax > 0 {
			check("mean", s.Mean, c.MeanMax)
		}
		for _, b := range c.Percentiles {
			for _, got := range s.Percentiles {
				if got.P == b.P {
					check(percentileName(b.P), got.At, b.Max)
				}
			}
		}
	}
	return out
}

// percentileName returns p95 for 0.95 and p99.9 for 0.999.
func percentileName(p float64) string {
	return "p" + strconv.FormatFloat(math.Round(p*1e8)/1e6, 'f', -1, 64)
}

func (d *solver) place(class int) string { return fmt.Sprintf("classes[%d]", class) }

// binding looks one step back from the chosen pick in every direction.
func (d *solver) binding(at pick) ([]Binding, error) {
	var out []Binding
	for i := range d.menus {
		for _, timeout := range []bool{false, true} {
			back := pick{slices.Clone(at.ratio), slices.Clone(at.timeout)}
			index := back.ratio
			if timeout {
				index = back.timeout
			}
			if index[i] == 0 {
				continue
			}
			index[i]--
			s, err := d.solve(back)
			if err != nil {
				return nil, err
			}
			if len(s.missed) == 0 && s.point.Load < loadMost {
				continue
			}
			from, to := d.menus[i].at(at.ratio[i], at.timeout[i]), d.menus[i].at(back.ratio[i], back.timeout[i])
			b := Binding{Class: i, Timeout: timeout, From: from.theta, To: to.theta, Missed: s.missed, Load: s.point.Load}
			if timeout {
				b.From, b.To = from.after, to.after
			}
			out = append(out, b)
		}
	}
	return out, nil
}

// explainInfeasible fills in what there is to say where nothing keeps the bounds.
func (d *solver) explainInfeasible(out *Answer, s *search) error {
	plain := pick{make([]int, len(d.menus)), make([]int, len(d.menus))}
	options := d.options(plain)
	if load := d.outcome(options, d.granted(options)).load; load >= loadMost {
		options := d.options(s.most())
		out.Overload = &Overload{Plain: load, Least: d.outcome(options, d.granted(options)).load}
	}
	nearest, err := s.nearest()
	if err != nil {
		return err
	}
	if nearest != nil {
		out.Nearest = &Miss{nearest.point, nearest.missed}
	}
	all := newSearch(d, false)
	if len(all.found) == len(s.found) {
		return nil
	}
	beyond, err := all.best()
	if err != nil {
		return err
	}
	out.Complete = out.Complete && !all.cut
	if beyond != nil {
		out.Beyond = &Miss{beyond.point, beyond.missed}
	}
	return nil
}

// compare orders outcomes by the objective: least error, then least power, then least latency.
func compare(a, b *found) int {
	return cmp.Or(cmp.Compare(a.error, b.error), cmp.Compare(a.watts, b.watts), cmp.Compare(a.latency, b.latency), cmp.Compare(a.number, b.number))
}
