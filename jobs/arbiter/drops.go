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
	// lookSpan is about how long it takes to the next look: a task that begins after that can be given up then.
	lookSpan = 5 * time.Second
	// aheadEvery is the least time from one rise of a ratio to the next where it acts on stages to come, and
	// aheadStep the least rise.
	aheadEvery, aheadStep = 20 * time.Second, 0.05
	// ratioDigits is what ratios are rounded down to, so that no rounding exceeds a floor.
	ratioDigits = 1e12
)

// drops decides which jobs of an engine give up tasks. A task less of a job saves its container time for the job
// itself and for everybody served after it. It is worth its price as long as that is more than the price of
// quality, which rises with what the job has given up already.
//
// It is decided as late as it can be: not before all tasks have begun that would run anyway, because later more is
// known of who waits behind. Earlier only where a job behind it would miss its deadline by it, and where the engine
// drops in stages to come.
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

// dropsOf returns the rise of one job's ratio, where each task less saves so many weighted seconds.
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

// met gives up the tasks of a job that have not begun once its error bound is met, at no price: nobody needs them. Engines
// that end such a job by themselves do so before the next look.
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

// droppable returns how many tasks the job's floor lets it give up in all.
func (r *row) droppable() int { return r.Tasks - units.Ratio(r.Floor).Least(r.Tasks) }

// begins returns how many of the job's tasks may begin until the next look: a whole wave at once, and more where tasks
// are shorter than that.
func (r *row) begins(overhead int) int {
	return int(min(float64(r.Pending), math.Ceil(float64(max(1, r.share-overhead))*max(1, lookSpan.Seconds()/r.task))))
}

// price returns the price of one task in the middle of what the floor lets go: that of a percent of the job's tasks,
// for one of them.
func (r *row) price() float64 {
	percent := r.Percent
	if percent == 0 {
		percent = DefaultPercent
	}
	return r.weight * percent.Seconds() * 100 / float64(max(1, r.Tasks))
}
