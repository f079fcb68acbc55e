package speculation

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Bounds of a view.
const (
	// TimeMost bounds estimates and times left: about thirty years, so that sums stay far
	// inside a time.Duration.
	TimeMost = 1_000_000_000 * time.Second
	// TasksMost bounds the tasks of a job: a hundred times the largest of the paper's bins.
	TasksMost = 1_000_000
	// SlotsMost bounds free slots and a job's width, like TasksMost.
	SlotsMost = 1_000_000
	// CopiesMost bounds the copies of one task. The paper's model never wants more than
	// two before the last wave.
	CopiesMost = 1000
)

// ErrInput is a view that is invalid.
var ErrInput = errors.New("speculation: bad input")

// ErrTooLarge is a case that the oracle's search does not finish.
var ErrTooLarge = errors.New("speculation: too large for the oracle")

// bad is an ErrInput with its place and rule.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInput}, args...)...)
}

// State is where a task stands.
type State uint8

// States of a task.
const (
	Waiting State = iota
	Running
	Done
)

// Task is what a policy sees of one task.
type Task struct {
	// ID orders tasks: of equals the lowest comes first.
	ID int
	// State is where the task stands. Fields below it do not count once it is done.
	State State
	// Copies is how many copies run, the original included; 0 counts as 1 of a running task.
	Copies int
	// Remaining is t_rem, the time that the fastest running copy still needs; negative:
	// unknown, and New counts, so that a copy seems to save nothing.
	Remaining time.Duration
	// New is t_new, the time that a new copy needs; 0: unknown, and the median of the others
	// counts.
	New time.Duration
	// Rate is the part of the task that its fastest copy completes per second, for LATE
	// alone; 0: unknown.
	Rate float64
	// Speed is how fast the node of the fastest copy runs under its cap now, and Measured
	// how fast it ran while Remaining was measured, each as a part of its uncapped speed, for
	// [Ours] alone; 0: as fast as without a cap, and the same as Speed.
	Speed, Measured float64
	// Restarted is how often it was killed and begun anew, for [Mantri] alone.
	Restarted int
}

// Bound is what a job promises: a deadline or an error.
type Bound struct {
	// ByDeadline: as many tasks as possible have to be done within Left, the time to the
	// deadline. Otherwise the fewest tasks that Error permits, as soon as possible.
	ByDeadline bool
	Left       time.Duration
	// Error is the part of the job's tasks that may be missing, from 0 to 1.
	Error float64
	// Ceil rounds the number of tasks that are needed up, where the paper's examples
	// round it down.
	Ceil bool
}

// Need returns how many of n tasks an error bound asks for: floor(n (1 - error)), or with Ceil
// the next whole number.
func (b Bound) Need(n int) int {
	// The margin keeps 10 * (1 - 0.9) at 1.
	const margin = 1e-9
	exact := float64(n) * (1 - b.Error)
	if b.Ceil {
		return min(n, int(math.Ceil(exact-margin)))
	}
	return max(0, int(math.Floor(exact+margin)))
}

// View is a job when slots are free.
type View struct {
	Bound Bound
	// Slots is how many slots are free for this job.
	Slots int
	// Speeds are the speeds of the free slots' nodes under their caps, from 0 to 1, for
	// [Ours] alone; empty: all 1.
	Speeds []float64
	// Width is how many slots the job has, free ones included; 0: its running copies and the
	// free slots.
	Width int
	// Typical is the median duration of the completed tasks; 0: unknown, and the median of
	// New counts.
	Typical time.Duration
	// Durations are those of completed tasks as parts of what was expected of them, rising,
	// for Mantri alone; empty: a new copy takes New.
	Durations []float64
	// Report is the interval of progress reports and Restarts permits that running tasks are
	// killed and begun anew, both for [Mantri] alone.
	Report   time.Duration
	Restarts bool
	// Slow are the free slots whose nodes are among the slowest quarter (SlowNodeThreshold),
	// which get no copies, for [LATE] alone; empty: none.
	Slow []bool
	// Utilisation is the used part of the cluster's slots and Accuracy that of the estimates,
	// from 0 to 1, for samples of past jobs alone.
	Utilisation, Accuracy float64
	// Greedy: the job has switched from RAS to GS, which is for good.
	Greedy bool
	// Tasks are all tasks of the job, done ones included, by rising ID.
	Tasks []Task
}

