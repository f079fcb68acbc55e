package admission

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"time"
)

const (
	// jobsMost bounds the waiting and running jobs: ten times the number for which the decision time is guaranteed.
	jobsMost = 100_000
	// CapacityMost bounds the slots, so that products with times stay exact.
	CapacityMost = 10_000_000
	// TasksMost is the same: a job with more could not use them.
	TasksMost = 10_000_000
	// TimeMost bounds deadlines and work: about 30 years, of which ten million tasks still have a finite sum.
	TimeMost = 1e9 * time.Second
	// slack is the tolerance for rounding of times, s.
	slack = 1e-6
	// chance is the minimum probability of meeting the deadline on slots that may become free, for Adaptive to start a
	// job without a promise: chosen on the tuning seeds of the test of its goal (package lab/admit).
	chance = 0.7
	// spare is the fraction (one in spare) of the capacity that no job gets by a last chance, so that small jobs find
	// slots.
	spare = 20
	// sweepMost is how many jobs of the queue get a new estimate at each event: their needs may have fallen.
	sweepMost = 4
	// searchMost bounds the search for a deadline: it halves the logarithm of 30 years over a nanosecond down to parts in 1e9.
	searchMost = 40
)

// job is a job that waits or runs. Times are in seconds since the controller's first event.
type job struct {
	Job

	seq            int
	submitted, due float64
	limit          float64 // the deadline from the submission
	need           int     // the fewest slots when it was last looked at
	last           float64 // the last moment at which it may begin
	at             [2]int  // places in the queue's heaps
	estimate       estimate
	byTime         bool // its estimate is by the times of tasks (Adaptive)
	running        bool
	slots          float64 // what it holds
	done, since    float64 // slot-seconds it has had, counted up to since
	promised       int     // what it was admitted with
	told           int     // the place in Controller.out of its admission, in the event that admitted it
}

// Controller decides about admission. Its zero value is not ready; use New.
type Controller struct {
	policy   Policy
	byTasks  bool // fair policies share in proportion to tasks
	capacity int
	others   int // slots that are in other hands for now

	began   bool
	epoch   time.Time
	now     float64
	nextSeq int
	jobs    map[string]*job
	queue   queue
	running []*job // in the order in which they began; under fair policies by tasks
	held    float64
	// soonest is at most the earliest deadline of a running job, paused how many of them hold no slots (Adaptive).
	soonest  float64
	paused   int
	shrunk   bool    // running jobs hold less than they began with (policies that know nothing of changes)
	freed    bool    // a running job has left
	promised int     // the sum over the running jobs
	fraction float64 // the paper's CPUFrac; -1 at first
	ended    int
	learned  learned
	out      []Decision
	refused  []refusal // by the event
}

// New returns a controller without jobs.
func New(policy Policy, capacity int) (*Controller, error) {
	if int(policy) >= len(policyNames) {
		return nil, fmt.Errorf("%w: %d", ErrPolicy, policy)
	}
	if err := checkCapacity(capacity); err != nil {
		return nil, err
	}
	return &Controller{
		policy: policy, capacity: capacity, jobs: map[string]*job{}, queue: newQueue(), fraction: -1, soonest: math.Inf(1),
		learned: learned{groups: map[group]*history{}},
	}, nil
}

func checkCapacity(slots int) error {
	if slots < 0 || slots > CapacityMost {
		return fmt.Errorf("%w: %d slots; it must be from 0 to %d", ErrCapacity, slots, CapacityMost)
	}
	return nil
}

// Fraction returns what was learned about all jobs together: the fraction of its greatest work, deadline x tasks,
// that a job is expected to need. It is -1 while nothing was learned.
func (c *Controller) Fraction() float64 { return c.fraction }

// Submit decides about a job. The decisions are about this job, and about others that are due by the time.
func (c *Controller) Submit(now time.Time, in Job) ([]Decision, error) {
	if err := c.check(&in); err != nil {
		return nil, err
	}
	c.advance(now)
	j := c.enter(in)
	if c.policy.fair() {
		c.start(j, 0)
		return c.settle(), nil
	}
	c.look(j)
	if !c.feasible(j) {
		c.lastChance(j)
		return c.settle(), nil
	}
	c.queue.push(j)
	out := c.settle()
	if !j.running && c.jobs[j.ID] == j {
		d := c.decision(j, Queued)
		d.Until = c.time(j.last)
		out = append(out, d)
	}
	return out, nil
}

// enter adds a job that neither waits nor runs yet.
func (c *Controller) enter(in Job) *job {
	j := &job{Job: in, seq: c.nextSeq, submitted: c.now - in.Waited.Seconds(), limit: in.Deadline.Seconds()}
	j.due = j.submitted + j.limit
	c.nextSeq++
	c.jobs[j.ID] = j
	return j
}

