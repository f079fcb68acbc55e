package dias

import (
	"math"
	"math/rand/v2"
	"slices"

	"headroom/units"
)

const (
	slots      = 20  // of the paper's cluster: ten workers of two cores (section 5.1)
	partitions = 50  // of a text job's input (section 5.1)
	spread     = 0.1 // variation of jobs' sizes around their class's, and of tasks' times around their job's; the paper gives neither
)

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

// text is a job that counts words (section 5.1): setup, a map stage of 50 partitions in waves on the slots, a shuffle and ten
// reduces. Its parts are in seconds; those of tasks are means.
type text struct {
	// setup and setup90 are the overhead with all tasks and with a tenth of them;
	// between, it is linear in the drop ratio (section 4.3).
	setup, setup90, task, shuffle, reduce float64
	// fluid lets map tasks divide the slots without rest, so that no wave shows: of a mutant.
	fluid bool
}

// words is a text job that takes mean seconds with all tasks: a third of it is setup, half are three waves of maps, the rest
// shuffle and reduce. The parts are ours, the paper gives totals only.
func words(mean float64) text {
	s := mean / 125
	return text{setup: 40 * s, setup90: 8 * s, task: 21.4 * s, shuffle: 4 * s, reduce: 12.8 * s}
}

func (w text) job(theta float64, rng *rand.Rand) course {
	const reduces = 10
	size := vary(rng)
	reduce := makespan(reduces, rng) // drawn first: the same for every drop ratio
	left := kept(partitions, theta)
	var maps float64 // in tasks
	if w.fluid {
		maps = float64(left) / slots * vary(rng)
	} else {
		maps = makespan(left, rng)
	}
	setup := w.setup + (w.setup90-w.setup)*theta/0.9
	return course{size * setup, size * w.task * maps, size * w.shuffle, size * w.reduce * reduce, partitions, left, reduces}
}

// kept is how many of n tasks run at a drop ratio (section 3.3); the guard keeps 50 (1 - 0.1) at 45.
func kept(n int, theta float64) int { return max(1, units.Ratio(1-theta).Kept(n)) }

// makespan is how long n tasks of mean time 1 take on the slots, each on the slot that is free first.
func makespan(n int, rng *rand.Rand) float64 {
	var free [slots]float64
	for range n {
		first := 0
		for i, f := range free {
			if f < free[first] {
				first = i
			}
		}
		free[first] += vary(rng)
	}
	return slices.Max(free[:])
}

// vary is a lognormal factor of mean 1 and coefficient of variation spread.
func vary(rng *rand.Rand) float64 {
	s2 := math.Log1p(spread * spread)
	return math.Exp(math.Sqrt(s2)*rng.NormFloat64() - s2/2)
}

// graph is the triangle count (section 5.1): six shuffle-map stages, each of which drops by the ratio what the one before has
// left, and rest seconds: building the graph, the result. The 148.5 s of Table 2, 33 s of them in stages that drop, are fitted to
// its two times of the low class, 139.0 s at 10 % and 131.1 s at 20 %; they give 138.7 and 131.7 s.
type graph struct{ rest float64 }

func triangles() graph { return graph{rest: 115.5} }

func (g graph) job(theta float64, rng *rand.Rand) course {
	// A stage has many more tasks than slots, so waves do not show.
	const stage, stages, tasks = 5.5, 6, 200
	part := float64(kept(tasks, theta)) / tasks
	c := course{tasks: stages * tasks}
	size, left := vary(rng), 1.0
	c.setup = size * g.rest
	for range stages {
		left *= part
		c.maps += size * stage * left
		c.kept += int(math.Round(left * tasks))
	}
	return c
}
