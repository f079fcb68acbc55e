package agent

import (
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/heat"
	"headroom/agent/machine"
	"headroom/agent/meter"
	"headroom/agent/network"
	"headroom/agent/records"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/lease"
)

// reporter builds the node's status. Published status may be read by every goroutine; the
// rest belongs to the owner.
type reporter struct {
	cfg    *config.Config
	health *health.Items

	lease    *lease.Node
	machine  *machine.Machine
	meter    *meter.Meter
	heat     *heat.Heat
	control  *controller
	exchange *exchange
	locals   *localLimits
	tuner    *tuner
	records  *records.Records
	network  *network.Network
	brake    *brakeTracker
	drift    *driftWatch
	slices   *bandwidth
	limit    *bmcLimit
	tally    *tally

	latest atomic.Pointer[headroomv1.GetAgentStatusResponse]
}

// publish publishes the state for other goroutines. Values that are costly to read are added
// on a query only.
func (r *reporter) publish(now lease.Instant) { r.latest.Store(r.state(now)) }

// state returns the status without values that must be read first.
func (r *reporter) state(now lease.Instant) *headroomv1.GetAgentStatusResponse {
	excess, known := r.control.excessWall()
	s := &headroomv1.GetAgentStatusResponse{
		Node: r.cfg.Node, Version: Version, Domain: r.cfg.Domain, UptimeMs: (now.Boot - r.control.began).Milliseconds(),
		Tree: status.Tree(r.cfg.Root), Rung: r.control.rung(), Enforce: r.cfg.Enforce, Holding: r.exchange.holdingOf(r.lease.Report(now, excess, known)), Health: r.health.List(),
		Ladder: ladderRows(r.ladderRows()), Sprint: r.control.sprintStatus(now.Boot), Rivals: r.drift.rivals.units, Advertise: r.network.Address(),
		CutOff: r.network.CutOff, Local: r.locals.status(now.Boot), LimitedBy: r.control.limitedBy(now.Boot), Counters: r.tally.counters.wire(),
		Slices: r.slices.rows(), Brake: r.brake.status(), BrakeDrops: dropsMessage(r.network.BrakeDrops()),
	}
	if l := r.exchange.streams.Leader(); l != nil {
		s.Leader = l.Name
	}
	if p, ok := r.meter.Mean.Value(); ok {
		s.PowerUw = (*int64)(&p)
	}
	if p, ok := r.control.demand.Watts(now.Boot, r.cfg.Power.Floor, r.cfg.Power.Max); ok {
		s.DemandUw = (*int64)(&p)
	}
	if ratio, ok := r.control.demand.LimitedRatio(now.Boot); ok {
		s.LimitedRatio = &ratio
	}
	if r.records.Journal != nil {
		s.Saved, s.SavedUs = uint32(len(r.records.Journal.Controls)), r.records.Journal.SavedUs
	}
	other, learned := r.meter.Other()
	s.OtherUw, s.OtherFrom = (*int64)(&other), "configured"
	if learned {
		s.OtherFrom = "learned"
	}
	s.Zones = r.machine.ZoneRows(machine.Usage{Holding: r.control.mode == holding, Shadows: r.control.shadows(), Limited: r.control.law.Limited})
	return s
}

// details returns the complete status.
func (r *reporter) details(now lease.Instant) *headroomv1.GetAgentStatusResponse {
	s := r.state(now)
	s.Sensors, s.Policies, s.Turbo = r.sensors(now.Boot), r.policies(), r.tuner.turboRow(r.control.mode == holding)
	r.latest.Store(s)
	return s
}

func ladderRows(all []capping.RungInfo) []*headroomv1.RungStatus {
	rows := make([]*headroomv1.RungStatus, 0, len(all))
	for _, i := range all {
		rows = append(rows, &headroomv1.RungStatus{Rung: i.Rung.String(), State: i.State.String(), Text: i.Text})
	}
	return rows
}

// snapshot returns the last published status, with current times.
func (r *reporter) snapshot() *headroomv1.GetAgentStatusResponse {
	s := proto.CloneOf(r.latest.Load())
	now := instant().Boot
	s.UptimeMs = (now - r.control.began).Milliseconds()
	if end := time.Duration(r.exchange.leaseEnd.Load()); end > now {
		s.LeaseMs = new((end - now).Milliseconds())
	}
	return s
}

// ladderRows returns the rungs for the status, including those of other programs.
func (r *reporter) ladderRows() []capping.RungInfo {
	l := capping.Choose([]capping.RungInfo{r.machine.RAPLInfo, r.machine.FreqInfo, r.slices.info(), r.limit.info()})
	if r.control.mode == holding {
		return l.Rungs
	}
	for i := range l.Rungs {
		if l.Rungs[i].State == capping.RungUsed {
			l.Rungs[i].State, l.Rungs[i].Text = capping.RungReady, "observe only"
		}
	}
	return l.Rungs
}

// summary describes the node in one line, without figures that change constantly.
func (r *reporter) summary() string {
	base, state := r.lease.Cap()
	var s string
	switch {
	case r.control.mode == released:
		s = "released: original limits restored, observing only"
	case r.control.mode == observing && !r.cfg.Enforce:
		s = "observing only: enforce is false"
	case r.control.mode == observing:
		s = "cannot enforce a cap: " + r.machine.Ladder.Why
	case state == lease.Held:
		s = fmt.Sprintf("holding the lease cap of %v with %v", base, r.machine.Ladder.Use)
	default:
		s = fmt.Sprintf("holding the fail-safe cap of %v with %v (%v)", base, r.machine.Ladder.Use, r.lease.Why())
	}
	if r.control.caps.running != "" {
		s += "; sprinting"
	}
	if r.network.CutOff {
		s += "; no link to a coordinator"
	}
	if k := r.health.Len(); k > 0 {
		s += fmt.Sprintf("; health items: %d, see powerd status", k)
	}
	return s
}

// sensors returns all sources of power and temperature, with age and difference to the power
// that powerd uses.
func (r *reporter) sensors(now time.Duration) []*headroomv1.SensorStatus {
	rows := append(r.machine.SensorRows(), r.meter.BMCRow(now), r.meter.ModelRow(now))
	return append(rows, r.heat.Rows()...)
}

// policies returns the cpufreq policies for the status.
func (r *reporter) policies() []*headroomv1.PolicyStatus {
	f := r.machine.Freq
	if f == nil {
		return nil
	}
	rows := f.Rows(r.control.shadows() && r.machine.Ladder.Use == capping.RungFreq)
	for i, p := range f.Set.Policies() {
		r.tuner.preferenceRow(rows[i], p, r.control.mode == holding)
	}
	return rows
}
