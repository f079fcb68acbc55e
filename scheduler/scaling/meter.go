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

// Sample is what a run holds at one look.
type Sample struct {
	// Held are the slots that its map tasks hold, Copies those of them that hold a second attempt of a task.
	Held, Copies float64
	// On tells how they are spread over nodes.
	On map[string]int
	// Done are the tasks that it has done so far.
	Done int
	// Lost is how many of its tasks have lost an attempt since the look before.
	Lost int
}

// Meter measures one run. The zero value is ready.
type Meter struct {
	number  uint32
	last    time.Time
	samples int
	// before are the tasks that were done at the first look, lost those that have lost an attempt since.
	before, lost int
	// Integrals over time, s: of the slots, of their square, of those of copies, and of the slots times the part of their
	// power that nodes had.
	busy, square, copies, power float64
	// blind is true once the power of a node was unknown, broken once a look was missed.
	blind, broken bool
}

// Look takes in what run number holds; part returns the part of its full power that a node may draw, false where that is
// unknown.
func (m *Meter) Look(now time.Time, number uint32, s Sample, part func(node string) (float64, bool)) {
	if number != m.number || m.last.IsZero() {
		*m = Meter{number: number, last: now, before: s.Done}
		return
	}
	dt := now.Sub(m.last)
	m.last = now
	if dt < 0 || dt > gapMost {
		m.broken = true
		return
	}
	slots, power := 0.0, 0.0
	for node, n := range s.On {
		if n <= 0 || s.Held <= 0 {
			continue
		}
		p, known := part(node)
		m.blind = m.blind || !known
		slots, power = slots+float64(n), power+float64(n)*p
	}
	if slots > 0 {
		m.power += s.Held * power / slots * dt.Seconds()
	} else if s.Held > 0 {
		m.blind = true
	}
	m.samples++
	m.lost += s.Lost
	m.busy, m.square, m.copies = m.busy+s.Held*dt.Seconds(), m.square+s.Held*s.Held*dt.Seconds(), m.copies+s.Copies*dt.Seconds()
}

// End returns what run number has shown, in which so many tasks were done and so much slot time was wasted; false where that is too
// little. A run that was seen late, because the scheduler was restarted, does not count.
func (m *Meter) End(number uint32, done int, wasted time.Duration) (runs.Run, bool) {
	if m == nil {
		return runs.Run{}, false
	}
	seen := done - m.before
	if m.number != number || m.broken || m.samples < samplesLeast || seen < 1 || m.busy <= 0 || float64(m.before) > wastedMost*float64(done) {
		return runs.Run{}, false
	}
	if max(wasted.Seconds(), m.copies) > wastedMost*m.busy || float64(m.lost) > wastedMost*float64(seen) {
		return runs.Run{}, false
	}
	r := runs.Run{Containers: max(1, m.square/m.busy), Tasks: seen, Busy: m.busy}
	if !m.blind {
		r.Power = min(1, m.power/m.busy)
	}
	return r, true
}

// wastedMost is the part of a run's slot time that may have been wasted, and of its tasks that may have lost an attempt: copies and
// failures say nothing of how it scales.
const wastedMost = 0.1
