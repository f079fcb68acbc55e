// Package wire turns leases, what nodes acknowledge and sets of tasks into messages and back, for all
// who speak them: powerd, the coordinator, the scheduler and the benchmarks.
//
// It decides nothing: values out of range are bounded so that no sum can overflow, and what
// makes no sense is refused by who takes it (package lease).
package wire

import (
	"slices"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/lease"
	"headroom/units"
)

// Epoch is a leadership; nil is none.
func Epoch(m *headroomv1.Epoch) lease.Epoch {
	return lease.Epoch{Incarnation: m.GetIncarnation(), Term: m.GetTerm()}
}

// EpochMessage is a leadership as a message.
func EpochMessage(e lease.Epoch) *headroomv1.Epoch {
	return &headroomv1.Epoch{Incarnation: e.Incarnation, Term: e.Term}
}

// Stamp is the order of a grant; nil is before all.
func Stamp(m *headroomv1.Stamp) lease.Stamp {
	return lease.Stamp{Epoch: Epoch(m.GetEpoch()), Seq: m.GetSeq()}
}

// StampMessage is the order of a grant as a message.
func StampMessage(s lease.Stamp) *headroomv1.Stamp {
	return &headroomv1.Stamp{Epoch: EpochMessage(s.Epoch), Seq: s.Seq}
}

// span is a time of a message, in milliseconds, within 0 and most.
func span(ms int64, most time.Duration) time.Duration {
	return time.Duration(min(max(ms, 0), int64(most/time.Millisecond))) * time.Millisecond
}

// Grant is a lease as the node judges it.
func Grant(l *headroomv1.Lease) lease.Grant {
	g := lease.Grant{
		Stamp: Stamp(l.GetStamp()), Cap: units.Power(l.GetCapUw()), FailSafe: units.Power(l.GetFailSafeUw()),
		Duration: span(l.GetDurationMs(), time.Hour), Heartbeat: l.GetHeartbeat(), Process: l.GetProcessId(), BrakeLifted: l.GetBrakeLifted(),
	}
	if s := l.GetSprint(); s != nil {
		g.Sprint = lease.Sprint{
			ID: s.GetId(), Cap: units.Power(s.GetCapUw()), Escrow: units.Energy(s.GetEscrowUj()), Duration: span(s.GetDurationMs(), 2*lease.MaxSprint),
		}
	}
	return g
}

// LeaseMessage is a grant as the leader sends it.
func LeaseMessage(g lease.Grant) *headroomv1.Lease {
	return &headroomv1.Lease{
		Stamp: StampMessage(g.Stamp), CapUw: int64(g.Cap), FailSafeUw: int64(g.FailSafe), DurationMs: g.Duration.Milliseconds(),
		Heartbeat: g.Heartbeat, ProcessId: g.Process, BrakeLifted: g.BrakeLifted, Sprint: SprintMessage(g.Sprint),
	}
}

// SprintMessage is a sprint as it goes out with a lease; nil without one.
func SprintMessage(p lease.Sprint) *headroomv1.Sprint {
	if p.ID == "" {
		return nil
	}
	return &headroomv1.Sprint{Id: p.ID, CapUw: int64(p.Cap), DurationMs: p.Duration.Milliseconds(), EscrowUj: int64(p.Escrow)}
}

// HoldingMessage is what a node that holds caps acknowledges with a heartbeat.
func HoldingMessage(hb lease.Heartbeat) *headroomv1.Holding {
	h := &headroomv1.Holding{
		State: headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE, Applied: StampMessage(hb.Applied), CapUw: int64(hb.Cap), FailSafeUw: int64(hb.Stored),
		SprintId: hb.Sprint,
	}
	if hb.State == lease.Held {
		h.State = headroomv1.LeaseState_LEASE_STATE_HELD
	}
	for _, e := range hb.Ended {
		end := &headroomv1.SprintEnd{Id: e.ID, Reason: e.Reason.String()}
		if e.Measured {
			end.SpentUj = new(int64(e.Spent))
		}
		h.Ended = append(h.Ended, end)
	}
	if hb.EffectiveKnown {
		h.EffectiveUw = new(int64(hb.Effective))
	}
	return h
}

// TaskRanges returns the fewest ranges of tasks, counted from 0, in order.
func TaskRanges(tasks []int) (list []*headroomv1.TaskRange) {
	for _, i := range slices.Sorted(slices.Values(tasks)) {
		if k := len(list) - 1; k >= 0 && int(list[k].GetLast())+1 == i {
			list[k].Last++
			continue
		}
		list = append(list, &headroomv1.TaskRange{First: uint32(i), Last: uint32(i)})
	}
	return list
}
