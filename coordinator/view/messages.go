// Package view shows the committed state, and what a leader hears beside it, as messages:
// nodes, domains and sprints.
//
// The one idea: what is not known is absent, never zero and never the value that was asked
// for. A server that does not lead shows what the log says; a leader adds what it hears.
//
// What it never does: decide, or show a measurement that is too old to be true.
package view

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/units"
)

// States of a node in lists.
const (
	StateOK        = "ok"
	stateWaiting   = "waiting"
	StateLost      = "lost"
	stateObserving = "observing"
	stateReleased  = "released"
	stateDrained   = "drained"
	stateOff       = "off"
)

// MeasuredByNodes says that a domain's power is the sum of its nodes'.
const MeasuredByNodes = "nodes"

// StaleReport is how old a measurement may be to count into a domain's measured power.
const StaleReport = 3 * time.Second

// Nodes are all nodes by name. h is nil on a server that does not lead: what only the leader hears is absent then.
func Nodes(s *ledger.State, h *Heard) []*headroomv1.Node {
	out := make([]*headroomv1.Node, 0, len(s.Nodes))
	for _, n := range s.NodesByName() {
		out = append(out, Node(s, h, n))
	}
	return out
}

// Node is one of them.
func Node(s *ledger.State, h *Heard, n ledger.Node) *headroomv1.Node {
	m := &headroomv1.Node{
		Name: n.Name, Domain: n.Domain, TargetUw: int64(n.Target), CeilingUw: int64(n.Ceiling), ChargeUw: int64(n.Charge()),
		FailSafeUw: int64(n.FailSafeCap()), FloorUw: int64(n.Floor), MaxUw: int64(n.Most()), RatedUw: int64(n.Rated), Weight: n.Share(),
		Stamp: wire.StampMessage(s.Stamp(n)), MachineId: n.MachineID, State: stateWaiting, MovingFrom: n.From, LeastUw: int64(n.Least()), OffBy: n.Off,
		Settings: settingsMessage(n.Settings), Sprint: nodeSprintMessage(n.Sprint),
	}
	if n.Declared != nil && n.Declared.Rated != n.Rated {
		m.DeclaredRatedUw = microwatts(&n.Declared.Rated)
	}
	if n.Drawn > n.Rated {
		m.DrawnUw = microwatts(&n.Drawn)
	}
	if n.Grantable() {
		m.State = StateOK
	}
	if h != nil {
		h.add(m, n)
	}
	switch {
	case n.Off != "":
		m.State = stateOff
	case n.Drained && m.GetState() == StateOK:
		m.State = stateDrained
	case n.Released:
		m.State = stateReleased
	case !n.Controlled:
		m.State = stateObserving
	}
	return m
}

// Heard is what only a leader knows: what it hears from nodes and meters.
type Heard struct {
	// Table of the reports of nodes, and Now, the leader's monotonic time.
	Table *ledger.Table
	Now   time.Duration
	// Lost is how old the newest report of a node may be before the node counts as lost.
	Lost time.Duration
	// Meters are the readings of domains' meters that count now, by domain.
	Meters map[string]Reading
}

// Reading is what a meter of a domain has read.
type Reading struct {
	// Power that the meter has read, and Meter, its name.
	Power units.Power
	Meter string
}

// of is what is heard of a node; known is false while nothing is, or it is too old to count.
func (h *Heard) of(node string) (v ledger.View, known bool) {
	v, ok := h.Table.View(node, h.Now)
	return v, ok && v.Age <= h.Lost
}

// add adds what the leader has heard of the node.
func (h *Heard) add(m *headroomv1.Node, n ledger.Node) {
	v, ok := h.Table.View(n.Name, h.Now)
	if !ok || v.Age > h.Lost {
		m.State = StateLost
	}
	if !ok {
		return
	}
	// A lease counts from a heartbeat, so none runs longer than a lease after the last one heard.
	remains := min(v.Lease, v.Length-v.Age)
	age, left := v.Age.Milliseconds(), remains.Milliseconds()
	m.HeardMs, m.Rung, m.Version = &age, v.Report.Rung, v.Report.Version
	if remains > 0 {
		m.LeaseMs = &left
	}
	if v.Age > StaleReport {
		return
	}
	m.PowerUw, m.DemandUw, m.LimitedRatio = microwatts(v.Report.Power), microwatts(v.Report.Demand), v.Report.Limited
	if v.Report.EffectiveKnown {
		m.EffectiveUw = microwatts(&v.Report.Effective)
	}
	for _, h := range v.Report.Health {
		m.Health = append(m.Health, &headroomv1.HealthItem{Code: h.Code, Severity: h.Severity, Text: h.Text, Hint: h.Hint})
	}
}

