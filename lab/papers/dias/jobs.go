package dias

import (
	"math"
	"math/rand/v2"
	"slices"

	"headroom/jobs/deflation"
	"headroom/units"
)

// The cluster of the paper (section 5.1): ten workers of two cores.
const slots = 20

// work is a kind of job: how long the cluster takes for it at base frequency.
type work interface {
	// job is one job at a drop ratio; the same draws give the same data.
	job(theta float64, rng *rand.Rand) course
}

// course is how one job goes: its parts in seconds, and how many of its map tasks run.
type course struct {
	setup, maps, shuffle, reduce float64
	tasks, kept, reduces         int
}

func (c course) seconds() float64 { return c.setup + c.maps + c.shuffle + c.reduce }

// finished is the job as package deflation learns from it.
func (c course) finished(theta float64) deflation.Finished {
	return deflation.Finished{
		Theta: theta, Tasks: c.tasks, Kept: c.kept, Slots: slots, Reduces: c.reduces,
		Setup: c.setup, Maps: c.maps, Shuffle: c.shuffle, Reduce: c.reduce,
	}
}

// spread is the coefficient of variation of jobs' sizes around their class's, and of tasks' times
// around their job's. The paper gives neither.
const spread = 0.1

// text is a job that counts words (section 5.1): setup, a map stage of 50 partitions in
// waves on the slots, a shuffle and a reduce stage.
type text struct {
	// setup and setup90 are the overhead with all tasks and with a tenth of them, s;
	// between, it is linear in the drop ratio (section 4.3).
	setup, setup90 float64
	maps           int
	task           float64 // mean time of a map task, s
	shuffle        float64
	reduces        int
	reduce         float64
	// fluid lets map tasks divide the slots without rest, so that no wave shows: of a mutant.
	fluid bool
}

// partitions of a text job's input (section 5.1).
const partitions = 50

// words is a text job that takes mean seconds with all tasks: a third of it is
// setup, half are three waves of maps, the rest shuffle and reduce. The parts are ours, the paper
// gives totals only.
func words(mean float64) text {
	s := mean / 125
	return text{setup: 40 * s, setup90: 8 * s, maps: partitions, task: 21.4 * s, shuffle: 4 * s, reduces: 10, reduce: 12.8 * s}
}

func (w text) overhead(theta float64) float64 {
	return w.setup + (w.setup90-w.setup)*theta/0.9
}

func (w text) job(theta float64, rng *rand.Rand) course {
	size := vary(rng)
	reduce := makespan(w.reduces, rng) // drawn first: the same for every drop ratio
	left := kept(w.maps, theta)
	maps := w.stage(left, rng)
	return course{size * w.overhead(theta), size * w.task * maps, size * w.shuffle, size * w.reduce * reduce, w.maps, left, w.reduces}
}

// stage is how long the map stage takes, in tasks.
func (w text) stage(tasks int, rng *rand.Rand) float64 {
	if w.fluid {
		return float64(tasks) / slots * vary(rng)
	}
	return makespan(tasks, rng)
}

// kept is how many of n tasks run at a drop ratio (section 3.3); the guard keeps
// 50 (1 - 0.1) at 45.
func kept(n int, theta float64) int {
	return max(1, units.Ratio(1-theta).Kept(n))
}

// makespan is how long n tasks of mean time 1 take on the slots, each on the slot that
// is free first.
func makespan(n int, rng *rand.Rand) float64 {
	var free [slots]float64
	for i := range n {
		at := i
		if i >= slots {
			at = first(&free)
		}
		free[at] += vary(rng)
	}
	return slices.Max(free[:])
}

func first(free *[slots]float64) int {
	at := 0
	for i, f := range free {
		if f < free[at] {
			at = i
		}
	}
	return at
}

// vary is a lognormal factor of mean 1 and coefficient of variation spread.
func vary(rng *rand.Rand) float64 {
	s2 := math.Log1p(spread * spread)
	return math.Exp(math.Sqrt(s2)*rng.NormFloat64() - s2/2)
}

// graph is the triangle count (section 5.1): six shuffle-map stages, each of which drops
// by the ratio what the one before has left, and the rest: building the graph, the result.
type graph struct {
	rest   float64 // s, whatever is dropped
	stage  float64 // s, one shuffle-map stage with all tasks
	stages int
	tasks  int // of a stage; many more than slots, so waves do not show
}

// triangles is the graph job of Table 2: 148.5 s in all, 33 s of them in the stages that
// drop. That division is fitted to Table 2's two times of the low class, 139.0 s at 10 %
// and 131.1 s at 20 %; it gives 138.7 and 131.7 s.
func triangles() graph {
	return graph{rest: 115.5, stage: 5.5, stages: 6, tasks: 200}
}

func (g graph) job(theta float64, rng *rand.Rand) course {
	part := float64(kept(g.tasks, theta)) / float64(g.tasks)
	c := course{tasks: g.stages * g.tasks}
	size, left := vary(rng), 1.0
	c.setup = size * g.rest
	for range g.stages {
		left *= part
		c.maps += size * g.stage * left
		c.kept += int(math.Round(left * float64(g.tasks)))
	}
	return c
}
