package containers

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
)

// Policy is how containers are divided.
type Policy string

// Policies by name.
const (
	// Stretch minimises the sum of the jobs' delays, each as a fraction of its uncapped finish time: the default.
	Stretch Policy = "stretch"
	// Paper is CAB as printed: equation (3) and the loop of Fig. 3.
	Paper Policy = "paper"
	// Released is the rule of CAB's published code.
	Released Policy = "released"
	// Equal gives every job the same.
	Equal Policy = "equal"
	// Fair leaves the division to the engine's own fair scheduler, and returns its result.
	Fair Policy = "fair"
)

// Policies returns all policies, the default first.
func Policies() []Policy { return []Policy{Stretch, Paper, Released, Equal, Fair} }

func names() string {
	var all []string
	for _, p := range Policies() {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}

// Sentence returns a description of the policy.
func (p Policy) Sentence() string {
	switch p {
	case Paper:
		return "in proportion to finish over uncapped finish (CAB, equation 3)"
	case Released:
		return "what each job needs to finish in time, by the rule in CAB's published code"
	case Equal:
		return "the same for every job"
	case Fair:
		return "left to the engine's fair scheduler"
	case Stretch:
	}
	return "least total delay over the uncapped finish times; the remainder improves quality"
}

// Sets reports whether the policy sets shares at all.
func (p Policy) Sets() bool { return p != Fair }

// equal gives every job the same.
func (d *divider) equal() {
	for _, e := range d.entries {
		e.exact = float64(d.total) / float64(len(d.entries))
	}
	d.round()
}

// fair divides like a fair scheduler with equal weights: all shares rise equally, until a job can use no more; unlike
// there, unused containers go to all.
func (d *divider) fair() {
	left, open := float64(d.total), slices.Clone(d.entries)
	for len(open) > 0 {
		level, full := left/float64(len(open)), false
		open = slices.DeleteFunc(open, func(e *entry) bool {
			if e.Most == 0 || float64(e.Most) > level {
				return false
			}
			e.exact, full = float64(e.Most), true
			left -= e.exact
			return true
		})
		if !full {
			for _, e := range open {
				e.exact = level
			}
			break
		}
	}
	d.round()
}

// paper is equation (3) with the loop of Fig. 3. Both count with what jobs hold now: the paper does not define which
// containers its finish times assume.
func (d *divider) paper() {
	ratios, sum := make([]float64, len(d.entries)), 0.0
	for i, e := range d.entries {
		e.Most = 0 // neither the paper nor its code looks at what a job can use
		ratios[i] = e.ratio(0)
		sum += ratios[i]
	}
	share := func(i int) float64 { return float64(d.total) * ratios[i] / sum }
	for i, e := range d.entries {
		for e.Known && e.extra < e.More {
			c := math.Max(share(i), float64(e.Least))
			if e.end(c, e.extra)/e.Uncapped.Seconds() >= 1-d.settings.epsilon() {
				break
			}
			e.extra++
			sum -= ratios[i]
			ratios[i] = e.ratio(e.extra)
			sum += ratios[i]
		}
	}
	for i, e := range d.entries {
		e.exact = share(i)
	}
	d.round()
}

// What the published code gives a job that has met its floor: its application master and one task.
const releasedMet = 2

// released is the rule of the published code: what each needs to end at D; if that does not fit, jobs that have met
// their floors keep 2 and the others share the rest.
func (d *divider) released() {
	sum, rest := 0, d.total
	for _, e := range d.entries {
		e.Most = 0 // see paper
		need := int(math.Floor(float64(e.Held)*e.ratio(0)+roundGuard)) + 1
		if e.Met {
			need = releasedMet
		}
		e.exact, e.got = float64(need), need
		sum += need
	}
	if sum > d.total {
		open := 0
		for _, e := range d.entries {
			if e.Met {
				rest -= e.got
			} else {
				open += e.got
			}
		}
		for _, e := range d.entries {
			if !e.Met {
				e.got = max(1, int(float64(e.got)/float64(open)*float64(max(0, rest))))
			}
		}
	}
	for _, e := range d.entries {
		e.got = max(e.got, e.Least)
	}
	d.roundRobin()
}

// roundRobin corrects the sum by one container after another, in turn, no job below its minimum.
func (d *divider) roundRobin() {
	left := d.total
	for _, e := range d.entries {
		left -= e.got
	}
	for i := 0; left != 0; i++ {
		switch e := d.entries[i%len(d.entries)]; {
		case left > 0:
			e.got, left = e.got+1, left-1
		case e.got > e.Least:
			e.got, left = e.got-1, left+1
		}
	}
}

// stretch first gives every job its own: an equal share, or what it needs to end in time with the tasks of its floor.
// So no job is late for the sake of others: the model lets jobs keep their containers to the end, and would take too
// many from those that end first, whose containers go to the others anyway. The rest is assigned container after
// container, each to the job whose delay it shortens most. Delays are convex in containers, so this is the least sum.
// When no job is late with the tasks of its floor, the same continues with all its tasks, and then the job that ends
// last is served first. n jobs and c containers cost O(c log n).
func (d *divider) stretch() {
	left, even := d.total, d.even()
	var known queue
	for _, e := range d.entries {
		e.got = d.own(e, even[e])
		left -= e.got
	}
	for _, e := range d.entries { // equal shares must leave everybody its least
		for left < 0 && e.got > e.Least {
			e.got, left = e.got-1, left+1
		}
	}
	for _, e := range d.entries {
		if e.Known {
			known = append(known, d.bid(e))
		}
	}
	if len(known) == 0 {
		d.equal()
		return
	}
	heap.Init(known)
	left = d.hand(known, left)
	d.trim(known, left)
	for _, e := range d.entries {
		e.exact = float64(e.got)
		e.extra = d.reach(e)
	}
}

// hand assigns containers to the jobs whose delays they shorten most, one after the other, and returns those that would
// only slow jobs down.
func (d *divider) hand(known queue, left int) int {
	for ; left > 0 && !known[0].full; left-- {
		known[0].e.got++
		known[0] = d.bid(known[0].e)
		heap.Fix(known, 0)
	}
	return left
}

// trim takes from jobs with curves what makes them no faster, and assigns it, with what is left, to the others.
func (d *divider) trim(known queue, left int) {
	curved := false
	for _, e := range d.entries {
		if e.Curve != nil {
			curved = true
			n := max(e.Least, e.Overhead+e.Curve.Fastest(e.got-e.Overhead))
			left += e.got - n
			e.got = n
		}
	}
	if !curved {
		return
	}
	for i := range known {
		known[i] = d.bid(known[i].e)
		known[i].full = known[i].full || known[i].e.Curve != nil
	}
	heap.Init(known)
	d.hand(known, left)
}

// even returns equal shares. The odd containers stay with the jobs that hold most, so that noise moves none.
func (d *divider) even() map[*entry]int {
	share, odd := d.total/len(d.entries), d.total%len(d.entries)
	even := make(map[*entry]int, len(d.entries))
	byHeld := slices.Clone(d.entries)
	slices.SortStableFunc(byHeld, func(a, b *entry) int { return cmp.Compare(b.Held, a.Held) })
	for i, e := range byHeld {
		even[e] = share
		if i < odd {
			even[e]++
		}
	}
	return even
}

// own returns what a job gets before others may have it: an equal share, or less if it can use no more or needs no more
// to end in time with the tasks of its floor.
func (d *divider) own(e *entry, share int) int {
	if e.Most > 0 {
		share = min(share, e.Most)
	}
	if e.Known {
		share = min(share, e.need())
	}
	return max(e.Least, share)
}

// need returns the number of containers with which the job ends in time with the tasks of its floor; more than exist if
// none are enough.
func (e *entry) need() int {
	left, until := (e.Finish - e.Elapsed).Seconds(), (e.Uncapped - e.Elapsed).Seconds()
	if left <= 0 {
		return e.Overhead + 1
	}
	if until <= 0 {
		return needMost
	}
	held := e.Held
	if e.Most > 0 {
		held = min(held, e.Most) // see slower
	}
	if e.Curve != nil {
		return e.Overhead + e.Curve.needs(e.Curve.Envelope(float64(held-e.Overhead))*left/until)
	}
	tasks := float64(held-e.Overhead) * math.Pow(left/until, 1/e.Beta)
	return e.Overhead + int(math.Ceil(min(tasks-roundGuard, needMost)))
}

// needMost is more than any cluster has.
const needMost = 1e6

// reach returns how many tasks above its floor a job will have done by its uncapped finish time.
func (d *divider) reach(e *entry) int {
	if !e.Known || e.More == 0 || e.PerTask <= 0 {
		return 0
	}
	c := float64(e.got)
	spare := e.Uncapped.Seconds() - e.end(c, 0)
	each := e.PerTask.Seconds() * e.slower(c)
	if spare <= 0 {
		return 0
	}
	return min(e.More, int(spare/each))
}

// A bid is the effect of one more container on a job.
type bid struct {
	e *entry
	// floor and all are by how much it would be less late, with the tasks of its floor and with all of them; end is
	// when it would end with all, 0 when it can use no more.
	floor, all, end float64
	// full is true where more would slow the job down.
	full bool
}

func (d *divider) bid(e *entry) bid {
	b, c, epsilon := bid{e: e, full: e.got >= e.ceiling()}, float64(e.got), d.settings.epsilon()
	if e.Most > 0 && e.got >= e.Most {
		return b
	}
	b.floor = e.late(c, 0, epsilon) - e.late(c+1, 0, epsilon)
	b.all = e.late(c, e.More, epsilon) - e.late(c+1, e.More, epsilon)
	b.end = e.end(c, e.More)
	return b
}

// queue is a heap of bids, the best first.
type queue []bid

// Len, Less, Swap, Push and Pop are heap.Interface.
func (q queue) Len() int { return len(q) }

// Less puts the bid in front that shortens most; see Len.
func (q queue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.full != b.full:
		return b.full
	case a.floor != b.floor:
		return a.floor > b.floor
	case a.all != b.all:
		return a.all > b.all
	case a.end != b.end:
		return a.end > b.end
	case a.e.got != b.e.got:
		return a.e.got < b.e.got
	}
	return a.e.Name < b.e.Name
}

// Swap changes two places; see Len.
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop are not used: the jobs stay the same during a division. See Len.
func (q queue) Push(any) {}

// Pop is not used; see Push.
func (q queue) Pop() any { return nil }
