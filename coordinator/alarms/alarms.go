// Package alarms are the warnings of the whole cluster, each with a code, a subject and a
// way out, the worst first.
//
// The one idea: an alarm is there while its cause is. None is stored; each is made anew
// from the state and from what is heard, and a Tracker remembers since when it is there.
// An acknowledgement counts for an alarm that had begun before it.
//
// What it never does: notify anybody, or hide an alarm that was acknowledged.
package alarms

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/coordinator/view"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

// ErrUnknown means the key of an alarm that is not there.
var ErrUnknown = errors.New("there is no such alarm now")

// Severities of an alarm, the worst first.
const (
	Fail = "fail"
	Warn = "warn"
)

// Alarm is one warning of the cluster.
type Alarm struct {
	Code, Severity, Subject, Text, Hint string
}

// New is an alarm with its code, its severity, what it is about, what is wrong and the way out.
func New(code, severity, subject, text, hint string) Alarm {
	return Alarm{code, severity, subject, text, hint}
}

// Key is what an alarm is acknowledged by.
func (a Alarm) Key() string { return a.Code + "/" + a.Subject }

// Tracker remembers since when each alarm is there. Only one goroutine may use it.
type Tracker struct {
	since map[string]time.Time
}

// NewTracker is one that has seen no alarm yet.
func NewTracker() *Tracker { return &Tracker{since: map[string]time.Time{}} }

// Look takes in the alarms of now: what is new begins, what is gone is forgotten.
func (t *Tracker) Look(now []Alarm, at time.Time) {
	here := make(map[string]bool, len(now))
	for _, a := range now {
		here[a.Key()] = true
		if _, ok := t.since[a.Key()]; !ok {
			t.since[a.Key()] = at
		}
	}
	for key := range t.since {
		if !here[key] {
			delete(t.since, key)
		}
	}
}

// Check refuses the key of an alarm that is not there.
func (t *Tracker) Check(key string) error {
	if _, ok := t.since[key]; !ok {
		return fmt.Errorf("alarm %q: %w", key, ErrUnknown)
	}
	return nil
}

