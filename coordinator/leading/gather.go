package leading

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/arbitration"
	"headroom/coordinator/view"
	"headroom/jobs/arbiter"
	"headroom/ledger"
	"headroom/units"
)

// jobGatherer collects the inputs about the running jobs: their progress, and the caps that
// their nodes have read back.
type jobGatherer struct {
	*leadership

	reports *jobReports
}

// see collects the inputs about the running jobs.
func (g *jobGatherer) see(s *ledger.State) arbitration.Seen {
	now := time.Now()
	out := arbitration.Seen{Policy: s.ContainerPolicy, Wall: g.wall(), Engines: g.reports.reported(now), Ended: map[string]time.Duration{}}
	out.Discipline, out.Classes = g.reports.classes(now)
	maps.DeleteFunc(out.Engines, func(_ string, e *headroomv1.EngineReport) bool { return e.GetTrouble() != "" || e.GetContainers() == 0 })
	for _, id := range slices.Sorted(maps.Keys(g.reports.samples)) {
		j, known := s.Jobs[id]
		if j.State == ledger.JobDone {
			out.Ended[id] = j.Runtime
		}
		p := g.reports.of(id, now)
		waits := p.GetState() == headroomv1.JobState_JOB_STATE_QUEUED
		if !known || j.State != ledger.JobAccepted || p.GetState() != headroomv1.JobState_JOB_STATE_RUNNING && !waits {
			continue
		}
		x := arbitration.Job{Job: j, Progress: p, Waiting: waits}
		if waits {
			out.Jobs = append(out.Jobs, x)
			continue
		}
		x.Power, x.Full = g.powerOf(s, p)
		g.seeSprint(s, &x)
		out.Jobs = append(out.Jobs, x)
	}
	out.Nodes = g.nodes(s)
	return out
}

// nodes returns the nodes whose caps may be limited below their targets.
func (g *jobGatherer) nodes(s *ledger.State) (out []arbiter.Node) {
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		if !n.Grantable() || n.Drained || n.Unproven {
			continue
		}
		held, _ := g.lead.Table().Held(name, g.now())
		out = append(out, arbiter.Node{Name: name, Target: n.Target, Floor: n.Least(), Most: n.Most(), Held: held, Sprints: n.Sprint != nil || n.Owes != ""})
	}
	return out
}

// powerOf returns what the nodes that a job runs on may draw now, and what they can use,
// means over its containers; 0 if none of its nodes is known.
func (g *jobGatherer) powerOf(s *ledger.State, p *headroomv1.JobProgress) (now, full units.Power) {
	var count units.Power
	for _, name := range slices.Sorted(maps.Keys(p.GetRunningOn())) {
		n, known := s.Nodes[name]
		if !known {
			continue
		}
		held, known := g.held(n)
		if !known {
			continue
		}
		on := units.Power(p.GetRunningOn()[name])
		now, full, count = now+on*held, full+on*n.Most(), count+on
	}
	if count == 0 {
		return 0, 0
	}
	return now / count, full / count
}

// held returns the cap that a node holds, as its hardware has read back, at most
// what a plan may give it, or its sprint; false while unknown. A node that is not capped may
// draw all it can.
func (g *jobGatherer) held(n ledger.Node) (units.Power, bool) {
	if !n.Controlled || n.Released {
		return n.Most(), true
	}
	v, ok := g.report(n.Name)
	if !ok || v.Age > view.StaleReport || !v.Report.EffectiveKnown {
		return 0, false
	}
	most := n.Most()
	if n.Sprint != nil {
		most = max(most, n.Sprint.Cap)
	}
	return min(v.Report.Effective, most), true
}

// seeSprint collects what a sprint of the job would cost, and its open sprint.
func (g *jobGatherer) seeSprint(s *ledger.State, x *arbitration.Job) {
	x.Offer = ledger.OfferSprint(s, slices.Sorted(maps.Keys(x.Progress.GetRunningOn())), x.Job.Class)
	if p, ok := sprintOf(s, x.Job.ID); ok {
		x.Sprint = &p
	}
	if p, ok := s.Sprints[x.Offer.Open]; ok && p.Job != x.Job.ID {
		x.Rival = &p
		if j, known := s.Jobs[p.Job]; known {
			x.RivalRank = int(j.Rank)
		}
	}
	x.Base, x.Fast = g.speedsOf(s, x)
}

// speedsOf returns what the job's nodes may draw without a sprint and in one: means over its
// containers, 0 while unknown; fast is also 0 if no sprint is possible.
func (g *jobGatherer) speedsOf(s *ledger.State, x *arbitration.Job) (base, fast units.Power) {
	caps := map[string]units.Power{}
	for _, c := range x.Offer.Caps {
		caps[c.Node] = c.Cap
	}
	var count units.Power
	for _, name := range slices.Sorted(maps.Keys(x.Progress.GetRunningOn())) {
		n, known := s.Nodes[name]
		if !known {
			continue
		}
		held, known := g.held(n)
		if !known {
			continue
		}
		on := units.Power(x.Progress.GetRunningOn()[name])
		slow, quick := held, max(held, caps[name])
		if n.Sprint != nil {
			slow, quick = min(n.Target, held), max(held, n.Sprint.Cap)
		}
		base, fast, count = base+on*slow, fast+on*quick, count+on
	}
	if count == 0 {
		return 0, 0
	}
	if base, fast = base/count, fast/count; fast <= base {
		fast = 0
	}
	return base, fast
}

// orphans returns the sprints of jobs that have ended or no longer run. A job without
// reports keeps its sprint while a new leader may not know the job yet.
func (g *jobGatherer) orphans(s *ledger.State) (out []ledger.EndSprint) {
	now := time.Now()
	for _, p := range s.SprintsByTime() {
		if !p.Open() || p.Ended != "" || p.Job == "" {
			continue
		}
		why := ""
		switch j, known := s.Jobs[p.Job]; {
		case !known && !strings.HasPrefix(p.ID, arbitration.OwnSprint): // an operator's own name for it
		case !known:
			why = "the log no longer has job " + p.Job
		case j.State != ledger.JobAccepted:
			why = fmt.Sprintf("job %s is %s", p.Job, j.State)
		default:
			why = g.evicted(p, now)
		}
		if why != "" {
			out = append(out, ledger.EndSprint{ID: p.ID, Why: why})
		}
	}
	return out
}

// evicted returns why a sprint no longer helps a job that has not ended; empty if it does.
func (g *jobGatherer) evicted(p ledger.Sprint, now time.Time) string {
	x := g.reports.of(p.Job, now)
	switch {
	case x == nil && g.now() > arbitration.Patience:
		return fmt.Sprintf("no report about job %s", p.Job)
	case x == nil:
		return ""
	case x.GetState() != headroomv1.JobState_JOB_STATE_RUNNING:
		return fmt.Sprintf("job %s does not run any more", p.Job)
	case len(x.GetRunningOn()) == 0: // it may be between two stages
		return ""
	}
	for node := range p.Shares {
		if x.GetRunningOn()[node] > 0 {
			return ""
		}
	}
	return fmt.Sprintf("job %s runs on none of its nodes any more", p.Job)
}

// sprintOf returns the sprint of a job that is not ending; false without one.
func sprintOf(s *ledger.State, job string) (ledger.Sprint, bool) {
	for _, id := range slices.Sorted(maps.Keys(s.Sprints)) {
		if p := s.Sprints[id]; p.Job == job && p.Open() && p.Ended == "" {
			return p, true
		}
	}
	return ledger.Sprint{}, false
}
