package leading

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/jobs/energy"
	"headroom/ledger"
	"headroom/units"
)

// Package energy attributes what nodes draw to their jobs, in the memory of the
// leadership: energy that is counted every second does not belong in the log. A job's total
// is committed when it ends. A new leader starts at 0, and reports since when it counts.

// jobEnergy attributes what nodes draw to the jobs that run on them.
type jobEnergy struct {
	*leadership

	reports *jobReports
	book    energy.Book
}

// look attributes what nodes have drawn since the last look. A job whose scheduler is
// silent is assumed to run where it was last reported.
func (e *jobEnergy) look(s *ledger.State) {
	now := e.now()
	counters := make(map[string]energy.Counter, len(s.Nodes))
	for name, n := range s.Nodes {
		if v, heard := e.report(name); heard {
			counters[name] = counterOf(v, n.Rated, now)
		}
	}
	running := func(id string) bool { return s.Jobs[id].State == ledger.JobAccepted }
	var jobs []energy.Job
	for id, x := range e.reports.samples {
		if !running(id) || x.progress.GetState() != headroomv1.JobState_JOB_STATE_RUNNING {
			continue
		}
		on := make(map[string]int, len(x.progress.GetRunningOn()))
		for node, containers := range x.progress.GetRunningOn() {
			on[node] = int(containers)
		}
		jobs = append(jobs, energy.Job{ID: id, Class: s.Jobs[id].Class, On: on, CPU: x.progress.GetCpuOn(), Ran: arbitration.Seconds(x.progress.GetRuntimeS())})
	}
	e.book.Look(now, counters, jobs)
	e.book.Keep(running)
}

func counterOf(v ledger.View, rated units.Power, now time.Duration) energy.Counter {
	r := v.Report
	c := energy.Counter{Process: r.Process, Time: r.EnergyTime, From: r.EnergyFrom, Most: rated, At: now - v.Age}
	if r.Energy != nil {
		c.Energy, c.Counts = *r.Energy, true
	}
	return c
}

// final returns the energy attributed to a job that ends now, nil while unknown.
func (e *jobEnergy) final(id string) *ledger.JobEnergy {
	if u, known := e.book.Final(id, e.now()); known {
		return e.measured(u)
	}
	return nil
}

// measured returns the energy attributed to a job, nil if none was measured.
func (e *jobEnergy) measured(u energy.Use) *ledger.JobEnergy {
	if u.Measured == 0 {
		return nil
	}
	return &ledger.JobEnergy{
		Energy: u.Energy, Measured: u.Measured, Unknown: u.Unknown, Since: e.wall().Add(u.Since - e.now()).UnixMicro(), From: u.From,
	}
}

// running returns the energy attributed to a job that has not ended; nil while unknown.
func (e *jobEnergy) running(id string) *ledger.JobEnergy {
	if u, known := e.book.Job(id); known {
		return e.measured(u)
	}
	return nil
}

// classes returns the energy that this leader has attributed, in joules by class.
func (e *jobEnergy) classes() map[string]float64 {
	out := map[string]float64{}
	for class, u := range e.book.Classes() {
		out[class] = u.Energy.Joules()
	}
	return out
}

// idle returns what nodes drew while no job ran on them, in joules.
func (e *jobEnergy) idle() float64 {
	idle, _ := e.book.Idle()
	return idle.Energy.Joules()
}
