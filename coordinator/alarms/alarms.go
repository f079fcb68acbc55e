// Package alarms derives the alarms of the whole cluster, each with a code, a subject and a
// hint, the worst first and causes above their consequences.
//
// The one idea: an alarm is active as long as its cause. None is stored; all are derived
// from the state and from what the leader hears, and a Tracker remembers since when each is
// active, and which have begun and ended. An acknowledgement counts for an alarm that began
// before it. Everything that shows the health of servers, nodes and jobs shows these alarms.
//
// What it never does: notify anybody, or hide an acknowledged alarm.
package alarms

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// ErrUnknown means that no alarm with the key is active.
var ErrUnknown = errors.New("no such alarm is active")

// runbooks is where the packages install the runbook pages.
const runbooks = "/usr/share/doc/headroom/runbooks/"

// Severities of an alarm, the worst first.
const (
	Fail = "fail"
	Warn = "warn"
)

// Alarm is one alarm of the cluster.
type Alarm struct {
	Code, Severity, Subject, Text, Hint string
}

// New returns an alarm. subject is what it is about, text what is wrong, hint what to do.
func New(code, severity, subject, text, hint string) Alarm {
	return Alarm{code, severity, subject, text, hint}
}

// Key identifies an alarm when it is acknowledged.
func (a Alarm) Key() string { return a.Code + "/" + a.Subject }

// turnsMost bounds the remembered begins and ends of alarms.
const turnsMost = 256

// Turn is the begin or the end of an alarm.
type Turn struct {
	// What names the alarm and whether it began or ended; Text is what was wrong.
	What, Text string
	At         time.Time
	// Revision of the state at that time.
	Revision uint64
}

// Tracker remembers since when each alarm is active, and the newest turns. Only one goroutine may use it.
type Tracker struct {
	since map[string]time.Time
	turns []Turn
}

// NewTracker returns an empty tracker.
func NewTracker() *Tracker { return &Tracker{since: map[string]time.Time{}} }

// Turns returns the newest begins and ends, oldest first.
func (t *Tracker) Turns() []Turn { return t.turns }

// Look records the active alarms: new ones begin, ended ones are removed.
func (t *Tracker) Look(now []Alarm, at time.Time, revision uint64) {
	here := make(map[string]bool, len(now))
	for _, a := range now {
		if here[a.Key()] {
			continue
		}
		here[a.Key()] = true
		if _, ok := t.since[a.Key()]; !ok {
			t.since[a.Key()] = at
			t.turns = append(t.turns, Turn{"alarm " + a.Key() + " began", a.Text, at, revision})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.since)) {
		if !here[key] {
			t.turns = append(t.turns, Turn{What: "alarm " + key + " ended", At: at, Revision: revision})
			delete(t.since, key)
		}
	}
	t.turns = slices.Delete(t.turns, 0, max(0, len(t.turns)-turnsMost))
}

// Check returns ErrUnknown if no alarm with the key is active.
func (t *Tracker) Check(key string) error {
	if _, ok := t.since[key]; !ok {
		return fmt.Errorf("alarm %q: %w", key, ErrUnknown)
	}
	return nil
}

// Of returns the alarms of the whole cluster, sorted. own are those that only this server can raise.
func Of(s *ledger.State, domains []*headroomv1.Domain, nodes []*headroomv1.Node, own []Alarm) []Alarm {
	var out []Alarm
	add := func(code, severity, subject, hint, format string, args ...any) {
		out = append(out, Alarm{code, severity, subject, fmt.Sprintf(format, args...), hint})
	}
	out = append(out, stateAlarms(s)...)
	out = append(out, domainAlarms(domains)...)
	lost, folded := lostDomains(domains, nodes)
	out = append(out, lost...)
	for _, n := range nodes {
		if !folded[n.GetName()] {
			out = append(out, nodeAlarms(n, time.Now())...)
		}
		for _, h := range n.GetHealth() {
			add(h.GetCode(), h.GetSeverity(), n.GetName(), h.GetHint(), "%s: %s", n.GetName(), h.GetText())
		}
	}
	out = append(out, own...)
	sortAlarms(out)
	return out
}

