package dispatch

import (
	"errors"
	"slices"
	"time"

	"headroom/jobs/speculation"
)

const (
	// slowest is the least speed that a node is taken to have, however low its cap.
	slowest = 0.01
	// smallest is the least size of an input, as a part of the mean: a task takes time to start.
	smallest = 0.01
	// tailLeast is how many longer tasks must have ended to say what is left of a late one.
	tailLeast = 5
	// tailLeft is what half of the late tasks still take at most, as a part of what they took so
	// far: 2^(1/beta) - 1 with the tail's exponent beta = 1.259 from GRASS's traces.
	tailLeft = 0.7342130853406479
)

// estimates is what a job has learned about its tasks, and how its copies are decided on.
type estimates struct {
	durations speculation.Durations
	// base is the usual duration of a task of the mean size on a node without a cap, 0 while
	// unknown; ratios are the durations of ended tasks as parts of it, rising.
	base   time.Duration
	ratios []float64
	// mean is the mean size of the inputs; 0 before it was asked for.
	mean float64
	// policy decides, once the job has begun; sample says that it runs one policy all through
	// to teach when to switch. greedy: it has switched.
	policy         speculation.Policy
	sample, greedy bool
	// utilisation is the used part of the slots when it last decided.
	utilisation float64
	// said is the last decision in words.
	said string
	// ids are the map tasks by the place at which they start; nil where those are their indexes.
	ids []int
	// view, speeds and barred are room for the tasks and slots of the next decision, which keeps none of them.
	view   []speculation.Task
	speeds []float64
	barred []bool
}

// active reports whether a policy may decide on copies.
func (g *estimates) active() bool { return g.policy != "" && g.policy != speculation.None }

// again returns the estimates for the next run of a killed job: task durations are kept.
func (g *estimates) again() estimates {
	left := *g
	left.sample, left.greedy, left.said = false, false, ""
	return left
}

// size returns a task's input as a part of the mean.
func (j *job) size(index int) float64 {
	if len(j.Sizes) == 0 {
		return 1
	}
	if j.est.mean == 0 {
		for _, s := range j.Sizes {
			j.est.mean += float64(max(0, s)) / float64(len(j.Sizes))
		}
		j.est.mean = max(j.est.mean, 1)
	}
	return max(smallest, float64(j.Sizes[index])/j.est.mean)
}

// speed returns what a node's cap leaves of its full speed.
func (c *Core) speed(node string) float64 {
	cap, known := c.caps[node]
	if !known || cap.Max <= 0 {
		return 1
	}
	return min(1, max(slowest, float64(cap.Cap)/float64(cap.Max)))
}

// expects returns how long a task is expected to take at a speed, 0 while unknown.
func (j *job) expects(index int, speed float64) time.Duration {
	return time.Duration(min(float64(j.est.base)*j.size(index)/speed, float64(speculation.TimeMost)))
}

// learn takes over how long a task took. Of attempts that an earlier process began that is
// not known. A cap that changed meanwhile counts by the mean of the speeds.
func (c *Core) learn(now time.Time, j *job, index int, a attempt) {
	took := a.ran(now)
	if !a.seen || took <= 0 || took > speculation.TimeMost {
		return
	}
	if a.expected > 0 {
		c.accuracy.Add(a.expected, took)
	}
	g := &j.est
	full := max(1, time.Duration(float64(took)*(a.speed+c.speed(a.node))/2))
	if g.durations.Add(full, j.size(index)) == nil {
		g.base, _ = g.durations.New(1)
		g.ratios = g.durations.Ratios()
	}
}

// left returns how long an attempt still takes at the speed that its node had when it began; below
// 0 while unknown. A task that is late is taken to be one of those that took longer.
func (j *job) left(now time.Time, index int, a attempt) time.Duration {
	usual := j.expects(index, a.speed)
	if usual <= 0 {
		return -1
	}
	ran := a.ran(now)
	at, _ := slices.BinarySearch(j.est.ratios, float64(ran)/float64(usual))
	if longer := j.est.ratios[at:]; ran < usual || len(longer) >= tailLeast {
		whole := 1.0
		if len(longer) > 0 {
			whole = max(whole, longer[(len(longer)-1)/2])
		}
		return max(0, min(speculation.TimeMost, time.Duration(float64(usual)*whole)-ran))
	}
	return min(speculation.TimeMost, time.Duration(float64(ran)*tailLeft))
}

// Learn takes over samples that an earlier process has made. It returns an error that wraps
// speculation.ErrInput for those that are invalid, and takes the others.
func (c *Core) Learn(samples []speculation.Sample) (failed error) {
	for _, x := range samples {
		failed = errors.Join(failed, c.past.Add(x))
	}
	return failed
}

// addSample makes a sample of a job that has ended well and ran by one policy all through; nil
// for other jobs.
func (c *Core) addSample(now time.Time, j *job, state State) *speculation.Sample {
	if !j.est.sample || state != Done || !j.watched || j.Engine != "" {
		return nil
	}
	accuracy, _ := c.accuracy.Value()
	x := speculation.Sample{
		Greedy: j.est.policy == speculation.GS, ByDeadline: j.untilDeadline(), Tasks: j.Tasks,
		Size: float64(j.floor()), Result: j.runtime(now).Seconds(), Utilisation: j.est.utilisation, Accuracy: accuracy,
	}
	if x.ByDeadline {
		x.Size, x.Result = j.Deadline.Sub(j.started).Seconds(), float64(j.done)
	}
	if c.past.Add(x) != nil {
		return nil // it began after its deadline: nothing is to be learned
	}
	return &x
}

// utilisation returns the used part of the workers' usable slots.
func (c *Core) utilisation() float64 {
	used := 0
	for _, w := range c.workers {
		if w.connected {
			used += len(w.running)
		}
	}
	return min(1, float64(used)/float64(max(1, c.Capacity())))
}
