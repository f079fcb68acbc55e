package pigeon

import "iter"

// Group names a group within its Distributor.
type Group int

// Spread is how a Distributor divides the tasks of a job among the groups.
type Spread uint8

const (
	// Even gives all groups the same, the remainder to random ones: the paper's.
	Even Spread = iota
	// Weighted gives each in proportion to its power.
	Weighted
	// Level gives each task to the group with the least work ahead for its power.
	Level
	// Balanced is Weighted, with the remainder to the groups with the least ahead.
	Balanced
	// Shorter gives each task to that one of two random groups with the least ahead, whatever their power.
	Shorter
)

// DistributorOptions set up a Distributor.
type DistributorOptions struct {
	Spread    Spread
	Placement Placement
	// WaitMost bounds how many tasks wait for a window; 0 is no bound.
	WaitMost int
	Random   Source
}

// Distributor spreads tasks over groups and follows them until their results.
type Distributor[T any] struct {
	options  DistributorOptions
	splitter *splitter
	pool     pool[T]
	groups   []group
	// live are the groups that are up; power and ahead are theirs during a split, in the same order.
	live  []Group
	power []float64
	ahead []int
	dealt []int
	// homeless are tasks while no group is up, by priority.
	homeless [2]list
	// ready are groups that may have something to hand over; each is there once.
	ready   []Group
	waiting int
}

type group struct {
	up, ready bool
	power     float64
	// ahead are the tasks before a new one of low and of high priority: reported, and placed since.
	ahead [2]int
	// windows are how many more tasks may be handed over, by priority.
	windows [2]int
	waiting [2]list
	sent    list
}

// Send is a task to hand over to a group.
type Send[T any] struct {
	ID    ID
	Group Group
	Task  T
	High  bool
	// Attempt counts from 0. It rises when a group loses the task.
	Attempt int
}

// NewDistributor returns a Distributor without groups.
func NewDistributor[T any](o DistributorOptions) *Distributor[T] {
	return &Distributor[T]{options: o, splitter: newSplitter(o.Random), homeless: [2]list{newList(), newList()}}
}

// Join adds a group that is up, of power 1, with empty windows.
func (d *Distributor[T]) Join() Group {
	g := Group(len(d.groups))
	d.groups = append(d.groups, group{power: 1, waiting: [2]list{newList(), newList()}, sent: newList()})
	d.Up(g)
	return g
}

// Up states that a group can take tasks again.
func (d *Distributor[T]) Up(g Group) {
	if x := &d.groups[g]; !x.up {
		x.up = true
		d.relive()
	}
}

// Lost states that a group and its standby are gone. Its tasks are placed again on groups that are up, those that were handed over
// as a new attempt; with no group up they wait.
func (d *Distributor[T]) Lost(g Group) {
	x := &d.groups[g]
	if !x.up {
		return
	}
	x.up, x.windows, x.ahead = false, [2]int{}, [2]int{}
	for at := x.sent.first; at != none; at = x.sent.first {
		d.pool.remove(&x.sent, at)
		d.again(at)
	}
	for priority := range x.waiting {
		for at := x.waiting[priority].first; at != none; at = x.waiting[priority].first {
			d.pool.remove(&x.waiting[priority], at)
			d.pool.push(&d.homeless[priority], at)
			d.pool.entries[at].owner = none
		}
	}
	d.relive()
}

// again makes an entry that was handed over a waiting one without a group.
func (d *Distributor[T]) again(at int32) {
	e := &d.pool.entries[at]
	e.attempt++
	e.sent, e.owner = false, none
	d.waiting++
	d.pool.push(&d.homeless[kindOf(e.high)], at)
}

// relive lists the groups that are up, and places the tasks that have none.
func (d *Distributor[T]) relive() {
	d.live = d.live[:0]
	for g := range d.groups {
		if d.groups[g].up {
			d.live = append(d.live, Group(g))
		}
	}
	d.house()
}

