package progress

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/units"
)

const plantFull = 350 * units.Watt

// plant is a job on a machine whose speed follows its cap: ((cap-idle)/dyn)^(1/2.4),
// the law of the emulated nodes. It shares no code with the estimators.
type plant struct {
	idle, bound, share float64 // watts; how much of the speed the job feels; exponent of containers
	lengths            []float64
	seconds            float64
	cap                float64
	containers         int
	running            []piece
	next, done         int
	reduce, reduced    float64 // length of the reduce part, and how much of it is done
}

// piece is a task that runs: its length, and what is left of it, in seconds at full speed.
type piece struct{ length, left float64 }

func newPlant(r *rand.Rand) *plant {
	p := &plant{
		idle: 80 + 60*r.Float64(), bound: 0.6 + 0.4*r.Float64(), share: 0.9 + 0.1*r.Float64(),
		cap: plantFull.Watts(), containers: 4 + r.IntN(25),
	}
	mean, noise, trend := 10+40*r.Float64(), 0.05+0.3*r.Float64(), 0.2*(r.Float64()-0.5)
	n := p.containers*(3+r.IntN(10)) + r.IntN(p.containers)
	for i := range n {
		p.lengths = append(p.lengths, mean*math.Exp(noise*r.NormFloat64()+trend*float64(i)/float64(n)))
	}
	return p
}

func (p *plant) clone() *plant {
	c := *p
	c.running = slices.Clone(p.running)
	return &c
}

// speed is how many seconds of a task one container does in a second.
func (p *plant) speed() float64 {
	s := math.Pow((p.cap-p.idle)/(plantFull.Watts()-p.idle), p.bound/2.4)
	return s * math.Pow(float64(max(len(p.running), 1)), p.share-1)
}

func (p *plant) over() bool { return p.done == len(p.lengths) && p.reduced >= p.reduce }

// run lets so many seconds pass, or less when the job ends.
func (p *plant) run(seconds float64) {
	for seconds > 1e-9 && !p.over() {
		for len(p.running) < p.containers && p.next < len(p.lengths) {
			p.running = append(p.running, piece{p.lengths[p.next], p.lengths[p.next]})
			p.next++
		}
		speed := p.speed()
		if len(p.running) == 0 {
			step := min(seconds, (p.reduce-p.reduced)/speed)
			p.reduced += step*speed + 1e-12
			p.seconds += step
			seconds -= step
			continue
		}
		step := seconds
		for _, x := range p.running {
			step = min(step, x.left/speed)
		}
		for i := range p.running {
			p.running[i].left -= step * speed
		}
		before := len(p.running)
		p.running = slices.DeleteFunc(p.running, func(x piece) bool { return x.left < 1e-9 })
		p.done += before - len(p.running)
		p.seconds += step
		seconds -= step
	}
}

// end is when it ends as things are.
func (p *plant) end() float64 {
	c := p.clone()
	c.run(1e9)
	return c.seconds
}

// observe is what an engine tells of it, with the work of running tasks or without.
func (p *plant) observe(work bool) Observation {
	o := Observation{
		Elapsed: time.Duration(p.seconds * float64(time.Second)), Tasks: len(p.lengths), Done: p.done, Work: -1, Phase: Map, Reduced: -1,
		Power: units.FromWatts(p.cap), Full: plantFull, Containers: float64(len(p.running)),
	}
	if work {
		o.Work = float64(p.done)
		for _, x := range p.running {
			o.Work += 1 - x.left/x.length
		}
	}
	if p.reduce > 0 {
		o.Reduced = p.reduced / p.reduce
	}
	if p.done == len(p.lengths) {
		o.Phase = Reduce
	}
	return o
}
