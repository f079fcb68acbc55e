package agent

import (
	"fmt"
	"math"
	"time"

	"headroom/agent/config"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/dvfs"
	"headroom/ipmi"
	"headroom/units"
)

// sensorOld is how long a counter may stand still under load before it counts as stale.
const sensorOld = 5 * time.Second

// sensors are all sources of power and temperature, each with its age and how far
// it is from the node's best figure.
func (n *node) sensors(now time.Duration) []*headroomv1.SensorStatus {
	var rows []*headroomv1.SensorStatus
	for _, s := range n.machine.sockets {
		rows = append(rows, raplRow(s.zone.Label, s.power, s.meter.Unchanged()))
	}
	for _, d := range n.machine.drams {
		rows = append(rows, raplRow(d.zone.Label, d.power, d.meter.Unchanged()))
	}
	rows = append(rows, n.meter.bmcRow(now), n.meter.modelRow())
	if n.heat.sensors == nil {
		return rows
	}
	for _, r := range n.heat.sensors.Sample() {
		row := &headroomv1.SensorStatus{Source: r.Source, Name: r.Name, State: status.OK}
		switch {
		case !r.Known:
			row.State = "unknown"
			if r.Err != nil {
				row.Text = r.Err.Error()
			}
		case r.Meter:
			row.PowerUw = new(int64(r.Power))
		default:
			row.TempMc = new(int64(r.Temp))
		}
		rows = append(rows, row)
	}
	for _, missing := range n.heat.sensors.Missing() {
		rows = append(rows, &headroomv1.SensorStatus{Source: "thermal", Name: "-", State: "absent", Text: missing})
	}
	return rows
}

func raplRow(name string, power capping.Reading, still time.Duration) *headroomv1.SensorStatus {
	row := &headroomv1.SensorStatus{Source: "rapl", Name: name, State: status.OK, AgeMs: new(still.Milliseconds())}
	switch {
	case still > sensorOld:
		row.State, row.Text = "stale", "the counter does not move"
	case !power.Known:
		row.State, row.Text, row.AgeMs = "unknown", "the counter cannot be read, or was reset", nil
	default:
		row.PowerUw = new(int64(power.Power))
	}
	return row
}

// bmcRow is the BMC's reading.
func (w *wallMeter) bmcRow(now time.Duration) *headroomv1.SensorStatus {
	r := w.told
	row := &headroomv1.SensorStatus{Source: string(ipmi.SourceDCMI), Name: "wall", State: string(r.State), Text: r.Why}
	if r.Source != ipmi.SourceNone {
		row.Source = string(r.Source)
	}
	if r.Sensors != "" {
		row.Name = r.Sensors
	}
	switch {
	case w.bmc == nil:
		row.State, row.Text = "absent", w.noBMC()
	case r.Known:
		row.PowerUw = new(int64(r.Power))
		if r.Suite > 0 {
			row.CipherSuite = new(uint32(r.Suite))
		}
		if best, ok := w.mean.value(); ok && best > 0 {
			row.Disagreement = new(r.Power.Watts()/best.Watts() - 1)
		}
	case row.State == "":
		row.State = string(ipmi.StateUnknown)
	}
	if w.bmc != nil && r.ChangedAt > 0 {
		row.AgeMs = new(max(0, now-r.ChangedAt).Milliseconds())
	}
	return row
}

func (w *wallMeter) noBMC() string {
	if w.cfg.IPMI.Mode == config.IPMIAuto {
		return "no BMC of this node is asked (ipmi.mode is auto, and the node stands below another root)"
	}
	if w.cfg.IPMI.Mode == config.IPMIOff {
		return "ipmi.mode is off"
	}
	return "the password file cannot be used"
}

// modelRow is what the model makes of package power, against the BMC.
func (w *wallMeter) modelRow() *headroomv1.SensorStatus {
	row := &headroomv1.SensorStatus{Source: "model", Name: "package + dram + other", State: "unknown", Text: "package power is not known"}
	in := w.sample
	if !in.Package.Known || w.law.HasDRAM && !in.DRAM.Known {
		return row
	}
	p := w.model().Wall(in.Package.Power, in.DRAM.Power)
	row.State, row.Text, row.PowerUw = status.OK, "", (*int64)(&p)
	if w.learning() {
		a := w.learner.Agreement(instant().Boot)
		if a.State != capping.AgreementUnknown && !math.IsNaN(a.Ratio) {
			row.Disagreement, row.Text = new(a.Ratio), "as configured, "+a.String()+" with the BMC"
		}
		if m := w.learner.Margin(); m > 0 {
			row.Text += fmt.Sprintf(" (margin %.1f %%)", 100*m)
		}
	}
	return row
}

// policies are the cpufreq policies for status.
func (n *node) policies() []*headroomv1.PolicyStatus {
	f := n.machine.freq
	if f == nil {
		return nil
	}
	rows := make([]*headroomv1.PolicyStatus, 0, len(f.set.Policies()))
	for _, p := range f.set.Policies() {
		row := f.policyRow(p)
		if n.shadows() && n.machine.ladder.Use == capping.RungFreq {
			row.RequestedKhz = khz(f.requested[p.Name])
		}
		n.preferenceRow(row, p)
		rows = append(rows, row)
	}
	return rows
}

func (f *freqRung) policyRow(p *dvfs.Policy) *headroomv1.PolicyStatus {
	row := &headroomv1.PolicyStatus{Policy: p.Name, Driver: p.Driver, MinKhz: new(int64(p.Min)), MaxKhz: new(int64(p.Max)), State: "read-only"}
	row.Governor, _ = p.Governor() // "" where the policy is offline
	if e, err := p.EPP(); err == nil {
		row.Epp = e.String()
	}
	if v, err := p.Frequency(); err == nil {
		row.FreqKhz = new(int64(v))
	}
	now, err := p.CeilingNow()
	if err != nil {
		row.State = "offline"
		return row
	}
	row.EffectiveKhz = new(int64(now))
	if !f.used {
		return row
	}
	row.RequestedKhz, row.WrittenKhz = khz(f.requested[p.Name]), khz(f.written[p.Name])
	switch {
	case f.written[p.Name] > 0 && now > f.written[p.Name]:
		row.State = "drift"
	case f.law.Limited:
		row.State = "limited"
	default:
		row.State = status.OK
	}
	return row
}

func khz(f units.Freq) *int64 {
	if f == 0 {
		return nil
	}
	return new(int64(f))
}
