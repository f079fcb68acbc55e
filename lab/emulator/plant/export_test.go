// Claims: none of its own; what other tests look at and no program needs.
package plant

import "headroom/units"

// Margin returns the bimetal's remaining way to opening: 1 cold, 0 open.
func (b *Breaker) Margin() float64 {
	if b.tripped {
		return 0
	}
	return 1 - b.heat
}

// Limit is the limit that the first package holds (bank MSR).
func (p *Plant) Limit(c Constraint) units.Power { return p.domains[0].Limit(MSR, c) }

// Core returns the power of the packages' cores, which is part of Package.
func (p *Plant) Core() units.Power { return units.FromWatts(p.sum((*Domain).core)) }