// Check reports what is invalid in the view.
func (v *View) Check() error {
	_, err := v.count()
	return err
}

// check is Check without the tasks.
func (v *View) check() error {
	switch b := v.Bound; {
	case len(v.Tasks) == 0:
		return bad("the job has no tasks; give at least one")
	case len(v.Tasks) > TasksMost:
		return bad("%d tasks; the maximum is %d", len(v.Tasks), TasksMost)
	case v.Slots < 0 || v.Slots > SlotsMost:
		return bad("slots is %d; it must be from 0 to %d", v.Slots, SlotsMost)
	case b.ByDeadline && b.Left < 0:
		return bad("the deadline passed %v ago; it must not be in the past", -b.Left)
	case b.ByDeadline && b.Left > TimeMost:
		return bad("the deadline is in %v; the maximum is %v", b.Left, TimeMost)
	case !b.ByDeadline && !(b.Error >= 0 && b.Error <= 1):
		return bad("error is %v; it must be from 0 to 1", b.Error)
	case v.Typical < 0 || v.Typical > TimeMost || v.Width < 0 || v.Width > SlotsMost:
		return bad("typical %v and width %d must be 0 or more, and at most %v and %d", v.Typical, v.Width, TimeMost, SlotsMost)
	case !(v.Utilisation >= 0 && v.Utilisation <= 1) || !(v.Accuracy >= 0 && v.Accuracy <= 1):
		return bad("utilisation %v and accuracy %v must be from 0 to 1", v.Utilisation, v.Accuracy)
	case v.Report < 0 || v.Report > TimeMost:
		return bad("the interval of reports is %v; it must be from 0 to %v", v.Report, TimeMost)
	case len(v.Slow) > 0 && len(v.Slow) != v.Slots:
		return bad("slow has %d entries for %d slots; give one per free slot", len(v.Slow), v.Slots)
	case len(v.Speeds) > 0 && len(v.Speeds) != v.Slots:
		return bad("%d speeds for %d slots; give one per free slot", len(v.Speeds), v.Slots)
	}
	for i, s := range v.Speeds {
		if !(s > 0 && s <= 1) {
			return bad("speeds[%d] is %v; it must be above 0 and at most 1", i, s)
		}
	}
	for i, d := range v.Durations {
		if !(d > 0) || math.IsInf(d, 0) || i > 0 && d < v.Durations[i-1] {
			return bad("durations[%d] is %v; durations must be finite, above 0 and ascending", i, d)
		}
	}
	return nil
}

// counts is what one look at the tasks counts.
type counts struct {
	done, waiting, running int
	// copies run, originals included.
	copies int
	// unknown: a task has no estimate of a new copy's time.
	unknown bool
}

// count checks the view, and counts its tasks in the same look.
func (v *View) count() (counts, error) {
	if err := v.check(); err != nil {
		return counts{}, err
	}
	var c counts
	unknown := 0
	for i := range v.Tasks {
		t := &v.Tasks[i]
		if i > 0 && t.ID <= v.Tasks[i-1].ID {
			return c, bad("tasks[%d]: ID %d after %d; IDs must be unique and ascending", i, t.ID, v.Tasks[i-1].ID)
		}
		if t.State == Done {
			c.done++
			continue
		}
		if t.odd() {
			if err := t.check(i); err != nil {
				return c, err
			}
		}
		if t.State == Running {
			c.running++
			c.copies += max(1, t.Copies)
		}
		if t.New == 0 {
			unknown++
		}
	}
	c.waiting = len(v.Tasks) - c.done - c.running
	if c.unknown = unknown > 0; unknown > 0 && unknown == c.waiting+c.running {
		return c, bad("no task has an estimate for a new copy (t_new); at least one is required")
	}
	return c, nil
}

