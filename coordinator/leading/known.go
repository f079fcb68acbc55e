package leading

import (
	"fmt"
	"maps"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/budget"
	"headroom/coordinator/alarms"
	"headroom/coordinator/view"
	"headroom/ledger"
	"headroom/ledger/leader"
)

// Known is what a leader has beside the committed state: reports of nodes, meters and jobs, its
// own decisions, and its alarms. It runs on the loop's goroutine. On a follower it is nil, and
// Heard, Alarms, Job and the like return what follows from the committed state alone.
type Known struct {
	*leadership

	server  string
	nodes   NodeStreams
	others  func(*ledger.State) []alarms.Alarm
	jobs    *jobLoop
	targets *targetHistory
	states  *nodeHistory
	meters  meters
	alarms  *alarms.Tracker
	budgets budgetWatch
}

func newKnown(c Config, l *leadership, jobs *jobLoop) *Known {
	return &Known{
		leadership: l, server: c.Server, nodes: c.Nodes, others: c.Alarms, jobs: jobs,
		targets: newTargetHistory(), states: newNodeHistory(), meters: meters{}, alarms: alarms.NewTracker(), budgets: budgetWatch{counts: c.Counts},
	}
}

// note updates the histories and the alarms after a tick.
func (k *Known) note() {
	at := time.Now()
	k.machine.View(func(s *ledger.State) {
		k.jobs.energy.look(s)
		k.targets.look(s, at)
		nodes := view.Nodes(s, k.Heard())
		k.states.look(nodes, at)
		k.alarms.Look(k.Alarms(s, nodes), at, s.Revision)
		k.budgets.look(view.Domains(s, k.Heard(), nodes), k.now())
	})
}

// Heard returns what this leader hears from nodes and meters; nil on a follower.
func (k *Known) Heard() *view.Heard {
	if k == nil {
		return nil
	}
	return &view.Heard{
		Table: k.lead.Table(), Now: k.now(), Lost: k.timing.Lost, Meters: k.meters.counting(k.now()),
		CertificateEnds: k.nodes.CertificateEnds(), Since: k.states.since, Drifted: k.states.drifted,
	}
}

// ReportMeter records a reading of a domain's meter that is age old.
func (k *Known) ReportMeter(domain string, r view.Reading, age time.Duration) {
	k.meters.report(domain, r, k.now()-age)
}

// Alarms returns the alarms of the cluster, as far as this server can tell.
func (k *Known) Alarms(s *ledger.State, nodes []*headroomv1.Node) []alarms.Alarm {
	var own []alarms.Alarm
	if k != nil {
		own = append(k.own(), k.others(s)...)
	}
	return alarms.Of(s, view.Domains(s, k.Heard(), nodes), nodes, own)
}

// own returns the alarms that only the leader can raise.
func (k *Known) own() []alarms.Alarm {
	out := k.jobs.alarms()
	if x, why := k.lead.ClockTrouble(); why != nil {
		out = append(out, alarms.New(
			"clocks-disagree", alarms.Fail, "cluster", fmt.Sprintf("%s: scheduled budget %v is due since %s but not set: %s", x.Domain, x.Budget, x.At.UTC().Format(time.RFC3339), view.Plain(why)),
			"correct the servers' clocks (coordinator member health shows them); the budget is raised once a quorum agrees within a minute",
		))
	}
	doubles := k.lead.Table().Conflicts(k.now())
	maps.Copy(doubles, k.nodes.Conflicts())
	for node, why := range doubles {
		out = append(out, alarms.New("identity-conflict", alarms.Fail, node, why, "give one of the machines its own /etc/machine-id and node name"))
	}
	if why := k.lead.Outgrown(); why != "" {
		out = append(out, alarms.New(
			"outgrown", alarms.Fail, "cluster", why, "stop this cluster, or stop the other one and restore this one from its newest snapshot",
		))
	}
	return out
}

// AlarmMessages returns alarms, on the leader with the time when each began.
func (k *Known) AlarmMessages(s *ledger.State, now []alarms.Alarm) []*headroomv1.Alarm {
	if k == nil {
		return alarms.Messages(s, nil, now)
	}
	k.alarms.Look(now, time.Now(), s.Revision)
	return alarms.Messages(s, k.alarms, now)
}