// house places the tasks that have no group, if any group is up.
func (d *Distributor[T]) house() {
	for priority := range d.homeless {
		if h := &d.homeless[priority]; h.count > 0 && len(d.live) > 0 {
			for _, i := range d.split(h.count, priority) {
				at := h.first
				d.pool.remove(h, at)
				d.wait(at, d.live[i])
			}
		}
	}
}

// Window sets how many more tasks of each priority a group takes now.
func (d *Distributor[T]) Window(g Group, lowMore, highMore int) {
	x := &d.groups[g]
	if !x.up {
		return
	}
	x.windows = [2]int{low: max(0, lowMore), high: max(0, highMore)}
	d.mark(g)
}

// Report sets what the next splits go by: the power of a group, and how many tasks its master has ahead of a new one: all that run and wait
// for a low-priority one, all that run and the high-priority ones that wait for a high-priority one. A group with a power of 0 gets no tasks while another has any.
func (d *Distributor[T]) Report(g Group, power float64, aheadLow, aheadHigh int) {
	x := &d.groups[g]
	x.power, x.ahead = power, [2]int{low: max(0, aheadLow), high: max(0, aheadHigh)}
}

// Waiting returns how many tasks are not handed over yet.
func (d *Distributor[T]) Waiting() int { return d.waiting }

// WaitingAt returns how many tasks wait for a group's windows.
func (d *Distributor[T]) WaitingAt(g Group) int {
	x := &d.groups[g]
	return x.waiting[low].count + x.waiting[high].count
}

// OutstandingAt returns how many tasks were handed over to a group and have no result.
func (d *Distributor[T]) OutstandingAt(g Group) int { return d.groups[g].sent.count }

// Submit takes all tasks of a job, or a part of them that is to be spread by itself, and appends their IDs to ids. It reports false,
// with nothing kept, if more would wait than WaitMost.
func (d *Distributor[T]) Submit(tasks []T, highPriority bool, ids []ID) ([]ID, bool) {
	if m := d.options.WaitMost; m > 0 && len(tasks) > m-d.waiting {
		return ids, false
	}
	d.waiting += len(tasks)
	var dealt []int
	if len(d.live) > 0 {
		dealt = d.split(len(tasks), kindOf(highPriority))
	}
	for i, task := range tasks {
		at, id := d.pool.add(task, highPriority)
		ids = append(ids, id)
		if dealt == nil {
			d.pool.push(&d.homeless[kindOf(highPriority)], at)
		} else {
			d.wait(at, d.live[dealt[i]])
		}
	}
	return ids, true
}

// split returns the index in live for each of so many tasks.
func (d *Distributor[T]) split(tasks, priority int) []int {
	d.power, d.ahead = d.power[:0], d.ahead[:0]
	if d.options.Spread != Even {
		for _, g := range d.live {
			d.power, d.ahead = append(d.power, d.groups[g].power), append(d.ahead, d.groups[g].ahead[priority])
		}
	}
	var shares []share
	switch d.options.Spread {
	case Weighted:
		shares = d.splitter.weighted(tasks, d.power)
	case Level:
		shares = d.splitter.level(tasks, d.power, d.ahead)
	case Balanced:
		shares = d.splitter.balanced(tasks, d.power, d.ahead)
	case Shorter:
		shares = d.splitter.shorter(tasks, d.ahead)
	case Even:
		shares = d.splitter.even(tasks, len(d.live))
	}
	d.dealt = d.options.Placement.deal(shares, d.dealt[:0])
	return d.dealt
}

// wait lets a task wait for a group's window.
func (d *Distributor[T]) wait(at int32, g Group) {
	e := &d.pool.entries[at]
	e.owner = int32(g)
	d.pool.push(&d.groups[g].waiting[kindOf(e.high)], at)
	d.groups[g].expect(e.high, 1)
	d.mark(g)
}

// expect counts a task that is ahead of others: one of high priority is ahead of all.
func (x *group) expect(highPriority bool, by int) {
	x.ahead[low] = max(0, x.ahead[low]+by)
	if highPriority {
		x.ahead[high] = max(0, x.ahead[high]+by)
	}
}

