package progress

import (
	"math"
	"slices"
)

// Coefficient is a number that is known up to a standard deviation.
type Coefficient struct {
	Value, SD float64
}

// Prior is what is held of a job before it has shown anything. rate ~ p^x, with
// x = Power at full power and x + 2 * Bend * ln(p/full) below it.
type Prior struct {
	// Power is the exponent of the rate in the power, near full power.
	Power Coefficient
	// Bend is how the exponent grows (below 0) as the power falls: what a machine
	// draws idle weighs more under a low cap.
	Bend Coefficient
	// Containers is the exponent of the rate in the containers; 1 is proportional.
	Containers Coefficient
	// Pace is the natural logarithm of the tasks per second of one container at full
	// power; nil where no job like this has run.
	Pace *Coefficient
	// Tail is the natural logarithm of the seconds from the last map task to the end of
	// the job, per map task, at full power; nil where no job like this has run.
	Tail *Coefficient
}

// DefaultPrior returns what is held before any job has run: speed is a root of the
// power above idle. A processor's dynamic power grows with the 2.4th power of its
// frequency, give or take, and a third of the full power is drawn idle.
func DefaultPrior() Prior {
	return Prior{
		Power:      Coefficient{Value: 0.6, SD: 0.3},
		Bend:       Coefficient{Value: -0.15, SD: 0.2},
		Containers: Coefficient{Value: 1, SD: 0.15},
	}
}

// How much the jobs of one cluster differ from each other, whatever has been learned of them.
const (
	powerSpread      = 0.12
	bendSpread       = 0.1
	containersSpread = 0.05
	// nameSpread is how far jobs of one name lie apart in pace and tail until they have
	// shown it, log scale; it counts as one deviation that was seen.
	nameSpread = 0.35
	// namesMax bounds the names that are remembered; the oldest goes first.
	namesMax = 256
)

// Pool is what finished jobs have shown, for those to come. The zero value has seen
// none. It is not safe for concurrent use.
type Pool struct {
	jobs                    int
	power, bend, containers Coefficient
	names                   []named
}

// named is what the jobs of one name have shown. Those that caps slowed for most of
// their map part count only until another has run: what they would do at full power is
// extrapolated.
type named struct {
	name         string
	free, slowed shown
}

type shown struct{ pace, tail moments }

// best returns what is held of the name.
func (n *named) best() *shown {
	if n.free.pace.n > 0 {
		return &n.free
	}
	return &n.slowed
}

// moments are a mean and the squared deviations from it (Welford).
type moments struct{ n, mean, squares float64 }

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / m.n
	m.squares += d * (x - m.mean)
}

// coefficient returns what to expect of the next of a name, nil when there was none. How far
// the jobs of one name lie apart is learned from those of all names.
func (p *Pool) coefficient(of *moments, each func(*shown) *moments) *Coefficient {
	if of.n == 0 {
		return nil
	}
	squares, free := nameSpread*nameSpread, 1.0
	for i := range p.names {
		m := each(p.names[i].best())
		squares, free = squares+m.squares, free+max(0, m.n-1)
	}
	return &Coefficient{Value: of.mean, SD: math.Sqrt(squares / free * (1 + 1/of.n))}
}

func paceOf(s *shown) *moments { return &s.pace }
func tailOf(s *shown) *moments { return &s.tail }

// Clone returns a pool that has seen the same and learns on by itself.
func (p *Pool) Clone() Pool {
	c := *p
	c.names = slices.Clone(p.names)
	return c
}

// Prior returns what to hold of a job of this name.
func (p *Pool) Prior(name string) Prior {
	out := DefaultPrior()
	if p.jobs > 0 {
		out.Power, out.Bend, out.Containers = widened(p.power, powerSpread), widened(p.bend, bendSpread), widened(p.containers, containersSpread)
	}
	for i := range p.names {
		if p.names[i].name == name {
			s := p.names[i].best()
			out.Pace, out.Tail = p.coefficient(&s.pace, paceOf), p.coefficient(&s.tail, tailOf)
		}
	}
	return out
}

func widened(c Coefficient, spread float64) Coefficient {
	return Coefficient{Value: c.Value, SD: math.Hypot(c.SD, spread)}
}

// Learn takes over what a job has shown that has ended with its last observation.
// Only the policy Learned shows anything.
func (p *Pool) Learn(name string, t *Tracker) {
	if t.policy != Learned || !t.model.known {
		return
	}
	if p.jobs == 0 {
		d := DefaultPrior()
		p.power, p.bend, p.containers = d.Power, d.Bend, d.Containers
	}
	p.jobs++
	m := &t.model
	p.power = pooled(p.power, t.prior.Power, m.coefficient(slope), powerSpread)
	p.bend = pooled(p.bend, t.prior.Bend, m.coefficient(bend), bendSpread)
	p.containers = pooled(p.containers, t.prior.Containers, m.coefficient(scaling), containersSpread)
	e := &p.entry(name).slowed
	if t.exposure.free(m.u(t.full())) {
		e = &p.entry(name).free
	}
	e.pace.add(m.pace(t.full()))
	if tail, ok := t.tailSeen(); ok {
		e.tail.add(tail)
	}
}

// pooled returns the mean of all jobs after one more. What the job itself has shown is
// what its estimate says beyond its prior.
func pooled(all, before, after Coefficient, spread float64) Coefficient {
	shown := 1/(after.SD*after.SD) - 1/(before.SD*before.SD)
	if !(shown > 1e-3) {
		return all
	}
	value := (after.Value/(after.SD*after.SD) - before.Value/(before.SD*before.SD)) / shown
	variance := 1/shown + spread*spread
	gain := all.SD * all.SD / (all.SD*all.SD + variance)
	return Coefficient{Value: all.Value + gain*(value-all.Value), SD: all.SD * math.Sqrt(1-gain)}
}

func (p *Pool) entry(name string) *named {
	for i := range p.names {
		if p.names[i].name == name {
			return &p.names[i]
		}
	}
	if len(p.names) == namesMax {
		p.names = append(p.names[:0], p.names[1:]...)
	}
	p.names = append(p.names, named{name: name})
	return &p.names[len(p.names)-1]
}
