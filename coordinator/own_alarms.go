package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"headroom/coordinator/alarms"
	"headroom/coordinator/view"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/ledger"
)

// ownAlarms are those that only the leader can know.
func (d *desk) ownAlarms() []alarms.Alarm {
	var out []alarms.Alarm
	if d.board.refusal != "" && d.board.refused > d.board.acked {
		out = append(out, alarms.New(
			"directive-refused", alarms.Warn, "scheduler", fmt.Sprintf("the scheduler refused directive %d: %s", d.board.refused, d.board.refusal),
			"see the scheduler's log",
		))
	}
	for _, subject := range slices.Sorted(maps.Keys(d.board.refusals)) {
		out = append(out, alarms.New(
			"directive-refused", alarms.Warn, subject, fmt.Sprintf("the scheduler could not set %s: %s", subject, d.board.refusals[subject]),
			"see the scheduler's log; it is told again every few seconds",
		))
	}
	for engine, e := range d.board.reported(time.Now()) {
		if e.GetTrouble() != "" {
			out = append(out, alarms.New(
				"engine-trouble", alarms.Warn, engine, fmt.Sprintf("containers of %s cannot be shared out: %s", engine, e.GetTrouble()),
				"mend what is said; until then its jobs run as the engine divides them",
			))
		}
	}
	for engine, why := range d.jobs.decided.Troubles {
		out = append(out, alarms.New(
			"engine-trouble", alarms.Warn, engine+"/containers", fmt.Sprintf("%s: %s", engine, why), "add nodes to the engine, or let fewer jobs run at once",
		))
	}
	if x, why := d.lead.ClockTrouble(); why != nil {
		out = append(out, alarms.New(
			"clocks-disagree", alarms.Fail, "cluster", fmt.Sprintf("%s should go to %v since %s: %s", x.Domain, x.Budget, x.At.UTC().Format(time.RFC3339), plain(why)),
			"set the servers' clocks (coordinator member list shows them); the raise waits until a quorum agrees within a minute",
		))
	}
	doubles := d.lead.Table().Conflicts(d.now())
	maps.Copy(doubles, d.nodes.Conflicts())
	for node, why := range doubles {
		out = append(out, alarms.New("identity-conflict", alarms.Fail, node, why, "give one of the machines its own etc/machine-id and node name"))
	}
	if why := d.lead.Outgrown(); why != "" {
		out = append(out, alarms.New(
			"outgrown", alarms.Fail, "cluster", why, "stop this group, or stop the other and restore this one from its newest snapshot",
		))
	}
	return append(out, d.brakes.alarms()...)
}

// Heard is what this leader hears; nil on a server that does not lead.
func (d *desk) heard() *view.Heard {
	if d == nil {
		return nil
	}
	return &view.Heard{Table: d.lead.Table(), Now: d.now(), Lost: d.timing.Lost, Meters: d.meters.counting(d.now())}
}

// allAlarms are the alarms of the cluster as this leader, or without one this server, knows them.
func (d *desk) allAlarms(s *ledger.State, nodes []*headroomv1.Node) []alarms.Alarm {
	var own []alarms.Alarm
	if d != nil {
		own = d.ownAlarms()
	}
	return alarms.Of(s, view.Domains(s, d.heard(), nodes), nodes, own)
}

// alarmLog is since when each alarm is there; nil on a server that does not lead.
func (d *desk) alarmLog() *alarms.Tracker {
	if d == nil {
		return nil
	}
	return d.alarms
}
