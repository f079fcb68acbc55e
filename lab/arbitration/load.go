package arbitration

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"headroom/jobs/containers"
	"headroom/units"
)

// Class is whose job it is.
type Class string

// The two classes, the higher first.
const (
	Urgent   Class = "urgent"
	Tolerant Class = "tolerant"
)

func (c Class) rank() int {
	if c == Urgent {
		return 0
	}
	return 1
}

// Job is one job of a load.
type Job struct {
	Class    Class
	Arrival  time.Duration
	Tasks    int
	Task     time.Duration // the mean time of a task at full speed
	Deadline time.Duration // since its arrival; 0 for none
	Floor    float64       // the least part of its tasks that it may end on
	// Name is what its user calls it, and Scales the type of scaling of the machines' true curve; both are empty for jobs that
	// are called as their class, and whose tasks do not slow each other down.
	Name   string
	Scales scaleType
}

// Step is a budget from a moment on.
type Step struct {
	At     time.Duration
	Budget units.Power
}

// Load is a cluster's load.
type Load struct {
	Name       string
	Containers int
	For        time.Duration // during which jobs arrive
	Budget     []Step
	Jobs       func(seed uint64) []Job // in order of arrival
	Fails      time.Duration           // the mean time between two failures of a machine, 0 for none
	Stragglers float64                 // the part of tasks that take three times as long
}

// job is one job of a run.
type job struct {
	Job

	id            string
	times         []float64 // of its tasks at full speed, s
	next          int       // the first task that never began
	again         []int     // tasks whose machine has failed
	done, dropped int
	running       []*attempt
	first, end    time.Duration
	began         bool
	share         int
	stopped       bool
	uncapped      time.Duration
	theta         float64
	curve         *containers.Curve // what is known of how it scales
	limit         int               // how many containers it may hold for that: 0 for no bound, below 0 for none at all
	meter         meter
}

func (j *job) open() bool { return j.pending() > 0 && (j.limit == 0 || len(j.running) < j.limit) }

func (j *job) pending() int { return max(0, len(j.times)-j.next-j.dropped) + len(j.again) }

func (j *job) take() int {
	if n := len(j.again); n > 0 {
		t := j.again[n-1]
		j.again = j.again[:n-1]
		return t
	}
	j.next++
	return j.next - 1
}

func (j *job) forget(a *attempt) {
	last := len(j.running) - 1
	j.running[slices.Index(j.running, a)] = j.running[last]
	j.running = j.running[:last]
}

// work returns how much of its map work is done, in tasks.
func (j *job) work() float64 {
	sum := float64(j.done)
	for _, a := range j.running {
		if all := a.until - a.from; all > 0 {
			sum += min(1, max(0, (a.node.done-a.from)/all))
		}
	}
	return sum
}

// drawn returns the source of one stream of numbers of a seed.
func drawn(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// Streams of numbers of a seed.
const streamUrgent, streamTolerant, streamTasks, streamFailures = 1, 2, 3, 4

// draw makes the jobs of a seed.
func (l *Load) draw(seed uint64) (jobs []*job) {
	r := drawn(seed, streamTasks)
	for i, x := range l.Jobs(seed) {
		j := &job{Job: x, id: fmt.Sprintf("%s-%04d", x.Class, i)}
		for range x.Tasks {
			t := x.Task.Seconds() * varied(r, []float64{0.2, 0.3}[x.Class.rank()])
			if l.Stragglers > 0 && r.Float64() < l.Stragglers {
				t *= 3
			}
			j.times = append(j.times, t)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// varied draws from a log-normal law of mean 1 with this coefficient of variation.
func varied(r *rand.Rand, spread float64) float64 {
	sigma := math.Sqrt(math.Log(1 + spread*spread))
	return math.Exp(sigma*r.NormFloat64() - sigma*sigma/2)
}

// arrivals draws arrivals with exponential gaps.
func arrivals(r *rand.Rand, every, span time.Duration, f func(at time.Duration)) {
	for at := r.ExpFloat64() * every.Seconds(); at < span.Seconds(); at += r.ExpFloat64() * every.Seconds() {
		f(seconds(at))
	}
}

func sorted(jobs []Job) []Job {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return jobs
}
