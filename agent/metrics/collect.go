package metrics

import (
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/scrape"
	"headroom/units"
)

// Source returns the current status of the node, nil while there is none. It may wait
// for the loop, within bounds.
type Source func() *headroomv1.GetAgentStatusResponse

// Collector turns a status and the loop's counts into metrics. It keeps no state between
// scrapes.
type Collector struct {
	version string
	status  Source
	loop    *Loop
	descs   scrape.Descs
}

// New returns the collector of a powerd of that version.
func New(version string, status Source, loop *Loop) *Collector {
	return &Collector{version: version, status: status, loop: loop, descs: all().Descs()}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.loop.step.Describe(ch)
	c.loop.settle.Describe(ch)
	c.descs.Describe(ch)
}

// Collect implements prometheus.Collector; it reads the status once.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	c.loop.step.Collect(ch)
	c.loop.settle.Collect(ch)
	p := &points{c.descs.Points(ch)}
	p.Add(buildInfo, 1, c.version, runtime.Version())
	p.loop(c.loop)
	p.counters(s.GetCounters())
	drops := s.GetBrakeDrops()
	p.Add(brakeDropped, float64(drops.GetOld()), "old")
	p.Add(brakeDropped, float64(drops.GetForged()), "forged")
	p.Add(brakeDropped, float64(drops.GetMalformed()), "malformed")
	p.controls(s, c.loop)
	if s == nil {
		return
	}
	p.zones(s)
	p.node(s)
	p.sensors(s.GetSensors())
	p.policies(s.GetPolicies())
	p.health(s.GetHealth())
}

// points are the metrics of one scrape.
type points struct{ scrape.Points }

// known adds a value that may be unknown, converted by of.
func known[T ~int64](p *points, name string, value *int64, of func(T) float64, labels ...string) {
	if value != nil {
		p.Add(name, of(T(*value)), labels...)
	}
}

func ratio(p *points, name string, value *float64, labels ...string) {
	if value != nil {
		p.Add(name, *value, labels...)
	}
}

// tenths returns a power in watts, rounded to 0.1 W.
func tenths(w units.Power) float64 { return math.Round(w.Watts()*10) / 10 }

// whole returns an energy in whole joules.
func whole(e units.Energy) float64 { return math.Floor(e.Joules()) }

// milli converts thousandths (milliseconds, millidegrees).
func milli(v int64) float64 { return float64(v) / 1e3 }

func (p *points) loop(l *Loop) {
	for i, by := range limiters() {
		p.Add(nodeLimitedBy, time.Duration(l.limited[i].Load()).Seconds(), by)
	}
	for i, kind := range throttleKinds() {
		p.Add(cpuThrottled, float64(l.throttled[i].Load()), kind)
	}
}

func (p *points) counters(c *headroomv1.AgentCounters) {
	p.Add(leaseRenewals, float64(c.GetRenewals()), "ok")
	p.Add(leaseRenewals, float64(c.GetRefusals()), "refused")
	p.Add(leaseExpiries, float64(c.GetExpiries()))
	p.Add(nodeOverTime, milli(int64(c.GetOverCapMs())))
	p.Add(nodeOverEnergy, whole(units.Energy(c.GetOverCapUj())))
	p.Add(controlMisses, float64(c.GetDeadlineMisses()))
	p.Add(sprintsBegun, float64(c.GetSprints()))
}

// controls adds the drifts and failed writes of each control: 0 for every control that
// powerd may write, drift only for those that it checks.
func (p *points) controls(s *headroomv1.GetAgentStatusResponse, l *Loop) {
	drifts, writes := l.wrong()
	for control, n := range drifts {
		p.Add(zoneDrift, float64(n), control)
	}
	for f, n := range writes {
		p.Add(zoneWriteErrors, float64(n), f.control, string(f.why))
	}
	watched, written := controlsOf(s)
	for _, control := range watched { // of two points with the same labels the first is used
		p.Add(zoneDrift, 0, control)
	}
	for _, control := range append(watched, written...) {
		for _, why := range reasons() {
			p.Add(zoneWriteErrors, 0, control, string(why))
		}
	}
}

