package agent

import (
	"fmt"
	"math"
	"time"

	"headroom/agent/config"
	"headroom/agent/status"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/ipmi"
)

// sensors are all sources of power and temperature, each with its age and how far
// it is from the node's best figure.
func (r *reporter) sensors(now time.Duration) []*headroomv1.SensorStatus {
	rows := append(r.machine.SensorRows(), r.meter.bmcRow(now), r.meter.modelRow(now))
	if r.heat.sensors == nil {
		return rows
	}
	for _, s := range r.heat.sensors.Sample() {
		row := &headroomv1.SensorStatus{Source: s.Source, Name: s.Name, State: status.OK}
		switch {
		case !s.Known:
			row.State = "unknown"
			if s.Err != nil {
				row.Text = s.Err.Error()
			}
		case s.Meter:
			row.PowerUw = new(int64(s.Power))
		default:
			row.TempMc = new(int64(s.Temp))
		}
		rows = append(rows, row)
	}
	for _, missing := range r.heat.sensors.Missing() {
		rows = append(rows, &headroomv1.SensorStatus{Source: "thermal", Name: "-", State: "absent", Text: missing})
	}
	return rows
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
func (w *wallMeter) modelRow(now time.Duration) *headroomv1.SensorStatus {
	row := &headroomv1.SensorStatus{Source: "model", Name: "package + dram + other", State: "unknown", Text: "package power is not known"}
	in := w.sample
	if !in.Package.Known || w.law.HasDRAM && !in.DRAM.Known {
		return row
	}
	p := w.model().Wall(in.Package.Power, in.DRAM.Power)
	row.State, row.Text, row.PowerUw = status.OK, "", (*int64)(&p)
	if w.learning() {
		a := w.learner.Agreement(now)
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