func settingsMessage(x ledger.Settings) *headroomv1.NodeSettings {
	return &headroomv1.NodeSettings{
		MinUw: microwatts(x.Min), MaxUw: microwatts(x.Max), FailSafeUw: microwatts(x.FailSafe), Weight: x.Weight, Bmc: x.BMC, Labels: x.Labels,
		RatedUw: microwatts(x.Rated),
	}
}

func nodeSprintMessage(p *ledger.NodeSprint) *headroomv1.Sprint {
	if p == nil {
		return nil
	}
	return wire.SprintMessage(p.Lease())
}

func microwatts(p *units.Power) *int64 {
	if p == nil {
		return nil
	}
	v := int64(*p)
	return &v
}

// Domains are all domains, parents before children, with the measured power where every node below has reported.
func Domains(s *ledger.State, h *Heard, nodes []*headroomv1.Node) []*headroomv1.Domain {
	tree := s.Tree()
	if tree == nil {
		return nil
	}
	totals := s.Totals()
	measured, unknown := map[string]units.Power{}, map[string]units.Power{}
	for _, n := range nodes {
		if n.PowerUw == nil {
			unknown[n.GetDomain()]++
			continue
		}
		measured[n.GetDomain()] += units.Power(n.GetPowerUw())
	}
	measured, unknown = tree.Totals(measured), tree.Totals(unknown)
	var out []*headroomv1.Domain
	for _, dom := range tree.Domains() {
		m := domainMessage(s, s.Domains[dom.Name], totals[dom.Name])
		if sum := measured[dom.Name]; h != nil && unknown[dom.Name] == 0 && totals[dom.Name].Nodes > 0 {
			m.MeasuredUw, m.MeasuredBy = microwatts(&sum), MeasuredByNodes
		}
		if h != nil {
			if r, ok := h.Meters[dom.Name]; ok {
				m.MeasuredUw, m.MeasuredBy = microwatts(&r.Power), r.Meter
			}
		}
		out = append(out, m)
	}
	return out
}

// domainMessage is a domain with its sums and everything that operators say of it.
func domainMessage(s *ledger.State, d ledger.Domain, t ledger.Totals) *headroomv1.Domain {
	m := Totals(d.Name, t)
	m.Parent, m.RatingUw, m.Margin, m.BootNodes = d.Parent, int64(d.Rating), d.Margin, uint32(d.BootNodes)
	m.RatedMaxUw, m.HighestUw = int64(d.RatedMax), int64(d.Highest)
	m.LostCharge, m.Sprint = string(d.LostCharge), sprintBudgetMessage(s, d)
	if d.Back != nil {
		back := int64(d.Back.Budget)
		m.BackUw, m.BackAtUs = &back, d.Back.At
	}
	return m
}

// Totals is a domain with its sums alone.
func Totals(name string, t ledger.Totals) *headroomv1.Domain {
	return &headroomv1.Domain{
		Name: name, BudgetUw: int64(t.Budget), UnmanagedUw: int64(t.Unmanaged), ReservedUw: int64(t.Reserved),
		HeadroomUw: int64(t.Headroom()), FloorUw: int64(t.Floor), Nodes: uint32(t.Nodes), BootReserveUw: int64(t.Boot),
	}
}

// BrakeStored counts the nodes that are heard, and names those of them that have not
// stored the generation of the brake that is in force.
func (h *Heard) BrakeStored(s *ledger.State, generation uint64) (nodes *uint32, behind []string) {
	n := uint32(0)
	for _, x := range s.NodesByName() {
		v, known := h.of(x.Name)
		if !known {
			continue
		}
		n++
		if generation > s.Brake.Lifted && v.Report.Brake < generation {
			behind = append(behind, x.Name)
		}
	}
	return &n, behind
}
