package arbiter

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// The unit of all decisions is the weighted second: a second by which a job of the highest class ends later costs 1, of
// the next class 1/classRatio, and so on; a second past its deadline costs lateFactor in addition. Tasks have a price
// in it, and joules go where they save most of it.
const (
	// classRatio is how many times as much a second of one class counts as one of the next.
	classRatio = 20
	// lateFactor is how much a second past a deadline counts in addition to the second itself.
	lateFactor = 2
	// DefaultPercent is the price of quality: how many seconds earlier a job must end for one percent of its tasks to
	// be dropped. The first tasks cost half of it, the last that its floor permits one and a half times as much.
	DefaultPercent = 3 * time.Second
	// passing is by how much of its size a job may be passed by smaller ones of its class: a job's place is the time of
	// its submission plus this fraction of the time that it would take alone. More lowers the mean of jobs of many
	// sizes, and raises their 95th percentile above that of arrival order.
	passing = 0.3
	// priorTasks is the weight, in tasks of the job, of the class mean in the estimate of the job's task time: the
	// first tasks of a job are noisy, and an order that followed them would oscillate.
	priorTasks = 20
	// unknownTask is the assumed time of a task if nothing similar has run, s.
	unknownTask = 10.0
	// taskLeast is the minimum time of a task, and workLeast the minimum that is left of a job, in tasks: they keep
	// divisions finite.
	taskLeast, workLeast = 1e-3, 0.01
)

// row is a contender with the results of the decision. Times are in seconds.
type row struct {
	*Contender

	weight float64
	// task is the container time of a task, work that of all that is left, size that of the whole job.
	task, work, size float64
	// width is the number of containers for tasks that it is served with first, usable the number that it can use; they
	// differ only for a job with a curve. single and one are its task and work on one container.
	width, usable int
	single, one   float64
	// toll is what a second of one container costs those behind a job with a curve.
	toll float64
	// share is how many containers it gets, including its own.
	share int
	// left is when it will end, from now; slope what a second more or less of that costs.
	left, slope float64
	// kept are the containers that are reserved for it as promised, copies how many more copies it may run.
	kept, copies int
	// risk is true if its promise is at risk, or was before the levers were applied; then leverage and candidates have
	// their worth.
	risk       bool
	leverage   leverage
	candidates []Candidate
	// on are the nodes that run its containers, by name; containers is their sum.
	on         []placed
	containers int
}

// placed is how many containers of a job run on a node.
type placed struct {
	node       string
	containers int
}

// newRows returns the rows of tidy jobs. If the time of a job's tasks is unknown, the mean of its class is used.
func newRows(jobs []Contender) []*row {
	sums, counts := make([]float64, ranksMost+1), make([]float64, ranksMost+1)
	rows, all := make([]*row, len(jobs)), make([]row, len(jobs))
	for i := range jobs {
		c := &jobs[i]
		rows[i] = &all[i]
		all[i] = row{on: make([]placed, 0, len(c.On)), Contender: c, weight: math.Pow(classRatio, -float64(c.Rank)), width: max(1, c.Running+max(0, c.Pending-c.needless()))}
		rows[i].width = min(rows[i].width, c.atMost())
		rows[i].usable = rows[i].width
		for node, n := range c.On {
			if n > 0 {
				rows[i].on = append(rows[i].on, placed{node, n})
				rows[i].containers += n
			}
		}
		slices.SortFunc(rows[i].on, func(a, b placed) int { return cmp.Compare(a.node, b.node) })
		if rest := c.Outlook.Rest; rest.Known {
			n := float64(max(0, rest.Ended)) + 1
			sums[c.Rank] += n * rest.Task.Seconds()
			counts[c.Rank] += n
		}
	}
	for _, r := range rows {
		mean := unknownTask
		if n := counts[r.Rank]; n > 0 {
			mean = sums[r.Rank] / n
		}
		r.estimate(mean)
	}
	return rows
}

// estimate computes what is left of the job; mean is the time of a task of its class.
func (r *row) estimate(mean float64) {
	r.task = mean
	left := float64(max(0, r.Pending-r.needless())) + float64(r.Running)/2
	if rest := r.Outlook.Rest; rest.Known {
		own := float64(max(0, rest.Ended))
		r.task = (own*rest.Task.Seconds() + priorTasks*mean) / (own + priorTasks)
		left = rest.Work
	}
	r.task = max(r.task, taskLeast)
	r.work = max(left, workLeast) * r.task
	r.size = float64(max(1, r.Tasks-r.Dropped)) * r.task
	r.single, r.one = r.task, r.work
	if r.Outlook.Rest.Known {
		s := r.slowness(max(1, r.Running))
		r.single, r.one = r.single/s, r.one/s
	}
}

// dueIn returns the time to the job's deadline from now, below 0 when it has passed; false without one.
func (r *row) dueIn() (float64, bool) {
	return (r.Deadline - r.Elapsed).Seconds(), r.Deadline != 0
}

// late reports whether the job is expected to miss its deadline.
func (r *row) late() bool {
	due, has := r.dueIn()
	return has && r.left > due
}

// costAt returns the cost of the job if it ends in left seconds.
func (r *row) costAt(left float64) float64 {
	cost := left
	if due, has := r.dueIn(); has {
		cost += lateFactor * max(0, left-max(0, due))
	}
	return r.weight * cost
}

// slopeNow returns the cost of one more second.
func (r *row) slopeNow() float64 {
	if r.late() {
		return r.weight * (1 + lateFactor)
	}
	return r.weight
}

// nodeValues returns, by node, the weighted seconds saved per second in which the node runs twice as fast: each job
// there gains by the fraction of its containers on it. A waiting job counts on the nodes of its engine, in proportion
// to the engine's containers.
func nodeValues(rows []*row) map[string]float64 {
	out, waiting := map[string]float64{}, map[string]float64{}
	spread, all := map[string]map[string]int{}, map[string]int{}
	for _, r := range rows {
		if r.containers == 0 {
			waiting[r.Engine] += r.slope
			continue
		}
		if spread[r.Engine] == nil {
			spread[r.Engine] = map[string]int{}
		}
		for _, p := range r.on {
			out[p.node] += r.slope * float64(p.containers) / float64(r.containers)
			spread[r.Engine][p.node] += p.containers
		}
		all[r.Engine] += r.containers
	}
	for _, engine := range slices.Sorted(maps.Keys(waiting)) {
		for node, n := range spread[engine] {
			out[node] += waiting[engine] * float64(n) / float64(all[engine])
		}
	}
	return out
}
