package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/ledger"
	"headroom/units"
)

var errUnknownAlarm = errors.New("there is no such alarm now")

// Severities of an alarm, the worst first.
const (
	alarmFail = "fail"
	alarmWarn = "warn"
)

// alarm is one warning of the cluster.
type alarm struct {
	code, severity, subject, text, hint string
}

// key is what an alarm is acknowledged by.
func (a alarm) key() string { return a.code + "/" + a.subject }

// alarmBook remembers since when each alarm is there. It is the desk's.
type alarmBook struct {
	since map[string]time.Time
}

func newAlarmBook() *alarmBook { return &alarmBook{since: map[string]time.Time{}} }

// look takes in the alarms of now: what is new begins, what is gone is forgotten.
func (b *alarmBook) look(now []alarm, at time.Time) {
	here := make(map[string]bool, len(now))
	for _, a := range now {
		here[a.key()] = true
		if _, ok := b.since[a.key()]; !ok {
			b.since[a.key()] = at
		}
	}
	for key := range b.since {
		if !here[key] {
			delete(b.since, key)
		}
	}
}

// knows refuses the key of an alarm that is not there.
func (b *alarmBook) knows(key string) error {
	if _, ok := b.since[key]; !ok {
		return fmt.Errorf("alarm %q: %w", key, errUnknownAlarm)
	}
	return nil
}

// alarmsOf are the warnings of the whole cluster, the worst first. d is nil on a server that does not lead.
func alarmsOf(s *ledger.State, d *desk, nodes []*headroomv1.Node) []alarm {
	var out []alarm
	add := func(code, severity, subject, hint, format string, args ...any) {
		out = append(out, alarm{code, severity, subject, fmt.Sprintf(format, args...), hint})
	}
	out = append(out, stateAlarms(s)...)
	out = append(out, domainAlarms(s, d, nodes)...)
	for _, n := range nodes {
		if n.GetState() == stateLost {
			add("node-lost", alarmWarn, n.GetName(), "see its powerd's log; coordinator node remove NODE --powered-off frees it if the machine is off",
				"%s is lost, charged at %v", n.GetName(), units.Power(n.GetChargeUw()))
		}
		for _, h := range n.GetHealth() {
			add(h.GetCode(), h.GetSeverity(), n.GetName(), h.GetHint(), "%s: %s", n.GetName(), h.GetText())
		}
	}
	if d != nil {
		out = append(out, d.ownAlarms()...)
	}
	slices.SortStableFunc(out, func(a, b alarm) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), cmp.Compare(a.code, b.code), cmp.Compare(a.subject, b.subject))
	})
	return out
}

