package scaling

import (
	"time"

	"headroom/jobs/scaling/runs"
)

const (
	// samplesLeast is how many looks a run must have been seen at: shorter runs show little but their beginnings and ends.
	samplesLeast = 20
	// gapMost is the longest time between two looks that counts; what the job held in a longer one is not known.
	gapMost = 5 * time.Second
)

// Meter measures one run. The zero value is ready.
type Meter struct {
	number  uint32
	last    time.Time
	samples int
	// Integrals over time, s: of the slots, of their square, and of the slots times the part of their power that nodes
	// had.
	busy, square, power float64
	// blind is true once the power of a node was unknown, broken once a look was missed.
	blind, broken bool
}

// Look takes in that run number runs map tasks on so many slots of each node; part returns the part of its full power that a node
// may draw, false where that is unknown.
func (m *Meter) Look(now time.Time, number uint32, on map[string]int, part func(node string) (float64, bool)) {
	if number != m.number {
		*m = Meter{number: number}
	}
	dt := now.Sub(m.last)
	first := m.last.IsZero()
	m.last = now
	if first {
		return
	}
	if dt < 0 || dt > gapMost {
		m.broken = true
		return
	}
	held, power := 0.0, 0.0
	for node, n := range on {
		p, known := part(node)
		m.blind = m.blind || !known
		held, power = held+float64(n), power+float64(n)*p
	}
	m.samples++
	m.busy, m.square, m.power = m.busy+held*dt.Seconds(), m.square+held*held*dt.Seconds(), m.power+power*dt.Seconds()
}

// End returns what run number has shown, in which so many tasks were done and so much slot time was wasted; false where that is too
// little.
func (m *Meter) End(number uint32, done int, wasted time.Duration) (runs.Run, bool) {
	if m == nil || m.number != number || m.broken || m.samples < samplesLeast || done < 1 || m.busy <= 0 || wasted.Seconds() > wastedMost*m.busy {
		return runs.Run{}, false
	}
	r := runs.Run{Containers: max(1, m.square/m.busy), Tasks: done, Busy: m.busy}
	if !m.blind {
		r.Power = min(1, m.power/m.busy)
	}
	return r, true
}

// wastedMost is the part of a run's slot time that may have been wasted: copies and failures say nothing of how it scales.
const wastedMost = 0.1
