package coordinator

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/wire"
	"headroom/ledger"
	"headroom/units"
)

// States of a node in lists.
const (
	stateOK        = "ok"
	stateWaiting   = "waiting"
	stateLost      = "lost"
	stateObserving = "observing"
	stateReleased  = "released"
	stateDrained   = "drained"
	stateOff       = "off"
)

// staleReport is how old a measurement may be to count into a domain's measured power.
const staleReport = 3 * time.Second

// nodeMessages are all nodes by name. d is nil on a server that does not lead: what only the leader hears is absent then.
func nodeMessages(s *ledger.State, d *desk) []*headroomv1.Node {
	out := make([]*headroomv1.Node, 0, len(s.Nodes))
	for _, n := range s.NodesByName() {
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
			m.State = stateOK
		}
		if d != nil {
			heardOf(m, n, d)
		}
		switch {
		case n.Off != "":
			m.State = stateOff
		case n.Drained && m.GetState() == stateOK:
			m.State = stateDrained
		case n.Released:
			m.State = stateReleased
		case !n.Controlled:
			m.State = stateObserving
		}
		out = append(out, m)
	}
	return out
}

// heardOf adds what the leader has heard of the node.
func heardOf(m *headroomv1.Node, n ledger.Node, d *desk) {
	v, ok := d.lead.Table().View(n.Name, d.now())
	if !ok || v.Age > d.timing.Lost {
		m.State = stateLost
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
	if v.Age > staleReport {
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

// domainMessages are all domains, parents before children, with the measured power where every node below has reported.
func domainMessages(s *ledger.State, d *desk, nodes []*headroomv1.Node) []*headroomv1.Domain {
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
		if sum := measured[dom.Name]; d != nil && unknown[dom.Name] == 0 && totals[dom.Name].Nodes > 0 {
			m.MeasuredUw, m.MeasuredBy = microwatts(&sum), measuredByNodes
		}
		if d != nil {
			if r, ok := d.metered(dom.Name); ok {
				m.MeasuredUw, m.MeasuredBy = microwatts(&r.power), r.meter
			}
		}
		out = append(out, m)
	}
	return out
}

// domainMessage is a domain with its sums and everything that operators say of it.
func domainMessage(s *ledger.State, d ledger.Domain, t ledger.Totals) *headroomv1.Domain {
	m := totalsMessage(d.Name, t)
	m.Parent, m.RatingUw, m.Margin, m.BootNodes = d.Parent, int64(d.Rating), d.Margin, uint32(d.BootNodes)
	m.RatedMaxUw = int64(d.RatedMax)
	m.LostCharge, m.Sprint = string(d.LostCharge), sprintBudgetMessage(s, d)
	if d.Back != nil {
		back := int64(d.Back.Budget)
		m.BackUw, m.BackAtUs = &back, d.Back.At
	}
	return m
}

func totalsMessage(name string, t ledger.Totals) *headroomv1.Domain {
	return &headroomv1.Domain{
		Name: name, BudgetUw: int64(t.Budget), UnmanagedUw: int64(t.Unmanaged), ReservedUw: int64(t.Reserved),
		HeadroomUw: int64(t.Headroom()), FloorUw: int64(t.Floor), Nodes: uint32(t.Nodes), BootReserveUw: int64(t.Boot),
	}
}
