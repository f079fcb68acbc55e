package agent

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
)

// sensors are all sources of power and temperature, each with its age and how far
// it is from the node's best figure.
func (r *reporter) sensors(now time.Duration) []*headroomv1.SensorStatus {
	rows := append(r.machine.SensorRows(), r.meter.BMCRow(now), r.meter.ModelRow(now))
	return append(rows, r.heat.Rows()...)
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
