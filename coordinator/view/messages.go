// Package view converts the committed state, and what a leader hears beside it, to messages:
// nodes, domains and sprints.
//
// The one idea: an unknown value is absent, never zero and never the requested value. A
// follower shows the committed state, and nodes as "unknown"; a leader adds what it hears.
//
// What it never does: decide, or show a measurement that is too old to count.
package view

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/each"
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
	StateReleased  = "released"
	stateDrained   = "drained"
	StateOff       = "off"
	StateUnknown   = "unknown"
)

// Sources of a domain's power that has no meter of its own: the sum of its nodes, or of the
// meters of domains below and of nodes.
const (
	MeasuredByNodes  = "nodes"
	MeasuredByMeters = "meters"
)

// StaleReport is the age up to which a measurement counts into a domain's measured power.
const StaleReport = 3 * time.Second

// Nodes returns all nodes by name. On a follower h is nil, and what only the leader hears is absent.
func Nodes(s *ledger.State, h *Heard) []*headroomv1.Node {
	return each.List(s.NodesByName(), func(n ledger.Node) *headroomv1.Node { return Node(s, h, n) })
}

// Node returns one node.
func Node(s *ledger.State, h *Heard, n ledger.Node) *headroomv1.Node {
	m := &headroomv1.Node{
		Name: n.Name, Domain: n.Domain, TargetUw: cli.Known(int64(n.Target), n.Target > 0), CeilingUw: int64(n.Ceiling), ChargeUw: int64(n.Charge()),
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
	if h == nil {
		m.State = StateUnknown
	} else {
		h.add(m, n)
	}
	switch {
	case n.Off != "":
		m.State = StateOff
	case n.Drained && n.Grantable() && m.GetState() != StateLost:
		m.State = stateDrained
	case n.Released:
		m.State, m.TargetUw = StateReleased, nil // it holds no cap any more
	case !n.Controlled && m.GetState() != StateLost:
		m.State = stateObserving
	}
	return m
}

// Heard is what only a leader has: reports of nodes and readings of meters.
type Heard struct {
	// Table of the reports of nodes, and Now, the leader's monotonic time.
	Table *ledger.Table
	Now   time.Duration
	// Lost is the age of a node's newest report from which the node counts as lost.
	Lost time.Duration
	// Meters are the readings of domains' meters that count now, by domain.
	Meters map[string]Reading
	// CertificateEnds are the ends of the certificates that nodes have shown last, by node.
	CertificateEnds map[string]time.Time
	// Since is when each node entered its state, and Drifted when a limit of it last drifted, by node.
	Since, Drifted map[string]time.Time
}

// Reading is one reading of a domain's meter.
type Reading struct {
	// Power is the value, and Meter the name of the meter.
	Power units.Power
	Meter string
}

// of returns the newest report of a node; known is false if there is none, or it is too old to count.
func (h *Heard) of(node string) (v ledger.View, known bool) {
	v, ok := h.Table.View(node, h.Now)
	return v, ok && v.Age <= h.Lost
}

// add adds what the leader has heard of the node.
func (h *Heard) add(m *headroomv1.Node, n ledger.Node) {
	m.CertificateEndsUs, m.StateSinceUs, m.LastDriftUs = moment(h.CertificateEnds[n.Name]), moment(h.Since[n.Name]), moment(h.Drifted[n.Name])
	v, ok := h.Table.View(n.Name, h.Now)
	switch {
	case !ok && h.Now < h.Lost:
		m.State = StateUnknown // this leader has just begun
	case !ok, v.Age > h.Lost:
		m.State = StateLost
	}
	if !ok {
		return
	}
	// A lease runs from a heartbeat, so none lasts longer than its length after the last one heard.
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

// moment returns a time in microseconds since the Unix epoch, nil for the zero time.
func moment(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMicro())
}

func microwatts(p *units.Power) *int64 {
	if p == nil {
		return nil
	}
	return new(int64(*p))
}

// Domains returns all domains, parents before children. What is measured is absent if h is nil.
func Domains(s *ledger.State, h *Heard, nodes []*headroomv1.Node) []*headroomv1.Domain {
	tree := s.Tree()
	if tree == nil {
		return nil
	}
	totals := s.Totals()
	var powers map[string]power
	if h != nil {
		powers = domainPowers(s, tree, h, nodes)
	}
	var out []*headroomv1.Domain
	for _, d := range tree.Domains() {
		m := domainMessage(s, s.Domains[d.Name], totals[d.Name])
		if p, ok := powers[d.Name]; ok {
			p.fill(m)
		}
		out = append(out, m)
	}
	return out
}

// domainMessage returns a domain with its sums and its settings.
func domainMessage(s *ledger.State, d ledger.Domain, t ledger.Totals) *headroomv1.Domain {
	m := Totals(d.Name, t)
	m.Parent, m.RatingUw, m.Margin, m.BootNodes = d.Parent, int64(d.Rating), d.Margin, uint32(d.BootNodes)
	m.RatedMaxUw, m.HighestUw = int64(d.RatedMax), cli.Known(int64(d.Highest), d.Highest > 0)
	m.LostCharge, m.Sprint = string(d.LostCharge), sprintBudgetMessage(s, d)
	if d.Back != nil {
		m.BackUw, m.BackAtUs = new(int64(d.Back.Budget)), d.Back.At
	}
	return m
}

// Totals returns a domain with its sums alone.
func Totals(name string, t ledger.Totals) *headroomv1.Domain {
	return &headroomv1.Domain{
		Name: name, BudgetUw: int64(t.Budget), UnmanagedUw: int64(t.Unmanaged), ReservedUw: int64(t.Reserved),
		HeadroomUw: int64(t.Headroom()), FloorUw: int64(t.Floor), Nodes: uint32(t.Nodes), BootReserveUw: int64(t.Boot),
	}
}

// BrakeStored returns the number of nodes that are heard, and the names of those that have
// not stored the generation of the brake that is in force.
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

// Event returns a line of the audit log as a message.
func Event(e ledger.Event) *headroomv1.Event {
	return &headroomv1.Event{Revision: e.Revision, AtUs: e.At, Actor: e.Actor, What: e.What, Reason: e.Reason, RequestId: e.RequestID}
}