// Of are the warnings of the whole cluster, the worst first. own are those that only this server can know.
func Of(s *ledger.State, domains []*headroomv1.Domain, nodes []*headroomv1.Node, own []Alarm) []Alarm {
	var out []Alarm
	add := func(code, severity, subject, hint, format string, args ...any) {
		out = append(out, Alarm{code, severity, subject, fmt.Sprintf(format, args...), hint})
	}
	out = append(out, stateAlarms(s)...)
	out = append(out, domainAlarms(domains)...)
	for _, n := range nodes {
		if n.GetState() == view.StateLost {
			add("node-lost", Warn, n.GetName(), "see its powerd's log; coordinator node remove NODE --powered-off frees it if the machine is off",
				"%s is lost, charged at %v", n.GetName(), units.Power(n.GetChargeUw()))
		}
		for _, h := range n.GetHealth() {
			add(h.GetCode(), h.GetSeverity(), n.GetName(), h.GetHint(), "%s: %s", n.GetName(), h.GetText())
		}
	}
	out = append(out, own...)
	slices.SortStableFunc(out, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

// stateAlarms are those that the committed state shows.
func stateAlarms(s *ledger.State) []Alarm {
	var out []Alarm
	if s.Brake.Active() {
		out = append(out, Alarm{
			"brake-set", Fail, "cluster", fmt.Sprintf("the brake is set (generation %d, by %s): every node at its fail-safe cap", s.Brake.Set, s.Brake.By),
			"coordinator brake lift, when the reason is gone",
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
			"restored", Warn, "cluster", fmt.Sprintf("incarnation %d: nothing is raised until %d nodes have shown what they hold: %v", s.Epoch.Incarnation, len(silent), silent),
			"bring them back, or say which are off: coordinator node remove NODE --powered-off",
		})
	}
	out = append(out, ratingAlarms(s)...)
	return append(out, jobAlarms(s, time.Now())...)
}

// ratingAlarms are nodes that may draw more than they are charged when nothing holds them.
func ratingAlarms(s *ledger.State) []Alarm {
	var out []Alarm
	for _, n := range s.NodesByName() {
		if claim := n.Claimed(); claim > 0 {
			out = append(out, Alarm{
				"rating-waits", Fail, n.Name, fmt.Sprintf("%s says that it is rated %v; accepted are %v, and it is charged %v until an operator decides", n.Name, claim, n.Rated, n.Charge()),
				fmt.Sprintf("look at the machine; coordinator node set %s --rated %.0fW accepts it, and coordinator node set %s --rated sets any other", n.Name, claim.Watts(), n.Name),
			})
		}
		if n.Drawn > n.Rated {
			out = append(out, Alarm{
				"rating-exceeded", Warn, n.Name, fmt.Sprintf("%s drew %v and is rated %v; it is charged %v when nothing holds it", n.Name, n.Drawn, n.Rated, n.Full()),
				"coordinator node set " + n.Name + " --rated sets what it draws at most, and ends this",
			})
		}
	}
	return out
}

// floorAlarmLife is how long a job that ended below its quality floor is an alarm: whoever waits for its result has seen it by then.
const floorAlarmLife = 24 * time.Hour

// jobAlarms are jobs that ended on fewer tasks than they were promised, and those that have not ended by their deadlines.
func jobAlarms(s *ledger.State, now time.Time) []Alarm {
	var out []Alarm
	for _, j := range s.Jobs { // in any order: all alarms are sorted
		if j.BelowFloor() && now.Sub(time.UnixMicro(j.Ended)) < floorAlarmLife {
			out = append(out, Alarm{
				"quality-floor", Fail, j.ID, fmt.Sprintf("job %s is done on %d of %d tasks, its quality floor is %d (%.4g %%); recorded as dropped are %d",
					j.ID, j.Done, j.Tasks, ledger.LeastTasks(j.Floor, j.Tasks), 100*j.Floor, j.DroppedTasks()),
				"do not use its result as if it were whole; docs/runbooks/quality-floor.md tells what to look at",
			})
		}
		if late := now.Sub(time.UnixMicro(j.Submitted).Add(j.Deadline)); j.State == ledger.JobAccepted && j.Deadline > 0 && late > 0 {
			out = append(out, Alarm{
				"deadline-missed", Warn, j.ID, fmt.Sprintf("job %s has not ended, its deadline was %s after it was submitted, %s ago", j.ID, cli.Age(j.Deadline), cli.Age(late)),
				"coordinator job explain " + j.ID + " tells what is done about it, and what keeps it from more",
			})
		}
	}
	return out
}

// domainAlarms are shortfall, and power that nobody is charged for.
func domainAlarms(domains []*headroomv1.Domain) []Alarm {
	var out []Alarm
	for _, dom := range domains {
		name := dom.GetName()
		if dom.GetHeadroomUw() < 0 {
			out = append(out, Alarm{
				"shortfall", Fail, name, fmt.Sprintf("%s is %v short: charged %v, %v unmanaged, %v kept for boots, budget %v", name,
					-units.Power(dom.GetHeadroomUw()), units.Power(dom.GetReservedUw()), units.Power(dom.GetUnmanagedUw()),
					units.Power(dom.GetBootReserveUw()), units.Power(dom.GetBudgetUw())),
				"coordinator node list shows who is charged what; bring lost nodes back, or raise the budget",
			})
		}
		reserved := dom.GetReservedUw()
		if dom.GetMeasuredBy() != view.MeasuredByNodes {
			reserved += dom.GetUnmanagedUw() // a meter sees what nobody manages as well
		}
		if dom.MeasuredUw != nil && dom.GetMeasuredUw() > reserved {
			out = append(out, Alarm{
				"measured-above-reserved", Fail, name, fmt.Sprintf("%s draws %v by %s, charged are only %v", name,
					units.Power(dom.GetMeasuredUw()), dom.GetMeasuredBy(), units.Power(reserved)),
				"compare coordinator node list: a node draws more than its cap, or more is unmanaged than is set",
			})
		}
	}
	return out
}

// Items are alarms as status shows them.
func Items(list []Alarm) []*headroomv1.HealthItem {
	out := make([]*headroomv1.HealthItem, 0, len(list))
	for _, a := range list {
		out = append(out, &headroomv1.HealthItem{Code: a.Code, Severity: a.Severity, Text: a.Text, Hint: a.Hint})
	}
	return out
}

// Messages are alarms with who acknowledged them: an acknowledgement counts
// for an alarm that had begun before it. since is nil on a server that does not lead.
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
