package rapl

import "headroom/units"

// A verdict on two counters is given after mirrorWindow samples in which both
// could be compared and at least one moved; they are one counter if they
// showed the same value in mirrorSame of those. Two counters that count apart
// agree to the microjoule about never; one counter read twice, microseconds
// apart, differs only when it ticked in between (it ticks once a millisecond).
const (
	mirrorWindow = 32
	mirrorSame   = 24
)

// Mirrors finds zones that repeat another zone's counter: some processors show
// one counter once for each die, and a sum over them would count each watt as
// many times as there are dies. Only dies of one package can share a counter: two
// packages whose counters show the same are two that started and work alike, and
// leaving one out would be the unsafe mistake. It is pure: it only sees counts.
// Until it is certain, zones count as independent.
type Mirrors struct {
	zones []*Zone
	pairs []mirrorPair // of i < j, row by row
	last  []units.Energy
	known []bool
	of    []int
}

// mirrorPair is what is known of two counters.
type mirrorPair struct {
	dies       bool // of one package
	seen, same int
	mirrored   bool
}

// NewMirrors watches zones, all of one kind (Tree.OfKind).
func NewMirrors(zones []*Zone) *Mirrors {
	n := len(zones)
	m := &Mirrors{zones: zones, pairs: make([]mirrorPair, n*n), last: make([]units.Energy, n), known: make([]bool, n), of: make([]int, n)}
	for j := range m.of {
		m.of[j] = j
		for i := range j {
			m.pairs[i*n+j].dies = sisters(zones[i], zones[j])
		}
	}
	return m
}

// sisters reports whether two zones are, or belong to, different dies of one package.
func sisters(a, b *Zone) bool {
	socketA, okA := a.Socket()
	socketB, okB := b.Socket()
	dieA, diesA := a.Die()
	dieB, diesB := b.Die()
	return okA && okB && diesA && diesB && socketA == socketB && dieA != dieB
}

// Note takes one sample: counts[i] is the counter of zone i, read at about the
// same moment as the others; a negative one is unknown. It says whether any
// verdict changed.
func (m *Mirrors) Note(counts []units.Energy) bool {
	changed := false
	counts = counts[:min(len(counts), len(m.zones))]
	for i, a := range counts {
		for j, b := range counts[:i] {
			if p := &m.pairs[j*len(m.zones)+i]; p.dies && m.comparable(i, j, a, b) && p.note(a == b) {
				changed = true
			}
		}
	}
	for i, e := range counts {
		m.last[i], m.known[i] = e, e >= 0
	}
	if changed {
		m.settle()
	}
	return changed
}

// NoteMeters is Note with the last readings of the meters, in the order of the zones.
func (m *Mirrors) NoteMeters(meters []*Meter) bool {
	counts := make([]units.Energy, len(meters))
	for i, meter := range meters {
		e, ok := meter.Count()
		if counts[i] = e; !ok {
			counts[i] = -1
		}
	}
	return m.Note(counts)
}

// Counts reports whether zone i is to be counted in a sum.
func (m *Mirrors) Counts(i int) bool { return m.of[i] == i }

// comparable reports whether a sample of a and b tells anything of zones i and j.
func (m *Mirrors) comparable(i, j int, a, b units.Energy) bool {
	if a < 0 || b < 0 || !m.known[i] || !m.known[j] || m.zones[i].Range != m.zones[j].Range {
		return false
	}
	return a != m.last[i] || b != m.last[j]
}

// note counts one comparison and says whether the verdict changed.
func (p *mirrorPair) note(same bool) bool {
	p.seen++
	if same {
		p.same++
	}
	if p.seen < mirrorWindow {
		return false
	}
	verdict := p.same >= mirrorSame
	changed := verdict != p.mirrored
	p.seen, p.same, p.mirrored = 0, 0, verdict
	return changed
}

// settle gives each zone the first one that it repeats.
func (m *Mirrors) settle() {
	n := len(m.zones)
	for j := range n {
		m.of[j] = j
		for i := range j {
			if m.pairs[i*n+j].mirrored {
				m.of[j] = m.of[i]
				break
			}
		}
	}
}
