package scale

import (
	"fmt"

	"headroom/jobs/scaling"
	"headroom/units"
)

const (
	// nearly is the part of the largest speed-up that is nearly all of it.
	nearly = 0.9
	// worthDefault is how many percent faster a container must make the job for each percent of power that it adds.
	worthDefault = 0.5
	// knownTo bounds how far beyond the largest measured degree the advice goes.
	knownTo = 2
)

// power is what containers draw.
type power struct {
	// base is what the job draws beside its containers, container what each of them adds; unknown where that is 0.
	base, container units.Power
	// worth is the least gain in percent of speed for a percent of power.
	worth float64
}

// advice says how many containers a job should get.
type advice struct {
	// Size is the problem size that it is for.
	Size int `json:"size"`
	// Most is the largest degree that was looked at.
	Most int `json:"most"`
	// Peak is the number of containers at which the job is fastest; null if more containers never slow it down.
	Peak *peak `json:"peak"`
	// Ninety is the least degree with 90 % of the largest speed-up up to Most.
	Ninety peak `json:"ninety"`
	// Wasted is the degree beyond which watts are wasted; null where none is up to Most.
	Wasted *int   `json:"wasted_beyond"`
	Rule   string `json:"rule"`
}

// advise looks at all degrees up to the peak, or to twice the largest that was measured.
func advise(c *scaling.Curve, measured int, p power) *advice {
	a := &advice{Size: c.Size(), Most: min(knownTo*measured, scaling.DegreeMost)}
	if n, s, ok := c.Peak(0); ok {
		a.Peak = &peak{N: n, Speedup: s}
		a.Most = min(a.Most, n)
	}
	best := 0.0
	for n := 1; n <= a.Most; n++ {
		best = max(best, c.At(0, n))
	}
	for n := 1; n <= a.Most; n++ {
		if s := c.At(0, n); s >= nearly*best {
			a.Ninety = peak{N: n, Speedup: s}
			break
		}
	}
	if p.container == 0 {
		a.Rule = "the peak: more containers slow the job down; with --container-power a container must also be worth its watts"
		if a.Peak != nil && a.Peak.N <= a.Most {
			a.Wasted = &a.Peak.N
		}
		return a
	}
	a.Rule = fmt.Sprintf("a container more must make the job faster by at least %g %% for each percent of power that it adds (%s beside the containers, %s each)", p.worth, p.base, p.container)
	last := a.Most
	for last > 1 && !p.worthIt(c, last-1) {
		last--
	}
	if last < a.Most {
		a.Wasted = &last
	}
	return a
}

// worthIt reports whether the container after the n-th is worth its watts.
func (p power) worthIt(c *scaling.Curve, n int) bool {
	faster := c.At(0, n+1)/c.At(0, n) - 1
	draws := p.base + units.Power(n)*p.container
	return faster >= p.worth*float64(p.container)/float64(draws)
}
