package meter

import (
	"fmt"
	"math"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/status"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/ipmi"
)

// BMCRow is the BMC's reading.
func (w *Meter) BMCRow(now time.Duration) *headroomv1.SensorStatus {
	r := w.told
	row := &headroomv1.SensorStatus{Source: string(ipmi.SourceDCMI), Name: "wall", State: string(r.State), Text: r.Why}
	if r.Source != ipmi.SourceNone {
		row.Source = string(r.Source)
	}
	if r.Sensors != "" {
		row.Name = r.Sensors
	}
	switch {
	case w.BMC == nil:
		row.State, row.Text = "absent", w.noBMC()
	case r.Known:
		row.Text = r.Note
		row.PowerUw = new(int64(r.Power))
		if r.Suite > 0 {
			row.CipherSuite = new(uint32(r.Suite))
		}
		if best, ok := w.Mean.Value(); ok && best > 0 {
			row.Disagreement = new(r.Power.Watts()/best.Watts() - 1)
		}
	case row.State == "":
		row.State = string(ipmi.StateUnknown)
	}
	if w.BMC != nil && r.ChangedAt > 0 {
		row.AgeMs = new(max(0, now-r.ChangedAt).Milliseconds())
	}
	return row
}

func (w *Meter) noBMC() string {
	if w.cfg.IPMI.Mode == config.IPMIAuto {
		return "not read: ipmi.mode is auto and root is not /"
	}
	if w.cfg.IPMI.Mode == config.IPMIOff {
		return "not read: ipmi.mode is off"
	}
	return "not read: ipmi.password_file is unusable"
}

// ModelRow is what the model makes of package power, against the BMC.
func (w *Meter) ModelRow(now time.Duration) *headroomv1.SensorStatus {
	row := &headroomv1.SensorStatus{Source: "model", Name: "package + dram + other", State: "unknown", Text: "package power is not known"}
	in := w.Sample
	if !in.Package.Known || w.Model.HasDRAM && !in.DRAM.Known {
		return row
	}
	row.State, row.Text, row.PowerUw = status.OK, "", (*int64)(new(w.best().Wall(in.Package.Power, in.DRAM.Power)))
	if w.learning() {
		if a := w.learner.Agreement(now); a.State != capping.AgreementUnknown && !math.IsNaN(a.Ratio) {
			row.Disagreement, row.Text = new(a.Ratio), "as configured, "+a.String()+" with the BMC"
		}
		if m := w.learner.Margin(); m > 0 {
			row.Text = strings.TrimPrefix(fmt.Sprintf("%s; margin %.1f %%", row.Text, 100*m), "; ")
		}
	}
	return row
}
