package view

import (
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/ledger"
	"headroom/units"
)

// power is the measured power of a domain.
type power struct {
	known     units.Power // sum of what is known
	any       bool        // whether something is known
	unknown   int         // nodes whose power is unknown
	awaited   int         // those of them whose first reading is awaited
	unmetered units.Power // unmanaged power that known does not contain
	by        string      // source: a meter's name, MeasuredByNodes or MeasuredByMeters
}

// Awaited reports whether the first reading of a node is awaited: this leader has not heard it yet, or only for a moment.
func Awaited(n *headroomv1.Node) bool {
	return n.PowerUw == nil && (n.GetState() == StateUnknown || n.GetState() != StateLost &&
		(n.StateSinceUs == nil || time.Since(time.UnixMicro(n.GetStateSinceUs())) < StaleReport))
}

// domainPowers are the measured powers by domain. A domain with a meter has the meter's
// reading; one without has the sum of its own nodes and of the domains below, each by its
// meter if it has one. A machine that is off draws nothing that a node would report.
func domainPowers(s *ledger.State, tree *budget.Tree, h *Heard, nodes []*headroomv1.Node) map[string]power {
	out := map[string]power{}
	for _, d := range tree.Domains() {
		out[d.Name] = power{unmetered: s.Domains[d.Name].Unmanaged, by: MeasuredByNodes}
	}
	for _, n := range nodes {
		p, ok := out[n.GetDomain()]
		switch {
		case !ok || n.GetState() == StateOff:
			continue
		case n.PowerUw == nil:
			p.unknown++
			if Awaited(n) {
				p.awaited++
			}
		default:
			p.known, p.any = p.known+units.Power(n.GetPowerUw()), true
		}
		out[n.GetDomain()] = p
	}
	for _, d := range slices.Backward(tree.Domains()) { // children before parents
		p := out[d.Name]
		if r, ok := h.Meters[d.Name]; ok {
			p = power{known: r.Power, any: true, by: r.Meter}
			out[d.Name] = p
		}
		if up, ok := out[d.Parent]; ok {
			out[d.Parent] = up.plus(p)
		}
	}
	return out
}

// plus is the power of a domain together with one below it.
func (p power) plus(below power) power {
	p.known, p.any = p.known+below.known, p.any || below.any
	p.unknown, p.awaited, p.unmetered = p.unknown+below.unknown, p.awaited+below.awaited, p.unmetered+below.unmetered
	if below.by != MeasuredByNodes {
		p.by = MeasuredByMeters
	}
	return p
}

// fill adds the power to a domain's message.
func (p power) fill(m *headroomv1.Domain) {
	m.PowerUnknownNodes, m.PowerAwaitedNodes, m.UnmeteredUw = new(uint32(p.unknown)), uint32(p.awaited), int64(p.unmetered)
	if !p.any {
		return
	}
	m.PowerKnownUw = microwatts(&p.known)
	if p.unknown == 0 {
		m.MeasuredUw, m.MeasuredBy = microwatts(&p.known), p.by
	}
}

// DrawnAtLeast returns the least that a domain draws, unmanaged power included; known is
// false while nothing was measured.
func DrawnAtLeast(m *headroomv1.Domain) (drawn units.Power, known bool) {
	return units.Power(m.GetPowerKnownUw() + m.GetUnmeteredUw()), m.PowerKnownUw != nil
}
