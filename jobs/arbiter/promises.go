package arbiter

import "slices"

// Promises of admission: enough containers for a job to meet its deadline.

// keepSlack is by how much more a kept promise may cost than it gains, as a fraction of the job's cost: without it a
// promise at the margin would alternate.
const keepSlack = 0.1

// promises reserves promised containers for jobs that would get fewer by their places. They come from earlier jobs of
// the same class and of lower ones, as far as that costs no more than it gains; a higher class is served as if there
// were no promises. They never exceed the pool.
func (m *Movers) promises(rows []*row, p Pool, c float64) {
	if p.Containers <= 0 || !slices.ContainsFunc(rows, func(r *row) bool { return r.Promised > 0 }) {
		return
	}
	var higher [ranksMost + 1]int // before by rank
	free := max(0, p.Containers-max(0, p.Overhead)*len(rows))
	before, kept := 0, 0 // what earlier jobs can use, and what is reserved against the order
	for i, r := range rows {
		if r.Promised > 0 {
			room := free - kept
			for rank := range r.Rank {
				room -= higher[rank]
			}
			r.kept = max(0, min(r.Promised, r.width, room))
			if r.kept > max(0, free-before) {
				if m.keep(rows[:i], r, c-float64(kept)) {
					kept += r.kept
				} else {
					r.kept = 0
				}
			}
			m.jobs[r.ID].kept = r.kept > 0
		}
		before += r.width
		higher[r.Rank] += r.width
	}
}

// keep decides whether a promise is kept against the jobs before it, with this many containers for all of them.
func (m *Movers) keep(before []*row, r *row, c float64) bool {
	k := float64(r.kept)
	c = max(c, k)
	left := min(r.left, r.work/k+r.task/2+r.Outlook.Rest.Tail.Seconds())
	saves := r.costAt(r.left) - r.costAt(left)
	work := 0.0
	for _, a := range before {
		if work += a.work; a.yields(r) {
			saves -= a.costAt(a.left+slowed(work, r.work, c, k)) - a.costAt(a.left)
		}
	}
	slack := 0.0
	if m.jobs[r.ID].kept {
		slack = keepSlack * r.costAt(left)
	}
	if saves < -slack {
		r.leverage.blocked = passage{time: left - r.left, worth: saves, who: before[len(before)-1].ID}
		return false
	}
	r.leverage.promised = passage{time: left - r.left, worth: saves, count: r.kept}
	work = 0
	for _, a := range before {
		if work += a.work; a.yields(r) {
			a.left += slowed(work, r.work, c, k)
			a.slope = a.slopeNow()
		}
	}
	r.left = left
	r.slope = r.slopeNow()
	return true
}

// yields reports whether containers for the promise of a later job may come from this one: not from a higher class, nor
// from reserved ones.
func (r *row) yields(later *row) bool { return r.Rank >= later.Rank && r.leverage.promised.count == 0 }

// slowed returns by how much later work is done on c containers, in seconds, if k of them first do other work.
func slowed(work, other, c, k float64) float64 {
	late := other / c
	if c > k {
		late = min(late, work*k/(c*(c-k)))
	}
	return late
}
