package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
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
)

// staleReport is how old a measurement may be to count into a domain's measured power.
const staleReport = 3 * time.Second

// nodeMessages are all nodes by name. d is nil on a server that does not lead: what only the leader hears is absent then.
func nodeMessages(s *ledger.State, d *desk) []*headroomv1.Node {
	out := make([]*headroomv1.Node, 0, len(s.Nodes))
	for _, n := range s.NodesByName() {
		m := &headroomv1.Node{
			Name: n.Name, Domain: n.Domain, TargetUw: int64(n.Target), CeilingUw: int64(n.Ceiling), ChargeUw: int64(n.Charge()),
			FailSafeUw: int64(n.FailSafe), FloorUw: int64(n.Floor), MaxUw: int64(n.Max), RatedUw: int64(n.Rated), Weight: n.Weight,
			Stamp: stampMessage(s.Stamp(n)), MachineId: n.MachineID, State: stateWaiting,
		}
		if n.Grantable() {
			m.State = stateOK
		}
		if d != nil {
			heardOf(m, n, d)
		}
		switch {
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
	v, ok := d.table.View(n.Name, d.now())
	if !ok || v.Age > d.timing.Lost {
		m.State = stateLost
	}
	if !ok {
		return
	}
	// A lease counts from a heartbeat, so none runs longer than a lease after the last one heard.
	remains := min(v.Lease, d.timing.Lease-v.Age)
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
		m := totalsMessage(dom.Name, totals[dom.Name])
		m.Parent = dom.Parent
		if sum := measured[dom.Name]; d != nil && unknown[dom.Name] == 0 && totals[dom.Name].Nodes > 0 {
			m.MeasuredUw = microwatts(&sum)
		}
		out = append(out, m)
	}
	return out
}

func totalsMessage(name string, t ledger.Totals) *headroomv1.Domain {
	return &headroomv1.Domain{
		Name: name, BudgetUw: int64(t.Budget), UnmanagedUw: int64(t.Unmanaged), ReservedUw: int64(t.Reserved),
		HeadroomUw: int64(t.Headroom()), FloorUw: int64(t.Floor), Nodes: uint32(t.Nodes),
	}
}

// alarms are the warnings of the whole cluster, the worst first.
func alarms(s *ledger.State, d *desk, nodes []*headroomv1.Node) []*headroomv1.HealthItem {
	var out []*headroomv1.HealthItem
	add := func(code, severity, hint, format string, args ...any) {
		out = append(out, &headroomv1.HealthItem{Code: code, Severity: severity, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	for _, dom := range domainMessages(s, d, nodes) {
		if dom.GetHeadroomUw() < 0 {
			add("shortfall", "fail", "coordinator node list shows who is charged what; bring lost nodes back, or raise the budget",
				"%s is %v short: charged %v and %v unmanaged, budget %v", dom.GetName(), -units.Power(dom.GetHeadroomUw()),
				units.Power(dom.GetReservedUw()), units.Power(dom.GetUnmanagedUw()), units.Power(dom.GetBudgetUw()))
		}
		if dom.MeasuredUw != nil && dom.GetMeasuredUw() > dom.GetReservedUw() {
			add("measured-above-reserved", "fail", "compare coordinator node list: a node draws more than its cap",
				"%s draws %v, charged are only %v", dom.GetName(), units.Power(dom.GetMeasuredUw()), units.Power(dom.GetReservedUw()))
		}
	}
	for _, n := range nodes {
		if n.GetState() == stateLost {
			add("node-lost", "warn", "see its powerd's log; it holds at most what it is charged",
				"%s is lost, charged at %v", n.GetName(), units.Power(n.GetChargeUw()))
		}
		for _, h := range n.GetHealth() {
			add(h.GetCode(), h.GetSeverity(), h.GetHint(), "%s: %s", n.GetName(), h.GetText())
		}
	}
	if d != nil && d.board.refusal != "" && d.board.refused > d.board.acked {
		add("directive-refused", "warn", "see the scheduler's log", "the scheduler refused directive %d: %s", d.board.refused, d.board.refusal)
	}
	slices.SortStableFunc(out, func(a, b *headroomv1.HealthItem) int { return cmp.Compare(a.GetSeverity(), b.GetSeverity()) })
	return out
}
