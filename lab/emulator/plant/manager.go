package plant

import (
	"math"
	"time"

	"headroom/units"
)

// manager is the board's own controller that holds a limit at the wall. It is
// slow on purpose: once a second it looks at the mean of that second and moves
// what the packages may draw.
type manager struct {
	limit  float64 // watts at the wall; 0: none
	watts  float64 // watts that all packages may draw together
	since  time.Duration
	energy float64 // wallEnergy when since began
}

// How the board's controller moves: a part of what is wrong, at each look.
const (
	managerEvery = time.Second
	managerDown  = 0.6
	managerUp    = 0.3
)

// SetWallLimit makes the machine hold a limit at the wall by itself, within
// seconds; 0 or less ends it.
func (p *Plant) SetWallLimit(to units.Power) {
	was := p.manager.limit
	p.manager.limit = math.Max(0, to.Watts())
	if was == 0 {
		most := float64(len(p.domains)) * (p.spec.Idle + p.spec.Dynamic).Watts()
		p.manager.watts, p.manager.since, p.manager.energy = most, 0, p.wallEnergy
	}
}

// share is what one of n packages may draw now, in watts.
func (m *manager) share(n int) float64 {
	if m.limit == 0 {
		return math.Inf(1)
	}
	return m.watts / float64(n)
}

// watch lets h go by and, once a second, moves what the packages may draw.
func (m *manager) watch(p *Plant, h time.Duration) {
	if m.limit == 0 {
		return
	}
	if m.since += h; m.since < managerEvery {
		return
	}
	mean := (p.wallEnergy - m.energy) / 1e6 / m.since.Seconds()
	most := float64(len(p.domains)) * (p.spec.Idle + p.spec.Dynamic).Watts()
	part := managerUp
	if mean > m.limit {
		part = managerDown
		m.watts = math.Min(m.watts, p.Package().Watts())
	}
	m.watts = math.Max(0, math.Min(most, m.watts+part*(m.limit-mean)*p.spec.Efficiency))
	m.since, m.energy = 0, p.wallEnergy
}