// policiesZero is with how many policies each has its counts from the start: with thousands of
// them, most of a scrape would be zeros.
const policiesZero = 256

// controlsOf returns the controls that powerd may write on this node: those checked for
// drift, and those only written.
func controlsOf(s *headroomv1.GetAgentStatusResponse) (watched, written []string) {
	for _, z := range s.GetZones() {
		if z.GetKind() == packageKind && z.GetControlType() != twinControl {
			watched = append(watched, z.GetZone())
		}
	}
	for _, f := range s.GetPolicies() {
		if f.WrittenKhz != nil && len(s.GetPolicies()) <= policiesZero {
			watched = append(watched, f.GetPolicy())
		}
	}
	for _, c := range s.GetSlices() {
		written = append(written, c.GetSlice())
	}
	for _, r := range s.GetLadder() {
		if r.GetRung() == "dcmi" && r.GetState() != "off" && r.GetState() != "missing" {
			written = append(written, BMC)
		}
	}
	return watched, written
}

// Words of the status message.
const (
	packageKind = "package"
	dramKind    = "dram"
	twinControl = "intel-rapl-mmio" // the same packages a second time
	observing   = "observing"
	believed    = "ok"
	absent      = "absent"
	modelSource = "model"
)

func (p *points) zones(s *headroomv1.GetAgentStatusResponse) {
	for _, z := range s.GetZones() {
		name, socket := z.GetZone(), socketOf(z.GetZone())
		known(p, zoneEnergy, z.EnergyUj, whole, name, socket)
		known(p, zonePower, z.PowerUw, tenths, name, socket)
		known(p, zoneLimit, z.RequestedUw, units.Power.Watts, name, longTerm, "requested")
		known(p, zoneLimit, z.WrittenUw, units.Power.Watts, name, longTerm, "written")
		known(p, zoneLimit, z.EffectiveUw, units.Power.Watts, name, longTerm, "effective")
	}
}

// socketOf returns the first number in a zone's name, "" if it has none.
func socketOf(zone string) string {
	for number := range strings.FieldsFuncSeq(zone, func(r rune) bool { return r < '0' || r > '9' }) {
		return number
	}
	return ""
}

func (p *points) node(s *headroomv1.GetAgentStatusResponse) {
	h := s.GetHolding()
	state := stateOf(h)
	p.Has(nodeState, state, nodeStates())
	p.Has(nodeRung, s.GetRung(), rungs())
	if state != observing {
		p.Add(nodeCap, units.Power(h.GetCapUw()).Watts())
	}
	p.Add(nodeFailSafe, units.Power(h.GetFailSafeUw()).Watts())
	known(p, nodePower, s.PowerUw, tenths, "best")
	known(p, nodePower, packagesAndMemory(s), tenths, "rapl")
	for _, source := range []string{"dcmi", "sdr", modelSource} {
		known(p, nodePower, onlySensor(s, source), tenths, source)
	}
	known(p, nodeDemand, s.DemandUw, tenths)
	ratio(p, nodeLimited, s.LimitedRatio)
	p.Add(nodeCutOff, scrape.OneIf(s.GetCutOff()))
	known(p, leaseRemaining, s.LeaseMs, milli)
	p.Add(sprintEscrow, units.Energy(s.GetSprint().GetEscrowUj()).Joules())
	if s.GetSprint() != nil {
		known(p, sprintSpent, s.GetSprint().SpentUj, units.Energy.Joules)
	}
	p.Add(brakeGeneration, float64(s.GetBrake().GetGeneration()))
	p.Add(brakeSet, scrape.OneIf(s.GetBrake().GetSet()))
	p.Add(savedControls, float64(s.GetSaved()))
}