// odd reports whether check may find something. It is one branch for all numbers: what is below
// 0 or above its bound has the highest bit set, or its difference to the bound has. The bits of
// floats from 0 on are in their order.
func (t *Task) odd() bool {
	one, most := int64(0x3ff<<52), int64(0x7ff<<52-1)
	rate, speed, measured := int64(math.Float64bits(t.Rate)), int64(math.Float64bits(t.Speed)), int64(math.Float64bits(t.Measured))
	all := int64(t.New) | int64(TimeMost-t.New) | int64(TimeMost-t.Remaining) | int64(t.Copies) | int64(CopiesMost-t.Copies) |
		rate | (most - rate) | speed | (one - speed) | measured | (one - measured) | int64(t.Restarted)
	return all < 0 || t.State > Running || t.State == Waiting && t.Copies != 0
}

func (t *Task) check(i int) error {
	switch {
	case t.State > Done:
		return bad("tasks[%d]: state %d is unknown", i, t.State)
	case t.New < 0 || t.New > TimeMost:
		return bad("tasks[%d]: t_new is %v; it must be above 0 and at most %v", i, t.New, TimeMost)
	case t.State == Waiting && t.Copies != 0:
		return bad("tasks[%d]: %d copies of a waiting task", i, t.Copies)
	case t.Copies < 0 || t.Copies > CopiesMost:
		return bad("tasks[%d]: %d copies; must be from 0 to %d", i, t.Copies, CopiesMost)
	case t.State == Running && t.Remaining > TimeMost:
		return bad("tasks[%d]: t_rem is %v; the maximum is %v", i, t.Remaining, TimeMost)
	case !(t.Rate >= 0 && t.Rate <= math.MaxFloat64):
		return bad("tasks[%d]: rate is %v; it must be finite and 0 or more", i, t.Rate)
	case !(t.Speed >= 0 && t.Speed <= 1) || !(t.Measured >= 0 && t.Measured <= 1):
		return bad("tasks[%d]: speeds %v and %v must be from 0 to 1", i, t.Speed, t.Measured)
	case t.Restarted < 0:
		return bad("tasks[%d]: restarted is %d; it must be 0 or more", i, t.Restarted)
	}
	return nil
}

// news returns the known estimates of new copies of unfinished tasks.
func (v *View) news() []int64 {
	all := make([]int64, 0, len(v.Tasks))
	for i := range v.Tasks {
		if t := &v.Tasks[i]; t.State != Done && t.New > 0 {
			all = append(all, int64(t.New))
		}
	}
	return all
}

// median returns the lower median, in an order of its own; 0 of nothing.
func median(d []int64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	value, _ := nth(d, (len(d)-1)/2)
	return time.Duration(value)
}

// Settings of nth.
const (
	nthBuckets = 1 << 10
	// nthFew values are sorted.
	nthFew = 24
)

// nth returns the k-th smallest of d from 0, and how many values like it are at k or before; d is
// left in another order. Values must be 0 or more. They are counted by the highest bits in
// which they differ as floats, which suits long tails, until few are left: it takes no
// longer for values that were chosen to.
func nth(d []int64, k int) (value int64, alike int) {
	for len(d) > nthFew {
		lowest, highest := d[0], d[0]
		for _, x := range d {
			lowest, highest = min(lowest, x), max(highest, x)
		}
		low := floatBits(lowest)
		width := floatBits(highest) - low
		if width == 0 {
			break
		}
		shift := max(0, bits.Len64(width)-bits.Len(nthBuckets-1)) & 63
		var n [nthBuckets]int32
		for _, x := range d {
			n[(floatBits(x)-low)>>shift%nthBuckets]++
		}
		at := uint64(0)
		for ; k >= int(n[at]); at++ {
			k -= int(n[at])
		}
		in := 0
		for _, x := range d {
			d[in] = x
			if (floatBits(x)-low)>>shift == at {
				in++
			}
		}
		d = d[:in]
	}
	slices.Sort(d)
	first, _ := slices.BinarySearch(d, d[k])
	return d[k], k - first + 1
}

// floatBits returns in the order of the values, which are 0 or more.
func floatBits(x int64) uint64 { return math.Float64bits(float64(x)) }