func (c *Controller) check(in *Job) error {
	switch {
	case in.ID == "":
		return fmt.Errorf("%w: it has no ID", ErrJob)
	case c.jobs[in.ID] != nil:
		return fmt.Errorf("%w: %q", ErrKnown, in.ID)
	case len(c.jobs) >= jobsMost:
		return fmt.Errorf("%w: %d jobs are queued or running", ErrFull, len(c.jobs))
	case in.Tasks < 1 || in.Tasks > TasksMost:
		return fmt.Errorf("%w: %q has %d tasks; it must be from 1 to %d", ErrJob, in.ID, in.Tasks, TasksMost)
	case in.Deadline <= 0 || in.Deadline > TimeMost:
		return fmt.Errorf("%w: the deadline of %q is %s from now; it must be above 0 and at most %s", ErrJob, in.ID, in.Deadline, TimeMost)
	case in.Waited < 0 || in.Waited > TimeMost:
		return fmt.Errorf("%w: %q was submitted %s ago; it must be from 0 to %s", ErrJob, in.ID, in.Waited, TimeMost)
	case in.Work < 0 || in.Work > TimeMost:
		return fmt.Errorf("%w: the work of %q is %s; it must be from 0 to %s", ErrJob, in.ID, in.Work, TimeMost)
	case c.policy == Oracle && in.Work == 0:
		return fmt.Errorf("%w: policy oracle needs the work of %q", ErrJob, in.ID)
	}
	return nil
}

// Finished reports that a running job has ended by itself. work is the time that its tasks took together; 0 if unknown:
// then nothing is learned from it. met reports whether the deadline was met.
func (c *Controller) Finished(now time.Time, id string, work time.Duration) (out []Decision, met bool, err error) {
	j := c.jobs[id]
	if j == nil || !j.running {
		return nil, false, fmt.Errorf("%w: %q is not running", ErrUnknown, id)
	}
	if work < 0 || work > TimeMost {
		return nil, false, fmt.Errorf("%w: the work of %q was %s; it must be from 0 to %s", ErrJob, id, work, TimeMost)
	}
	c.advance(now)
	c.leave(j)
	if work > 0 && c.learn(j, work.Seconds()) {
		c.lookAtAll()
	}
	return c.settle(), c.now <= j.due+slack, nil
}

// Withdraw reports that a job was withdrawn or has failed. Nothing is learned from it.
func (c *Controller) Withdraw(now time.Time, id string) ([]Decision, error) {
	j := c.jobs[id]
	if j == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	c.advance(now)
	c.leave(j)
	return c.settle(), nil
}

// SetCapacity reports a new number of slots, because the power budget or the nodes have changed.
func (c *Controller) SetCapacity(now time.Time, slots int) ([]Decision, error) {
	if err := checkCapacity(slots); err != nil {
		return nil, err
	}
	c.advance(now)
	if slots != c.capacity {
		c.capacity = slots
		c.lookAtAll()
		c.recheck()
	}
	return c.settle(), nil
}

// Tick handles what is due by the clock alone.
func (c *Controller) Tick(now time.Time) []Decision {
	c.advance(now)
	return c.settle()
}

// NextTick returns when Tick is due if nothing else happens before; false while there is nothing to wait for.
func (c *Controller) NextTick() (time.Time, bool) {
	next := math.Inf(1)
	if len(c.queue.ends.jobs) > 0 {
		next = c.queue.ends.jobs[0].last
	}
	if c.policy == Reactive || c.policy == Adaptive {
		next = min(next, c.soonest)
	}
	if math.IsInf(next, 1) {
		return time.Time{}, false
	}
	return c.time(max(next, c.now) + 2*slack), true
}

// advance moves the time forward; it never goes back.
func (c *Controller) advance(now time.Time) {
	c.out, c.refused = nil, nil
	if !c.began {
		c.began, c.epoch = true, now
	}
	c.now = max(c.now, now.Sub(c.epoch).Seconds())
}

func (c *Controller) time(s float64) time.Time {
	return c.epoch.Add(time.Duration(min(s, 2*TimeMost.Seconds()) * 1e9))
}

// look updates the estimate of a waiting job.
func (c *Controller) look(j *job) {
	j.estimate = c.estimate(j)
	j.need, j.last = 1, j.due
	most := j.most(c.capacity)
	if j.estimate.known {
		j.need = slotsFor(j.estimate.work, j.due-c.now)
		if most > 0 {
			j.last -= j.estimate.work / float64(most)
		}
	}
	if len(j.Earlier) == 0 || most == 0 || c.policy == Oracle {
		return
	}
	j.last = min(j.last, j.due-j.least(most))
	// The time falls with the slots, so the first number that is enough is found by halves.
	j.need += sort.Search(max(0, most-j.need), func(more int) bool { return c.now+j.least(j.need+more) <= j.due+slack })
}