// Events returns the begins and ends of alarms that this leader has seen, oldest first.
func (k *Known) Events() []*headroomv1.Event {
	var out []*headroomv1.Event
	if k == nil {
		return nil
	}
	for _, x := range k.alarms.Turns() {
		out = append(out, &headroomv1.Event{Revision: x.Revision, AtUs: x.At.UnixMicro(), Actor: "coordinator/" + k.server, What: x.What, Reason: x.Text})
	}
	return out
}

// CheckAlarm returns an error if no alarm with that key is active.
func (k *Known) CheckAlarm(s *ledger.State, key string) error {
	k.alarms.Look(k.Alarms(s, view.Nodes(s, k.Heard())), time.Now(), s.Revision)
	return k.alarms.Check(key)
}

// Confirmations returns the nodes that a budget change has lowered, with when each has read its
// cap back; false if this leader does not track that change.
func (k *Known) Confirmations(revision uint64) ([]leader.Awaited, bool) {
	return k.lead.Confirmations(revision)
}

// Change returns a budget change, on the leader with its confirmations.
func (k *Known) Change(x ledger.BudgetChange) *headroomv1.BudgetChange {
	m := &headroomv1.BudgetChange{
		Revision: x.Revision, AtUs: x.At, Actor: x.Actor, Domain: x.Domain, FromUw: int64(x.From), ToUw: int64(x.To), Reason: x.Reason, UntilUs: x.Until,
	}
	if k == nil {
		return m
	}
	if nodes, ok := k.lead.Confirmations(x.Revision); ok {
		lowered, done, slowest := uint32(len(nodes)), uint32(0), 0.0
		for _, a := range nodes {
			if a.After > 0 {
				done++
				slowest = max(slowest, float64(a.After)/float64(time.Millisecond))
			}
		}
		m.Lowered, m.Confirmed = &lowered, &done
		if done > 0 {
			m.ConfirmedMs = &slowest
		}
	}
	return m
}

// ExplainNode fills in the reasons for the node's cap.
func (k *Known) ExplainNode(out *headroomv1.ExplainNodeResponse, s *ledger.State, n ledger.Node) {
	for _, m := range view.Nodes(s, k.Heard()) {
		if m.GetName() == n.Name {
			out.Node = m
		}
	}
	policy, _ := budget.ParsePolicy(s.Policy)
	out.Policy = string(policy)
	why := ledger.Explain(s, k.lead.Table(), k.now(), n.Name)
	out.BoundBy, out.BoundDomain, out.Why = why.By, why.Domain, why.Words
	if p := why.Planned; p != nil {
		out.PlannedUw = new(int64(*p))
	}
	for _, name := range s.Tree().Above(n.Domain) {
		out.Spare = append(out.Spare, &headroomv1.DomainSpare{Domain: name, SpareUw: int64(why.Spare[name])})
	}
	for _, m := range k.targets.of(n.Name) {
		out.Last = append(out.Last, &headroomv1.Event{
			Revision: m.revision, AtUs: m.at.UnixMicro(), Actor: "coordinator/" + k.server,
			What: fmt.Sprintf("%v -> %v", m.from, m.to), Reason: m.why,
		})
	}
	for _, e := range ledger.Moved(s, n.Name, changesShown) {
		out.Changes = append(out.Changes, view.Event(e))
	}
}

// Job returns a job, on the leader with its progress.
func (k *Known) Job(j ledger.Job) *headroomv1.Job {
	if k == nil {
		return view.Job(j)
	}
	return k.jobs.show(j)
}

// JobMoves returns the remembered moves of a job, oldest first.
func (k *Known) JobMoves(id string) []*headroomv1.JobMove {
	if k == nil {
		return nil
	}
	return k.jobs.moves.all(id)
}

// JobsRunning returns the number of running jobs by engine.
func (k *Known) JobsRunning(s *ledger.State) map[string]int {
	if k == nil {
		return map[string]int{}
	}
	return k.jobs.running(s)
}

// FinalEnergy returns the energy attributed to a job that ends now, nil while unknown.
func (k *Known) FinalEnergy(id string) *ledger.JobEnergy { return k.jobs.energy.final(id) }

// Energy returns the energy by class and while no job ran, in joules.
func (k *Known) Energy() (byClass map[string]float64, idle float64) {
	return k.jobs.energy.classes(), k.jobs.energy.idle()
}

// ReportJobs records a scheduler's report of its jobs' progress.
func (k *Known) ReportJobs(r *headroomv1.ProgressReport) { k.jobs.report(r) }

// Acknowledge records a scheduler's answer to a directive.
func (k *Known) Acknowledge(a *headroomv1.DirectiveAck) { k.jobs.acknowledge(a) }
