package distributor

import (
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/dispatch/pigeon"
)

// powers is what each group can do at its present caps, learned from the results of tasks.
type powers struct {
	learned *pigeon.Power
	usable  []uint32 // slots, by group
	began   time.Time
	now     time.Duration // since then, of what came last
	// jobs counts those that were submitted: tasks of one job are of one kind.
	jobs uint64
}

func newPowers(groups int) *powers {
	return &powers{learned: pigeon.NewPower(groups), usable: make([]uint32, groups), began: time.Now()}
}

// of is the power of a group: what its master says, or how fast its usable slots were. While their number stands, the group's caps
// count as unchanged.
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

// told is what was last said or learned of the power of a group; known is false while it is a guess from its slots.
func (p *powers) told(g pigeon.Group, s *headroomv1.GroupState) (power float64, known bool) {
	if s.GetPower() > 0 {
		return s.GetPower(), true
	}
	return p.learned.Power(g), p.learned.Known(g)
}

// secondsMost bounds what a worker says that a task took: a year.
const secondsMost = 366 * 24 * 3600

// ended takes the result of a job's task. A task that failed says nothing of how fast its worker is.
func (p *powers) ended(now time.Time, g pigeon.Group, job uint64, r *headroomv1.TaskResult) {
	p.now = now.Sub(p.began)
	if s := r.GetSeconds(); r.GetError() == "" && r.GetExitCode() == 0 && s > 0 && s < secondsMost {
		p.learned.Ended(p.now, g, job, time.Duration(s*float64(time.Second)))
	}
}

// done learns from the results of a job that has ended.
func (p *powers) done(job uint64) { p.learned.Done(p.now, job) }
