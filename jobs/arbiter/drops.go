package arbiter

import (
	"fmt"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// Deflate is a drop ratio to commit.
type Deflate struct {
	ID     string
	Theta  float64
	Seed   uint64
	Reason string
}

const (
	// lookSpan is about the time to the next decision: a task that starts after that can be dropped then.
	lookSpan = 5 * time.Second
	// aheadEvery is the minimum time between two rises of a ratio that acts on later stages, and aheadStep the minimum
	// rise.
	aheadEvery, aheadStep = 20 * time.Second, 0.05
	// ratioDigits is what ratios are rounded down to, so that no rounding exceeds a floor.
	ratioDigits = 1e12
)

// drops decides which jobs of an engine drop tasks. A dropped task saves its container time for the job itself and
// for all jobs behind it. It is dropped while that is worth more than the price of quality, which rises with what the
// job has dropped already.
//
// The decision is made as late as possible, when all tasks that would run anyway have started, because later more is
// known about waiting jobs. It is made earlier only if a job behind would otherwise miss its deadline, and if the
// engine drops in later stages.
func (m *Movers) drops(now time.Duration, rows []*row, p Pool, out *Moves) {
	c := p.room(len(rows))
	if p.Containers <= 0 {
		running := 0
		for _, r := range rows {
			running += r.Running
		}
		c = float64(max(1, running))
	}
	behind, urgent := 0.0, false
	for _, r := range slices.Backward(rows) {
		behind += r.slope
		saves := behind * r.task / c
		x, ok := m.dropsOf(now, r, saves, urgent, max(0, p.Overhead))
		if ok {
			out.Deflates = append(out.Deflates, x)
		}
		if r.risk {
			r.weighDrops(x, ok, saves, c)
		}
		due, has := r.dueIn()
		urgent = urgent || has && due > 0 && r.left > due
	}
}

// dropsOf returns the rise of one job's ratio, if each dropped task saves this many weighted seconds.
func (m *Movers) dropsOf(now time.Duration, r *row, saves float64, urgent bool, overhead int) (Deflate, bool) {
	all := r.droppable()
	allowed := min(all-r.Dropped, r.Pending)
	if r.Ahead {
		allowed = all - r.Dropped
	}
	if r.ErrorBound > 0 {
		return r.met(allowed)
	}
	if !r.MayDeflate || r.Waiting || allowed <= 0 || !r.Outlook.Rest.Known {
		return Deflate{}, false
	}
	n := int(min(float64(allowed), math.Floor((saves/r.price()-0.5)*float64(all))-float64(r.Dropped)))
	if n <= 0 || !r.Ahead && !urgent && r.Pending > n+r.begins(overhead) {
		return Deflate{}, false
	}
	theta := float64(r.Dropped+n) / float64(r.Tasks)
	if r.Ahead {
		if d := m.jobs[r.ID]; d.raised && now-d.deflated < aheadEvery {
			return Deflate{}, false
		}
		if theta = math.Floor(theta/aheadStep+1e-9) * aheadStep; theta < r.Theta+aheadStep/2 {
			return Deflate{}, false
		}
	}
	theta = math.Floor(min(theta, 1-r.Floor)*ratioDigits) / ratioDigits
	if !units.Ratio(theta).Above(units.Ratio(r.Theta)) {
		return Deflate{}, false
	}
	return Deflate{ID: r.ID, Theta: theta, Seed: r.Seed, Reason: r.deflateWords(theta, n, saves)}, true
}

// met drops the tasks of a job that have not started once its error bound is met, at no price: they are not needed.
// Engines that end such a job themselves do so before the next decision.
func (r *row) met(allowed int) (Deflate, bool) {
	if n := r.needless(); !r.MayDeflate || r.Waiting || allowed <= 0 || r.Running+r.Pending > n {
		return Deflate{}, false
	}
	theta := math.Floor(min(float64(r.Dropped+allowed)/float64(r.Tasks), 1-r.Floor)*ratioDigits) / ratioDigits
	if !units.Ratio(theta).Above(units.Ratio(r.Theta)) {
		return Deflate{}, false
	}
	return Deflate{ID: r.ID, Theta: theta, Seed: r.Seed, Reason: fmt.Sprintf(
		"its error bound of %s is met: %d tasks that have not started are dropped; drop ratio %.2f -> %.2f, floor %.2f of its tasks",
		units.Percent(r.ErrorBound), allowed, r.Theta, theta, r.Floor)}, true
}

// droppable returns how many tasks the job's floor permits to drop in total.
func (r *row) droppable() int { return r.Tasks - units.Ratio(r.Floor).Least(r.Tasks) }

// begins returns how many of the job's tasks may start until the next decision: a whole wave at once, and more if tasks
// are shorter than that.
func (r *row) begins(overhead int) int {
	return int(min(float64(r.Pending), math.Ceil(float64(max(1, r.share-overhead))*max(1, lookSpan.Seconds()/r.task))))
}

// price returns the price of one task in the middle of the range that the floor permits: that of a percent of the job's
// tasks, converted to one task.
func (r *row) price() float64 {
	percent := r.Percent
	if percent == 0 {
		percent = DefaultPercent
	}
	return r.weight * percent.Seconds() * 100 / float64(max(1, r.Tasks))
}