func stateOf(h *headroomv1.Holding) string {
	switch h.GetState() {
	case headroomv1.LeaseState_LEASE_STATE_HELD:
		return "held"
	case headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE:
		return "fail-safe"
	case headroomv1.LeaseState_LEASE_STATE_OBSERVING, headroomv1.LeaseState_LEASE_STATE_UNSPECIFIED:
	}
	return observing
}

// packagesAndMemory returns the power of packages and memory, nil if one is unknown.
func packagesAndMemory(s *headroomv1.GetAgentStatusResponse) *int64 {
	var sum *int64
	for _, z := range s.GetZones() {
		switch {
		case z.GetKind() != packageKind && z.GetKind() != dramKind, z.GetControlType() == twinControl:
		case z.PowerUw == nil:
			return nil
		case sum == nil:
			sum = new(z.GetPowerUw())
		default:
			*sum += z.GetPowerUw()
		}
	}
	return sum
}

// onlySensor returns the power of the only sensor of a source, nil if it is not ok or
// there are several.
func onlySensor(s *headroomv1.GetAgentStatusResponse, source string) *int64 {
	var found *int64
	for _, n := range s.GetSensors() {
		if n.GetSource() != source || n.PowerUw == nil || n.GetState() != believed {
			continue
		}
		if found != nil {
			return nil
		}
		found = n.PowerUw
	}
	return found
}

func (p *points) sensors(all []*headroomv1.SensorStatus) {
	age, apart := map[string]float64{}, map[[2]string]float64{}
	for _, n := range all {
		if n.GetState() != absent {
			p.Add(sensorOK, scrape.OneIf(n.GetState() == believed), n.GetSource(), n.GetName())
		}
		known(p, sensorTemp, n.TempMc, milli, n.GetSource(), n.GetName())
		if n.AgeMs != nil {
			age[n.GetSource()] = max(age[n.GetSource()], milli(n.GetAgeMs()))
		}
		if n.Disagreement != nil {
			pair := compared(n, all)
			apart[pair] = max(apart[pair], math.Abs(n.GetDisagreement()))
		}
	}
	for source, oldest := range age {
		p.Add(sensorAge, oldest, source)
	}
	for pair, most := range apart {
		p.Add(sensorApart, most, pair[0], pair[1])
	}
}

// compared returns the two sources of a disagreement: the model is compared with the
// BMC, any other source with the node's best value.
func compared(n *headroomv1.SensorStatus, all []*headroomv1.SensorStatus) (pair [2]string) {
	if n.GetSource() != modelSource {
		return [2]string{n.GetSource(), "best"}
	}
	for _, other := range all {
		if other.GetSource() == "sdr" {
			return [2]string{"sdr", modelSource}
		}
	}
	return [2]string{"dcmi", modelSource}
}

func (p *points) policies(all []*headroomv1.PolicyStatus) {
	for _, f := range all {
		known(p, cpuFreq, f.FreqKhz, units.Freq.Hertz, f.GetPolicy())
		known(p, cpuCeiling, f.RequestedKhz, units.Freq.Hertz, f.GetPolicy(), "requested")
		known(p, cpuCeiling, f.WrittenKhz, units.Freq.Hertz, f.GetPolicy(), "written")
		known(p, cpuCeiling, f.EffectiveKhz, units.Freq.Hertz, f.GetPolicy(), "effective")
	}
}

// health adds 1 for each active item, then 0 for the others.
func (p *points) health(visible []*headroomv1.HealthItem) {
	shown := map[string]float64{warn: 0, fail: 0}
	for _, i := range visible {
		p.Add(healthShown, 1, i.GetCode(), i.GetSeverity())
		shown[i.GetSeverity()]++
	}
	for _, i := range HealthItems() {
		p.Add(healthShown, 0, i.Code, i.Severity)
	}
	for severity, n := range shown {
		p.Add(healthItems, n, severity)
	}
}
