package ledger

import "headroom/lease"

// ReportOf is a heartbeat of a node as the leader takes it in, with what the node declared
// when it opened its stream.
func ReportOf(who Sighting, hb lease.Heartbeat) Report {
	who.Process = hb.Process
	r := Report{
		Sighting: who, Number: hb.Number, Highest: hb.Highest, Stored: hb.Stored, Brake: hb.Brake, Sprint: hb.Sprint,
		Effective: hb.Effective, EffectiveKnown: hb.EffectiveKnown,
	}
	for _, e := range hb.Ended {
		told := SprintSpent{ID: e.ID}
		if e.Measured {
			spent := e.Spent
			told.Spent = &spent
		}
		r.Ended = append(r.Ended, told)
	}
	return r
}