// stateAlarms are those that the committed state shows.
func stateAlarms(s *ledger.State) []alarm {
	var out []alarm
	if s.Brake.Active() {
		out = append(out, alarm{
			"brake-set", alarmFail, "cluster", fmt.Sprintf("the brake is set (generation %d, by %s): every node at its fail-safe cap", s.Brake.Set, s.Brake.By),
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
		out = append(out, alarm{
			"restored", alarmWarn, "cluster", fmt.Sprintf("incarnation %d: nothing is raised until %d nodes have shown what they hold: %v", s.Epoch.Incarnation, len(silent), silent),
			"bring them back, or say which are off: coordinator node remove NODE --powered-off",
		})
	}
	out = append(out, ratingAlarms(s)...)
	return append(out, jobAlarms(s, time.Now())...)
}

// ratingAlarms are nodes that may draw more than they are charged when nothing holds them.
func ratingAlarms(s *ledger.State) []alarm {
	var out []alarm
	for _, n := range s.NodesByName() {
		if claim := n.Claimed(); claim > 0 {
			out = append(out, alarm{
				"rating-waits", alarmFail, n.Name, fmt.Sprintf("%s says that it is rated %v; accepted are %v, and it is charged %v until an operator decides", n.Name, claim, n.Rated, n.Charge()),
				fmt.Sprintf("look at the machine; coordinator node set %s --rated %.0fW accepts it, and coordinator node set %s --rated sets any other", n.Name, claim.Watts(), n.Name),
			})
		}
		if n.Drawn > n.Rated {
			out = append(out, alarm{
				"rating-exceeded", alarmWarn, n.Name, fmt.Sprintf("%s drew %v and is rated %v; it is charged %v when nothing holds it", n.Name, n.Drawn, n.Rated, n.Full()),
				"coordinator node set " + n.Name + " --rated sets what it draws at most, and ends this",
			})
		}
	}
	return out
}

// floorAlarmLife is how long a job that ended below its quality floor is an alarm: whoever waits for its result has seen it by then.
const floorAlarmLife = 24 * time.Hour

// jobAlarms are jobs that ended on fewer tasks than they were promised, and those that have not ended by their deadlines.
func jobAlarms(s *ledger.State, now time.Time) []alarm {
	var out []alarm
	for _, j := range s.Jobs { // in any order: all alarms are sorted
		if j.BelowFloor() && now.Sub(time.UnixMicro(j.Ended)) < floorAlarmLife {
			out = append(out, alarm{
				"quality-floor", alarmFail, j.ID, fmt.Sprintf("job %s is done on %d of %d tasks, its quality floor is %d (%.4g %%); recorded as dropped are %d",
					j.ID, j.Done, j.Tasks, ledger.LeastTasks(j.Floor, j.Tasks), 100*j.Floor, j.DroppedTasks()),
				"do not use its result as if it were whole; docs/runbooks/quality-floor.md tells what to look at",
			})
		}
		if late := now.Sub(time.UnixMicro(j.Submitted).Add(j.Deadline)); j.State == ledger.JobAccepted && j.Deadline > 0 && late > 0 {
			out = append(out, alarm{
				"deadline-missed", alarmWarn, j.ID, fmt.Sprintf("job %s has not ended, its deadline was %s after it was submitted, %s ago", j.ID, cli.Age(j.Deadline), cli.Age(late)),
				"coordinator job explain " + j.ID + " tells what is done about it, and what keeps it from more",
			})
		}
	}
	return out
}

// domainAlarms are shortfall, and power that nobody is charged for.
func domainAlarms(s *ledger.State, d *desk, nodes []*headroomv1.Node) []alarm {
	var out []alarm
	for _, dom := range domainMessages(s, d, nodes) {
		name := dom.GetName()
		if dom.GetHeadroomUw() < 0 {
			out = append(out, alarm{
				"shortfall", alarmFail, name, fmt.Sprintf("%s is %v short: charged %v, %v unmanaged, %v kept for boots, budget %v", name,
					-units.Power(dom.GetHeadroomUw()), units.Power(dom.GetReservedUw()), units.Power(dom.GetUnmanagedUw()),
					units.Power(dom.GetBootReserveUw()), units.Power(dom.GetBudgetUw())),
				"coordinator node list shows who is charged what; bring lost nodes back, or raise the budget",
			})
		}
		reserved := dom.GetReservedUw()
		if dom.GetMeasuredBy() != measuredByNodes {
			reserved += dom.GetUnmanagedUw() // a meter sees what nobody manages as well
		}
		if dom.MeasuredUw != nil && dom.GetMeasuredUw() > reserved {
			out = append(out, alarm{
				"measured-above-reserved", alarmFail, name, fmt.Sprintf("%s draws %v by %s, charged are only %v", name,
					units.Power(dom.GetMeasuredUw()), dom.GetMeasuredBy(), units.Power(reserved)),
				"compare coordinator node list: a node draws more than its cap, or more is unmanaged than is set",
			})
		}
	}
	return out
}

// ownAlarms are those that only the leader can know.
func (d *desk) ownAlarms() []alarm {
	var out []alarm
	if d.board.refusal != "" && d.board.refused > d.board.acked {
		out = append(out, alarm{
			"directive-refused", alarmWarn, "scheduler", fmt.Sprintf("the scheduler refused directive %d: %s", d.board.refused, d.board.refusal),
			"see the scheduler's log",
		})
	}
	for _, subject := range slices.Sorted(maps.Keys(d.board.refusals)) {
		out = append(out, alarm{
			"directive-refused", alarmWarn, subject, fmt.Sprintf("the scheduler could not set %s: %s", subject, d.board.refusals[subject]),
			"see the scheduler's log; it is told again every few seconds",
		})
	}
	for engine, e := range d.board.reported(time.Now()) {
		if e.GetTrouble() != "" {
			out = append(out, alarm{
				"engine-trouble", alarmWarn, engine, fmt.Sprintf("containers of %s cannot be shared out: %s", engine, e.GetTrouble()),
				"mend what is said; until then its jobs run as the engine divides them",
			})
		}
	}
	for engine, why := range d.jobs.decided.Troubles {
		out = append(out, alarm{
			"engine-trouble", alarmWarn, engine + "/containers", fmt.Sprintf("%s: %s", engine, why), "add nodes to the engine, or let fewer jobs run at once",
		})
	}
	if x, why := d.lead.ClockTrouble(); why != nil {
		out = append(out, alarm{
			"clocks-disagree", alarmFail, "cluster", fmt.Sprintf("%s should go to %v since %s: %s", x.Domain, x.Budget, x.At.UTC().Format(time.RFC3339), plain(why)),
			"set the servers' clocks (coordinator member list shows them); the raise waits until a quorum agrees within a minute",
		})
	}
	doubles := d.lead.Table().Conflicts(d.now())
	maps.Copy(doubles, d.nodes.Conflicts())
	for node, why := range doubles {
		out = append(out, alarm{"identity-conflict", alarmFail, node, why, "give one of the machines its own etc/machine-id and node name"})
	}
	if why := d.lead.Outgrown(); why != "" {
		out = append(out, alarm{
			"outgrown", alarmFail, "cluster", why, "stop this group, or stop the other and restore this one from its newest snapshot",
		})
	}
	return append(out, d.brakes.alarms()...)
}

// alarmItems are alarms as status shows them.
func alarmItems(list []alarm) []*headroomv1.HealthItem {
	out := make([]*headroomv1.HealthItem, 0, len(list))
	for _, a := range list {
		out = append(out, &headroomv1.HealthItem{Code: a.code, Severity: a.severity, Text: a.text, Hint: a.hint})
	}
	return out
}

// alarmMessages are alarms with who acknowledged them: an acknowledgement counts
// for an alarm that had begun before it.
func alarmMessages(s *ledger.State, d *desk, list []alarm) []*headroomv1.Alarm {
	out := make([]*headroomv1.Alarm, 0, len(list))
	for _, a := range list {
		m := &headroomv1.Alarm{
			Key: a.key(), Subject: a.subject,
			Item: &headroomv1.HealthItem{Code: a.code, Severity: a.severity, Text: a.text, Hint: a.hint},
		}
		if d != nil {
			if since, ok := d.alarms.since[a.key()]; ok {
				m.SinceUs = since.UnixMicro()
			}
		}
		if ack, ok := s.Acked[a.key()]; ok && ack.At >= m.GetSinceUs() {
			m.AckedBy = ack.Actor
		}
		out = append(out, m)
	}
	return out
}