// mark has Next look at a group.
func (d *Distributor[T]) mark(g Group) {
	if x := &d.groups[g]; !x.ready {
		x.ready = true
		d.ready = append(d.ready, g)
	}
}

// Next returns the next task to hand over; false if no window permits one. High priority goes first.
func (d *Distributor[T]) Next() (Send[T], bool) {
	for n := len(d.ready); n > 0; n = len(d.ready) {
		g := d.ready[n-1]
		x := &d.groups[g]
		for _, priority := range [2]int{high, low} {
			if x.waiting[priority].count == 0 || x.windows[priority] == 0 {
				continue
			}
			at := x.waiting[priority].first
			d.pool.remove(&x.waiting[priority], at)
			d.pool.push(&x.sent, at)
			x.windows[priority]--
			d.waiting--
			d.pool.entries[at].sent = true
			return d.send(at), true
		}
		x.ready = false
		d.ready = d.ready[:n-1]
	}
	return Send[T]{}, false
}

func (d *Distributor[T]) send(at int32) Send[T] {
	e := &d.pool.entries[at]
	return Send[T]{ID: d.pool.id(at), Group: Group(e.owner), Task: e.task, High: e.high, Attempt: int(e.attempt)}
}

// Outstanding yields the tasks that were handed over to a group and have no result, the oldest first: what a standby that takes over
// has to be sent again. The Distributor must not be changed meanwhile.
func (d *Distributor[T]) Outstanding(g Group) iter.Seq[Send[T]] {
	return func(yield func(Send[T]) bool) {
		for at := d.groups[g].sent.first; at != none; at = d.pool.entries[at].next {
			if !yield(d.send(at)) {
				return
			}
		}
	}
}

// Refused states that a group did not take an attempt that was handed over. The task waits again, and the group gets nothing of its
// priority until the next Window.
func (d *Distributor[T]) Refused(id ID, attempt int) bool {
	at, ok := d.handed(id, attempt)
	if !ok {
		return false
	}
	e := &d.pool.entries[at]
	x := &d.groups[e.owner]
	d.pool.remove(&x.sent, at)
	e.sent = false
	d.waiting++
	x.windows[kindOf(e.high)] = 0
	d.pool.push(&x.waiting[kindOf(e.high)], at)
	return true
}

// LostTask states that a group has lost an attempt, as with a worker. The task is placed again as a new attempt.
func (d *Distributor[T]) LostTask(id ID, attempt int) bool {
	at, ok := d.handed(id, attempt)
	if !ok {
		return false
	}
	x := &d.groups[d.pool.entries[at].owner]
	d.pool.remove(&x.sent, at)
	x.expect(d.pool.entries[at].high, -1)
	d.again(at)
	d.house()
	return true
}

// handed finds a task whose present attempt is handed over.
func (d *Distributor[T]) handed(id ID, attempt int) (int32, bool) {
	at, ok := d.pool.find(id)
	return at, ok && d.pool.entries[at].sent && int(d.pool.entries[at].attempt) == attempt
}

// Result ends a task with the result of any of its attempts, and returns where it was meant to be. It reports false if the task has ended
// before, so that each counts once.
func (d *Distributor[T]) Result(id ID) (Send[T], bool) {
	s, _, ok := d.Cancel(id)
	return s, ok
}

// Cancel forgets a task. It returns where it was meant to be, and whether it was handed over.
func (d *Distributor[T]) Cancel(id ID) (s Send[T], sent, ok bool) {
	at, ok := d.pool.find(id)
	if !ok {
		return s, false, false
	}
	s = d.send(at)
	e := &d.pool.entries[at]
	switch {
	case e.sent:
		d.pool.remove(&d.groups[e.owner].sent, at)
	case e.owner == none:
		d.pool.remove(&d.homeless[kindOf(e.high)], at)
	default:
		d.pool.remove(&d.groups[e.owner].waiting[kindOf(e.high)], at)
	}
	if !e.sent {
		d.waiting--
	}
	sent = e.sent
	if e.owner != none {
		d.groups[e.owner].expect(e.high, -1)
	}
	d.pool.free(at)
	return s, sent, true
}
