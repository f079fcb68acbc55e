package distributor

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/each"
)

// statusRequest requests the status.
type statusRequest struct {
	reply chan<- []*headroomv1.DispatchGroup
}

func (e statusRequest) apply(l *loop, _ time.Time) {
	all := each.List(l.groups, l.status)
	e.reply <- all
}

// States of a master.
const (
	StateActive  = "active"
	StateStandby = "standby"
	StateLost    = "lost"
)

func (l *loop) status(g *group) *headroomv1.DispatchGroup {
	out := &headroomv1.DispatchGroup{
		Name: g.Name, Outstanding: uint32(l.core.OutstandingAt(g.number)), Waiting: uint32(l.core.WaitingAt(g.number)), Window: uint32(max(0, g.windows[0]) + max(0, g.windows[1])),
	}
	for _, k := range g.links {
		m := &headroomv1.DispatchMaster{Address: k.address, Name: k.name, State: StateLost, Trouble: k.trouble}
		if k.open != nil {
			if m.State = StateStandby; k.open == g.active {
				m.State = StateActive
			}
			m.Trouble = k.open.state.GetTrouble()
		}
		out.Masters = append(out.Masters, m)
	}
	if g.active == nil {
		return out
	}
	s := g.active.state
	out.Workers, out.Slots, out.Usable, out.Reserved = new(s.GetWorkers()), new(s.GetSlots()), new(s.GetUsable()), new(s.GetReserved())
	out.RunningHigh, out.RunningLow = new(s.GetRunningHigh()), new(s.GetRunningLow())
	out.WaitingHigh, out.WaitingLow = new(s.GetWaitingHigh()), new(s.GetWaitingLow())
	if power, known := l.powers.told(g.number, s); known {
		out.Power = &power
	}
	return out
}
