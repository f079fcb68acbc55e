package distributor

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
)

// powers is the capacity of each group at its present caps, learned from the results of tasks.
type powers struct {
	learned *pigeon.Power
	usable  []uint32 // slots, by group
	began   time.Time
	now     time.Duration // since then, of the latest
	// jobs counts the submitted ones: tasks of one job are of one kind.
	jobs uint64
}

func newPowers(groups int) *powers {
	return &powers{learned: pigeon.NewPower(groups), usable: make([]uint32, groups), began: time.Now()}
}

// of returns the power of a group: as reported by its master, or by the speed of its usable slots. While their number
// is constant, the group's caps count as unchanged.
func (p *powers) of(now time.Time, g pigeon.Group, s *headroomv1.GroupState) float64 {
	if s.GetPower() > 0 {
		return s.GetPower()
	}
	p.now = now.Sub(p.began)
	if s.GetUsable() != p.usable[g] {
		p.usable[g] = s.GetUsable()
		p.learned.Cap(p.now, g, int(s.GetUsable()))
	}
	return p.learned.Power(g)
}

// told returns the latest reported or learned power of a group; known is false while it is an estimate from its slots.
func (p *powers) told(g pigeon.Group, s *headroomv1.GroupState) (power float64, known bool) {
	if s.GetPower() > 0 {
		return s.GetPower(), true
	}
	return p.learned.Power(g), p.learned.Known(g)
}

// secondsMost bounds the time of a task as reported by a worker: a year.
const secondsMost = 366 * 24 * 3600

// ended records the result of a job's task. A failed task is no measurement of its worker's speed.
func (p *powers) ended(now time.Time, g pigeon.Group, job uint64, r *headroomv1.TaskResult) {
	p.now = now.Sub(p.began)
	if s := r.GetSeconds(); r.GetError() == "" && r.GetExitCode() == 0 && s > 0 && s < secondsMost {
		p.learned.Ended(p.now, g, job, time.Duration(s*float64(time.Second)))
	}
}

// done learns from the results of a job that has ended.
func (p *powers) done(job uint64) { p.learned.Done(p.now, job) }
