package arbiter

import (
	"cmp"
	"slices"
)

// room returns how many containers run tasks when there are so many jobs.
func (p Pool) room(jobs int) float64 { return float64(max(1, p.Containers-max(0, p.Overhead)*jobs)) }

// order sorts the jobs of an engine into the order in which free containers go to them, and predicts their ends as if
// each used all containers in turn, as far as it can use them.
//
// A higher class comes first. Inside a class, a job's place is the time of its submission plus passing times the time
// that it would take alone: earlier jobs come first, except that small jobs pass large ones for a bounded time. Then
// a job that would miss its deadline passes those before it that lose less than it gains.
func (m *Movers) order(rows []*row, p Pool, joint bool) {
	c := p.room(len(rows))
	key := func(r *row) float64 { return passing*r.size/c - r.Age.Seconds() }
	slices.SortStableFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(key(a), key(b)))
	})
	rescue(rows, c)
	before := 0.0
	for _, r := range rows {
		r.left = r.endAfter(before, c)
		r.slope = r.slopeNow()
		r.risk = r.risk || r.late()
		before += r.work
	}
	if joint {
		m.promises(rows, p, c)
		narrow(rows, c)
		copyRuns(rows, p, c)
	}
	for _, r := range rows {
		r.risk = joint && !r.Waiting && (r.risk || r.late())
	}
}

// endAfter returns when the job ends behind this much work of others: limited by its own width, half a task later than
// on average, and with what comes after its map tasks.
func (r *row) endAfter(before, c float64) float64 {
	return max((before+r.work)/c, r.work/min(c, float64(r.width))) + r.task/2 + r.Outlook.Rest.Tail.Seconds()
}

// rescue lets jobs that would miss their deadlines pass others, one place at a time, while that lowers the cost of the
// two.
func rescue(rows []*row, c float64) {
	before := make([]float64, len(rows)+1)
	for i, r := range rows {
		before[i+1] = before[i] + r.work
	}
	for i := len(rows) - 1; i > 0; i-- {
		a, b := rows[i-1], rows[i]
		due, has := b.dueIn()
		then := b.endAfter(before[i], c)
		if !has || then <= due {
			continue
		}
		sooner := b.endAfter(before[i-1], c)
		stay := a.costAt(a.endAfter(before[i-1], c)) + b.costAt(then)
		pass := b.costAt(sooner) + a.costAt(a.endAfter(before[i-1]+b.work, c))
		b.risk = true
		l := &b.leverage
		if pass >= stay {
			l.blocked = passage{time: sooner - then, worth: stay - pass, who: a.ID}
			continue
		}
		rows[i-1], rows[i] = b, a
		before[i] = before[i-1] + b.work
		l.passed = passage{time: l.passed.time + sooner - then, worth: l.passed.worth + stay - pass, who: a.ID, count: l.passed.count + 1}
	}
}

// share gives each job its overhead, and the rest in the order of the jobs, without what is reserved for later jobs of
// the same or a higher class. A job that gets none for tasks waits: the jobs before it use them all.
func share(rows []*row, p Pool) {
	free := max(0, p.Containers)
	for _, r := range rows {
		r.share = min(max(0, p.Overhead), free)
		free -= r.share
	}
	var kept [ranksMost + 1]int
	for _, r := range rows {
		kept[r.Rank] += r.kept
	}
	for _, r := range rows {
		kept[r.Rank] -= r.kept
		aside := 0
		for _, n := range kept[:r.Rank+1] {
			aside += n
		}
		more := r.cheapest(min(free, r.width, max(r.kept, free-aside)))
		r.share += more
		free -= more
	}
	widen(rows, max(0, p.Overhead), free)
}
