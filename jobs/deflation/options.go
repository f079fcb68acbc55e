package deflation

import (
	"fmt"
	"math"
	"slices"

	"headroom/jobs/queueing"
)

// option is one setting of one class.
type option struct {
	theta, after float64
	error        float64
	ph           queueing.PH
	// plain is the job's time without a sprint, whole with every sprint granted.
	plain, whole Sprinted
	// fitted is the distribution of whole, made when it is first asked for.
	fitted *queueing.PH
}

// menu are the settings of one class: for each drop ratio, rising, each timeout, falling
// from never: jobs get shorter in both directions.
type menu struct {
	options          []option
	ratios, timeouts int
	// within is how many of the ratios keep the bound on the error; at least 1, as the first is 0.
	within int
}

func (m *menu) at(ratio, timeout int) *option { return &m.options[ratio*m.timeouts+timeout] }

// menus returns those of all classes. Default timeouts get fewer where the grid would be too big.
func menus(p *Problem) ([]menu, error) {
	for timeouts := timeoutsMost; ; timeouts /= 2 {
		out, size := make([]menu, len(p.Classes)), 1.0
		for i := range p.Classes {
			c := &p.Classes[i]
			ratios, after := c.ratios(), c.timeouts(timeouts, 1)
			size *= float64(len(ratios) * len(after))
			out[i] = menu{ratios: len(ratios), timeouts: len(after)}
		}
		if size > gridMost && timeouts > 1 {
			continue
		}
		if size > gridMost {
			return nil, bad("classes", "have %.3g settings in total; the maximum is %d: give fewer thetas or sprint timeouts", size, gridMost)
		}
		for i := range out {
			if err := out[i].fill(&p.Classes[i], p.Sprints, timeouts); err != nil {
				return nil, within(fmt.Sprintf("classes[%d]", i), err)
			}
		}
		return out, nil
	}
}

// within puts the class in front of what is wrong with its jobs.
func within(place string, err error) error {
	return because(place+".job", "cannot be modelled", err)
}

// ratios returns the drop ratios to try, rising from 0. Where nothing may be dropped it is 0 alone.
func (c *Class) ratios() []float64 {
	ratios := c.Ratios
	if ratios == nil {
		ratios = c.Jobs.Ratios
	}
	if c.Profile == nil || len(c.Profile.Points) == 0 {
		ratios = nil
	}
	return sorted(append([]float64{0}, ratios...))
}

// timeouts returns those to try, falling from never, in seconds. Where the class names none they
// are so many equal parts of the mean time of a job.
func (c *Class) timeouts(parts int, mean float64) []float64 {
	out := []float64{Never()}
	switch {
	case !c.sprints():
	case c.Timeouts != nil:
		out = append(out, c.Timeouts...)
	default:
		for i := range parts {
			out = append(out, mean*float64(i)/float64(parts))
		}
	}
	out = sorted(out)
	slices.Reverse(out)
	return out
}

func sorted(all []float64) []float64 {
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *menu) fill(c *Class, policy Policy, parts int) error {
	ratios := c.ratios()
	var after []float64
	for _, theta := range ratios {
		ph, err := c.Jobs.Time(theta)
		if err != nil {
			return err
		}
		x, err := newPHTime(ph)
		if err != nil {
			return err
		}
		plain := Sprint(x, Speed{Up: 1})
		if after == nil {
			after = c.timeouts(parts, plain.Moments[0])
		}
		off := 0.0
		if theta > 0 {
			off = ErrorAt(c.Profile, theta)
		}
		if off <= c.ErrorMax {
			m.within++
		}
		for _, t := range after {
			whole := plain
			if c.sprints() {
				whole = Sprint(x, Speed{Up: c.SprintUp, After: t})
			}
			if policy == Paper {
				whole = whole.likeOf(plain)
			}
			m.options = append(m.options, option{theta: theta, after: t, error: off, ph: ph, plain: plain, whole: whole})
		}
	}
	m.timeouts = len(after)
	return nil
}

// likeOf returns a sprinted time with the form of the one without a sprint, and its own mean.
func (s Sprinted) likeOf(plain Sprinted) Sprinted {
	scale := s.Moments[0] / plain.Moments[0]
	for i, x := range plain.Moments {
		s.Moments[i] = x * math.Pow(scale, float64(i+1))
	}
	return s
}

// service returns the distribution of the job's time when so much of its sprints is granted.
// Without a sprint it is exact; otherwise it is fitted to the moments, which leaves the mean
// times of all classes exact under Poisson arrivals: these know no more of it than two moments.
func (o *option) service(granted float64, policy Policy) (queueing.PH, error) {
	switch {
	case o.whole.Sprint*granted == 0:
		return o.ph, nil
	case granted == 1 && o.fitted != nil:
		return *o.fitted, nil
	case policy == Paper:
		return o.ph.Scale(o.whole.Granted(granted, o.plain).Moments[0] / o.plain.Moments[0])
	}
	ph, err := fit(o.whole.Granted(granted, o.plain).Moments)
	if err == nil && granted == 1 {
		o.fitted = &ph
	}
	return ph, err
}