// most returns the maximum of slots that the job can use.
func (j *job) most(capacity int) int { return min(j.Tasks, capacity) }

// slotsFor returns the fewest slots that do this work in this time.
func slotsFor(work, left float64) int {
	if left <= 0 {
		return math.MaxInt32
	}
	return max(1, int(min(math.MaxInt32, float64(ceil(min(work/(left+slack/2), 1e15))))))
}

// feasible reports whether the job can still meet its deadline, by its estimate. Without slots none can start, but
// capacity may return before the deadline.
func (c *Controller) feasible(j *job) bool {
	if c.capacity == 0 {
		return j.due-c.now > slack
	}
	return c.now <= j.last+slack && j.due-c.now > slack
}

func (c *Controller) lookAtAll() {
	for _, j := range c.queue.order.jobs {
		c.look(j)
	}
	c.queue.rebuilt()
}

// settle handles the consequences of the last event, and returns all decisions since.
func (c *Controller) settle() []Decision {
	if c.policy.fair() {
		c.share()
		return c.out
	}
	if c.policy == Adaptive {
		c.stopLost()
		c.sweep()
		if c.freed {
			c.freed = false
			c.release()
		}
	}
	if c.shrunk && c.freed {
		c.freed = false
		c.goOnAll()
	}
	for len(c.queue.ends.jobs) > 0 {
		j := c.queue.ends.jobs[0]
		if c.feasible(j) {
			break
		}
		c.look(j)
		if c.feasible(j) {
			c.queue.moved(j)
			continue
		}
		c.queue.remove(j)
		c.lastChance(j)
	}
	c.admit()
	c.name()
	if c.policy == Adaptive {
		c.lend()
	}
	return c.out
}

// free returns the number of whole free slots.
func (c *Controller) free() int { return max(0, c.capacity-c.others-int(c.held)) }

// room returns the number of unpromised slots: what running jobs hold beyond their promises is lent.
func (c *Controller) room() int {
	if c.policy == Adaptive {
		return max(0, c.capacity-c.others-c.promised)
	}
	return c.free()
}

// admit starts jobs from the queue while they fit.
func (c *Controller) admit() {
	for len(c.queue.order.jobs) > 0 && c.room() > 0 {
		j := c.queue.order.jobs[0]
		before := j.need
		c.look(j)
		if !c.feasible(j) {
			c.queue.remove(j)
			c.lastChance(j)
			continue
		}
		c.queue.moved(j)
		if j.need > before {
			continue
		}
		if j.need > c.room() {
			return
		}
		c.queue.remove(j)
		c.start(j, c.grant(j))
	}
}

// lastChance ends a job whose deadline cannot be promised, and that is in no queue. Adaptive starts it on unpromised
// slots if it ends in time with a probability of chance, including slots that are likely to become free.
func (c *Controller) lastChance(j *job) {
	slots, e, ok := c.chanceOf(j, c.likely)
	if !ok {
		c.refuse(j)
		return
	}
	j.estimate.work, j.estimate.confidence = e.work, e.confidence
	c.start(j, slots)
}

// chanceOf returns the slots that a job without a promise would start on, and what is expected of it then.
func (c *Controller) chanceOf(j *job, likely func() int) (slots int, e estimate, ok bool) {
	left := j.due - c.now
	slots = min(j.Tasks, c.room()-c.capacity/spare)
	if c.policy != Adaptive || slots <= 0 || left <= slack || j.least(slots) > left+slack {
		return 0, e, false
	}
	w := c.learned.of(j)
	if w == nil {
		return 0, e, false
	}
	expected := min(float64(j.Tasks), float64(slots+likely()))
	p := w.fractions.within(expected * left / (j.limit * float64(j.Tasks)))
	return slots, estimate{work: expected * left, confidence: p}, p >= chance
}

// likely returns how many slots are promised beyond what running jobs are likely to need: by the median if they have
// had less. It is negative when jobs that run on a chance need more than they are promised.
func (c *Controller) likely() int {
	sum := 0
	for _, j := range c.running {
		c.count(j)
		need := c.needOf(j)
		if w := c.learned.of(j); w != nil {
			if left := w.fractions.median()*j.limit*float64(j.Tasks) - j.done; left > 0 {
				need = slotsFor(left, j.due-c.now)
			}
		}
		sum += j.promised - min(need, j.Tasks)
	}
	return sum
}