// sortAlarms sorts by severity, the worst first; a cause stands above its consequence
// though it may be less severe by itself.
func sortAlarms(all []Alarm) {
	worst := map[string]bool{}
	for _, a := range all {
		for _, cause := range causesOf(a.Code) {
			worst[cause] = true
		}
	}
	rank := func(a Alarm) int {
		switch {
		case worst[a.Code]:
			return 0
		case a.Severity == Fail && causesOf(a.Code) == nil:
			return 1
		case a.Severity == Fail:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(all, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
}

// causesOf returns the codes of alarms that may have caused one.
func causesOf(code string) []string {
	switch code {
	case "measured-above-reserved":
		return []string{"limit-drift", "limit-refused", "limit-unbound", "limit-unread", "lost-package", "new-package", "rating-exceeded", "rival", "twin-limit"}
	case "shortfall":
		return []string{"brake-set", "domain-lost", "limit-unbound", "node-lost", "rating-waits", "restored"}
	}
	return nil
}

// CertificateSoon is how long before its end a certificate is an alarm.
const CertificateSoon = 14 * 24 * time.Hour

// lostDomains returns one alarm for each domain of which all nodes, at least two, are lost and whose parent
// has others, and the nodes that it stands for.
func lostDomains(domains []*headroomv1.Domain, nodes []*headroomv1.Node) (out []Alarm, folded map[string]bool) {
	parent, all, lost := map[string]string{}, map[string]int{}, map[string][]*headroomv1.Node{}
	for _, d := range domains {
		parent[d.GetName()] = d.GetParent()
	}
	for _, n := range nodes {
		for d := n.GetDomain(); d != "" && n.GetState() != view.StateOff; d = parent[d] {
			all[d]++
			if n.GetState() == view.StateLost {
				lost[d] = append(lost[d], n)
			}
		}
	}
	whole := func(d string) bool { return all[d] > 1 && len(lost[d]) == all[d] }
	folded = map[string]bool{}
	for _, d := range domains {
		name := d.GetName()
		if !whole(name) || whole(d.GetParent()) {
			continue
		}
		var names []string
		var charge units.Power
		for _, n := range lost[name] {
			names, charge, folded[n.GetName()] = append(names, n.GetName()), charge+units.Power(n.GetChargeUw()), true
		}
		out = append(out, New("domain-lost", Fail, name, fmt.Sprintf("all %d nodes of %s are lost, charged %v: %s", len(names), name, charge, cli.NodeSet(names)),
			"check the power and the network of "+name+"; see "+runbooks+"domain-lost.md"))
	}
	return out, folded
}

// nodeAlarms are those of one node that the coordinator raises itself.
func nodeAlarms(n *headroomv1.Node, now time.Time) []Alarm {
	var out []Alarm
	name := n.GetName()
	if n.GetState() == view.StateLost {
		age, hint := "no report since this server became leader", fmt.Sprintf("check powerd and the network of %s; if the machine is off, coordinator node remove %s --powered-off frees its charge", name, name)
		if n.HeardMs != nil {
			age = "last report " + cli.Age(time.Duration(n.GetHeardMs())*time.Millisecond) + " ago"
		}
		if n.CertificateEndsUs != nil && !now.Before(time.UnixMicro(n.GetCertificateEndsUs())) {
			age += "; its certificate expired at " + cli.Clock(time.UnixMicro(n.GetCertificateEndsUs()))
			hint = renewHint(name)
		}
		out = append(out, New("node-lost", Warn, name, fmt.Sprintf("%s is lost, charged %v; %s", name, units.Power(n.GetChargeUw()), age), hint))
	}
	if heard := n.HeardMs != nil && time.Duration(n.GetHeardMs())*time.Millisecond <= view.StaleReport; heard && n.PowerUw == nil && !view.Awaited(n) {
		out = append(out, New("power-unknown", Warn, name, fmt.Sprintf("%s reports no power; the power of its domains is a lower bound", name),
			"powerd sensor list on "+name+" shows which sensor is missing"))
	}
	ends, gone := time.UnixMicro(n.GetCertificateEndsUs()), n.GetState() == view.StateOff || n.GetState() == view.StateReleased
	if n.CertificateEndsUs != nil && ends.Sub(now) < CertificateSoon && !(gone && !now.Before(ends)) {
		text := fmt.Sprintf("the certificate of %s expires in %s, at %s", name, cli.Age(ends.Sub(now)), cli.Clock(ends))
		if !now.Before(ends) {
			text = fmt.Sprintf("the certificate of %s expired %s ago, at %s: it gets no lease", name, cli.Age(now.Sub(ends)), cli.Clock(ends))
		}
		out = append(out, New("cert-expires", Warn, name, text, renewHint(name)))
	}
	return out
}

// renewHint is how a node gets a new certificate.
func renewHint(node string) string {
	return "coordinator tls cert create node/" + node + " makes a new one; copy its files to the node, powerd reads them within seconds"
}

// NoLeader is the alarm of a server that sees no leader.
func NoLeader(server string) Alarm {
	return New("no-leader", Fail, "cluster", server+" sees no leader: leases expire, and nodes fall to their fail-safe caps",
		"coordinator status --all shows the servers; see "+runbooks+"no-leader.md")
}

// stateAlarms returns those that follow from the committed state.
func stateAlarms(s *ledger.State) []Alarm {
	var out []Alarm
	if s.Brake.Active() {
		out = append(out, Alarm{
			"brake-set", Fail, "cluster", fmt.Sprintf("the brake is set (generation %d, by %s): every node is at its fail-safe cap", s.Brake.Set, s.Brake.By),
			"coordinator brake lift, once the reason is gone",
		})
	}
	if s.Restored {
		var silent []string
		for _, n := range s.NodesByName() {
			if n.Unproven {
				silent = append(silent, n.Name)
			}
		}
		out = append(out, Alarm{
			"restored", Warn, "cluster", fmt.Sprintf("restored as incarnation %d: no cap is raised until %s reported: %s", s.Epoch.Incarnation, cli.Count(len(silent), "more node"), cli.NodeSet(silent)),
			"start powerd on them; for a machine that is off: coordinator node remove NODE --powered-off",
		})
	}
	out = append(out, ratingAlarms(s)...)
	return append(out, jobAlarms(s, time.Now())...)
}

// ratingAlarms returns the nodes that may draw more than their rating.
func ratingAlarms(s *ledger.State) []Alarm {
	var out []Alarm
	for _, n := range s.NodesByName() {
		if claim := n.Claimed(); claim > 0 {
			out = append(out, Alarm{
				"rating-waits", Fail, n.Name, fmt.Sprintf("%s declares a rating of %v; %v is accepted, and it is charged %v until an operator decides", n.Name, claim, n.Rated, n.Charge()),
				fmt.Sprintf("check the machine; coordinator node set %s --rated %.0fW accepts the rating, another value refuses it", n.Name, claim.Watts()),
			})
		}
		if n.Drawn > n.Rated {
			out = append(out, Alarm{
				"rating-exceeded", Warn, n.Name, fmt.Sprintf("%s drew %v, above its rating of %v; it is charged %v while it has no cap", n.Name, n.Drawn, n.Rated, n.Full()),
				"correct the rating: coordinator node set " + n.Name + " --rated",
			})
		}
	}
	return out
}

// floorAlarmLife is how long a job that ended below its quality floor is an alarm: long enough for its owner to see it.
const floorAlarmLife = 24 * time.Hour

// jobAlarms returns jobs that ended below their quality floors, and jobs that have missed their deadlines.
func jobAlarms(s *ledger.State, now time.Time) []Alarm {
	var out []Alarm
	for _, j := range s.Jobs { // in any order: all alarms are sorted
		if j.BelowFloor() && now.Sub(time.UnixMicro(j.Ended)) < floorAlarmLife {
			out = append(out, Alarm{
				"quality-floor", Fail, j.ID, fmt.Sprintf("job %s finished with %d of %d tasks, its quality floor is %d (%.4g %%); %d are recorded as dropped",
					j.ID, j.Done, j.Tasks, ledger.LeastTasks(j.Floor, j.Tasks), 100*j.Floor, j.DroppedTasks()),
				"do not use its result as complete; see " + runbooks + "quality-floor.md",
			})
		}
		if late := now.Sub(time.UnixMicro(j.Submitted).Add(j.Deadline)); j.State == ledger.JobAccepted && j.Deadline > 0 && late > 0 {
			out = append(out, Alarm{
				"deadline-missed", Warn, j.ID, fmt.Sprintf("job %s still runs; its deadline (%s after submission) passed %s ago", j.ID, cli.Age(j.Deadline), cli.Age(late)),
				"coordinator job explain " + j.ID + " shows what is done for it, and what limits it",
			})
		}
	}
	return out
}

// domainAlarms returns shortfalls, and power drawn beyond what is charged.
func domainAlarms(domains []*headroomv1.Domain) []Alarm {
	var out []Alarm
	for _, dom := range domains {
		name := dom.GetName()
		if dom.GetHeadroomUw() < 0 {
			out = append(out, Alarm{
				"shortfall", Fail, name, fmt.Sprintf("%s is %v short: %v charged, %v unmanaged, %v reserved for boots, budget %v", name,
					-units.Power(dom.GetHeadroomUw()), units.Power(dom.GetReservedUw()), units.Power(dom.GetUnmanagedUw()),
					units.Power(dom.GetBootReserveUw()), units.Power(dom.GetBudgetUw())),
				"bring lost nodes back, or raise the budget; coordinator node list -o wide shows each node's charge",
			})
		}
		// A meter measures unmanaged power as well, nodes do not.
		reserved := dom.GetReservedUw() + dom.GetUnmanagedUw() - dom.GetUnmeteredUw()
		if dom.PowerKnownUw != nil && dom.GetPowerKnownUw() > reserved {
			out = append(out, Alarm{
				"measured-above-reserved", Fail, name, fmt.Sprintf("%s draws %s, but only %v is charged", name, drawnText(dom), units.Power(reserved)),
				"a node draws more than its cap (coordinator node list), or unmanaged power is set too low (coordinator domain set --unmanaged)",
			})
		}
	}
	return out
}

// drawnText is what a domain draws, by its source or as a lower bound.
func drawnText(dom *headroomv1.Domain) string {
	if dom.MeasuredUw == nil {
		return fmt.Sprintf("at least %v (power of %s unknown)", units.Power(dom.GetPowerKnownUw()), cli.Count(int(dom.GetPowerUnknownNodes()), "node"))
	}
	return fmt.Sprintf("%v measured by %s", units.Power(dom.GetMeasuredUw()), dom.GetMeasuredBy())
}

// Items converts alarms to the form of status.
func Items(list []Alarm) []*headroomv1.HealthItem {
	out := make([]*headroomv1.HealthItem, 0, len(list))
	for _, a := range list {
		out = append(out, &headroomv1.HealthItem{Code: a.Code, Severity: a.Severity, Subject: a.Subject, Text: a.Text, Hint: a.Hint})
	}
	return out
}

// Messages converts alarms, with who acknowledged each: an acknowledgement counts for an
// alarm that began before it. since is nil on a follower.
func Messages(s *ledger.State, since *Tracker, list []Alarm) []*headroomv1.Alarm {
	out := make([]*headroomv1.Alarm, 0, len(list))
	for _, a := range list {
		m := &headroomv1.Alarm{
			Key: a.Key(), Subject: a.Subject,
			Item: &headroomv1.HealthItem{Code: a.Code, Severity: a.Severity, Text: a.Text, Hint: a.Hint},
		}
		if since != nil {
			if at, ok := since.since[a.Key()]; ok {
				m.SinceUs = at.UnixMicro()
			}
		}
		if ack, ok := s.Acked[a.Key()]; ok && ack.At >= m.GetSinceUs() {
			m.AckedBy = ack.Actor
		}
		out = append(out, m)
	}
	return out
}
