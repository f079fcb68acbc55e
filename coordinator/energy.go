package coordinator

import (
	"time"

	"headroom/coordinator/arbitration"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/energy"
	"headroom/ledger"
	"headroom/units"
)

// What nodes draw is shared among their jobs by package energy, in the memory of the
// leadership: joules that are counted every second are no matter for the log. What a job has
// drawn in all is committed when it ends. A new leader begins anew, and says since when.

// lookAtEnergy shares what nodes have drawn since the last look. A job whose scheduler is
// silent is taken to run where it was last said to run.
func (d *desk) lookAtEnergy(s *ledger.State) {
	now := d.now()
	counters := make(map[string]energy.Counter, len(s.Nodes))
	for name, n := range s.Nodes {
		if v, heard := d.lead.Table().View(name, now); heard {
			counters[name] = counterOf(v, n.Rated, now)
		}
	}
	running := func(id string) bool { return s.Jobs[id].State == ledger.JobAccepted }
	var jobs []energy.Job
	for id, x := range d.board.samples {
		if !running(id) || x.progress.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		on := make(map[string]int, len(x.progress.GetRunningOn()))
		for node, containers := range x.progress.GetRunningOn() {
			on[node] = int(containers)
		}
		ran := time.Duration(min(max(0, x.progress.GetRuntimeS()), arbitration.RuntimeMost.Seconds()) * float64(time.Second))
		jobs = append(jobs, energy.Job{ID: id, Class: s.Jobs[id].Class, On: on, Ran: ran})
	}
	d.energy.Look(now, counters, jobs)
	d.energy.Keep(running)
}

func counterOf(v ledger.View, rated units.Power, now time.Duration) energy.Counter {
	r := v.Report
	c := energy.Counter{Process: r.Process, Time: r.EnergyTime, From: r.EnergyFrom, Most: rated, At: now - v.Age}
	if r.Energy != nil {
		c.Energy, c.Counts = *r.Energy, true
	}
	return c
}

// finalEnergy is what was drawn for a job that ends now, nil while unknown.
func (d *desk) finalEnergy(id string) *ledger.JobEnergy {
	if u, known := d.energy.Final(id, d.now()); known {
		return d.jobEnergy(u)
	}
	return nil
}

// energyMessage is what was drawn for a job: as committed once it has ended, as far as this
// leader knows while it runs; nil while unknown.
func energyMessage(j ledger.Job, d *desk) *headroomv1.JobEnergy {
	e := j.Energy
	if e == nil && j.State == ledger.JobAccepted && d != nil {
		if u, known := d.energy.Job(j.ID); known {
			e = d.jobEnergy(u)
		}
	}
	if e == nil {
		return nil
	}
	return &headroomv1.JobEnergy{
		Uj: int64(e.Energy), MeasuredS: e.Measured.Seconds(), UnknownS: e.Unknown.Seconds(), SinceUs: e.Since, From: e.From,
	}
}

// jobEnergy is what was drawn for a job, nil where nothing of it was measured.
func (d *desk) jobEnergy(u energy.Use) *ledger.JobEnergy {
	if u.Measured == 0 {
		return nil
	}
	return &ledger.JobEnergy{
		Energy: u.Energy, Measured: u.Measured, Unknown: u.Unknown, Since: d.wall().Add(u.Since - d.now()).UnixMicro(), From: u.From,
	}
}

// classEnergy is what this leader has measured, in joules by class.
func classEnergy(d *desk) map[string]float64 {
	out := map[string]float64{}
	for class, u := range d.energy.Classes() {
		out[class] = u.Energy.Joules()
	}
	return out
}

// idleEnergy is what nodes drew while no job ran on them, in joules.
func idleEnergy(d *desk) float64 {
	idle, _ := d.energy.Idle()
	return idle.Energy.Joules()
}

// milliseconds is a time of a message; what cannot be one is 0.
func milliseconds(ms int64) time.Duration {
	const most = int64(100 * 365 * 24 * time.Hour / time.Millisecond)
	return time.Duration(min(max(0, ms), most)) * time.Millisecond
}

// sourceOf is by what a node measures, "" for what no powerd says.
func sourceOf(from string) string {
	if from == "packages" || from == "bmc" {
		return from
	}
	return ""
}