// grant returns with how many slots a job that fits starts.
func (c *Controller) grant(j *job) int {
	if !j.estimate.known {
		return min(j.Tasks, c.room())
	}
	return j.need
}

// sweep updates some jobs of the queue whose needs may have fallen.
func (c *Controller) sweep() {
	for range min(sweepMost, len(c.queue.order.jobs)) {
		c.queue.sweep = (c.queue.sweep + 1) % len(c.queue.order.jobs)
		j := c.queue.order.jobs[c.queue.sweep]
		c.look(j)
		c.queue.moved(j)
	}
}

// start starts a job on slots.
func (c *Controller) start(j *job, slots int) {
	if c.policy == Adaptive {
		c.takeBack(slots)
	}
	d := c.decision(j, Admitted)
	j.running, j.since, j.promised = true, c.now, slots
	at := len(c.running)
	if c.policy.fair() {
		at, _ = slices.BinarySearchFunc(c.running, j, func(a, b *job) int {
			if a.Tasks != b.Tasks {
				return a.Tasks - b.Tasks
			}
			return a.seq - b.seq
		})
	}
	c.running = slices.Insert(c.running, at, j)
	c.soonest = min(c.soonest, j.due)
	j.slots = float64(slots)
	c.promised += slots
	c.held += j.slots
	d.Slots = j.slots
	if d.Work > 0 {
		d.Finish = c.time(c.now + j.estimate.work/j.slots)
	}
	j.told = len(c.out)
	c.out = append(c.out, d)
}

// leave removes a job from wherever it is.
func (c *Controller) leave(j *job) {
	delete(c.jobs, j.ID)
	if !j.running {
		c.queue.remove(j)
		return
	}
	c.freed = true
	c.count(j)
	c.held -= j.slots
	c.promised -= j.promised
	i := slices.Index(c.running, j)
	c.running = slices.Delete(c.running, i, i+1)
}

// count adds up what a running job has had.
func (c *Controller) count(j *job) {
	j.done += j.slots * (c.now - j.since)
	j.since = c.now
}

// refuse ends a job that is in no queue.
func (c *Controller) refuse(j *job) {
	delete(c.jobs, j.ID)
	c.refused = append(c.refused, refusal{j, len(c.out)})
	c.out = append(c.out, c.decision(j, Refused))
}

// refusal is a job that the event has refused, and the place of its decision in Controller.out.
type refusal struct {
	*job

	at int
}

// name sets, for each job that the event has refused, the deadline that would be feasible: after everything else is
// decided, so that it is valid for an immediate new request.
func (c *Controller) name() {
	if len(c.refused) == 0 {
		return
	}
	likely := sync.OnceValue(c.likely)
	for _, r := range c.refused {
		c.out[r.at].Nearest = c.nearest(r.job, likely)
	}
	c.refused = nil
}

// nearest returns the shortest deadline, not below its own, with which j would not be refused; 0 for none, or if
// nothing is known. The expected work of a job may grow with its deadline, so the deadline is searched with the
// deciding function, which never refuses a longer deadline where it accepts a shorter one.
func (c *Controller) nearest(j *job, likely func() int) time.Duration {
	low, high := j.limit, TimeMost.Seconds()
	if !j.estimate.known && len(j.Earlier) == 0 || c.capacity == 0 || !c.takes(j, high, likely) {
		return 0
	}
	if c.takes(j, low, likely) {
		return j.Deadline
	}
	for step := 0; step < searchMost && high > low*(1+1e-9); step++ {
		middle := math.Sqrt(low * high)
		if c.takes(j, middle, likely) {
			high = middle
		} else {
			low = middle
		}
	}
	return min(TimeMost, time.Duration(math.Ceil((high+slack)*1e9)))
}

// takes reports whether j would not be refused now with another deadline.
func (c *Controller) takes(j *job, limit float64, likely func() int) bool {
	o := job{Job: j.Job, submitted: j.submitted, limit: limit, due: j.submitted + limit}
	c.look(&o)
	if c.feasible(&o) {
		return true
	}
	_, _, ok := c.chanceOf(&o, likely)
	return ok
}

// decision returns a verdict with the numbers as they are.
func (c *Controller) decision(j *job, v Verdict) Decision {
	return Decision{
		ID: j.ID, Verdict: v, Slots: j.slots, Need: j.need, Free: c.free(), Limit: j.most(c.capacity),
		Work: time.Duration(j.estimate.work * 1e9), Confidence: j.estimate.confidence, Samples: j.estimate.samples, Due: c.time(j.due),
		Least: leastOf(j.Earlier, j.most(c.capacity)), Runs: len(j.Earlier),
	}
}
