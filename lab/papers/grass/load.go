package grass

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// The set-up of the paper's experiments, and what it leaves open.
const (
	machines    = 200   // have one slot each
	tail        = 1.259 // beta of the tasks' Pareto times
	slowestMost = 8     // the slowest task over the median
	unit        = 10.0  // the shortest task with an input of size 1, s: GRASS compares splits in steps of 1 s
	cappedSpeed = 0.4   // of a node under a cap
	// known is the part of the tail that comes from the sizes of inputs. Progress reports come in steps of 5 %, and progress is
	// part^gamma of the work, with gamma log-normal. They are chosen so that estimates of t_new and t_rem are as accurate as the
	// paper's, 76 and 72 %.
	known     = 0.3
	reports   = 0.05
	fullSteps = 20
	skew      = 0.2
)

// median is that of the tasks' times, s, of a Pareto tail that is cut at 8 medians: m with P(x <= m) = P(x <= 8 m) / 2.
func median() float64 {
	return unit * math.Pow(2-math.Pow(slowestMost, -tail), 1/tail)
}

// bins are the paper's: below 50 tasks, up to 500, above.
const bins = 3

func binNames() [bins]string { return [bins]string{"small", "medium", "large"} }

// spec is a job before any policy runs it.
type spec struct {
	seed              uint64
	tasks, width, bin int
	utilisation       float64
	slack, err        float64   // the deadline's beyond the ideal, and the error bound, each a part
	explore           float64   // the draw that makes a sample of the job
	sizes             []float64 // of the tasks' inputs, drawn when a policy first runs the job
}

// load are jobs as they come: of six three are small, two medium and one large, or with the numbers of tasks of a trace.
func load(seed uint64, n int, sizes []int) []spec {
	r := rand.New(rand.NewPCG(seed, 0x6a09e667))
	all := make([]spec, n)
	for i := range all {
		bin := [...]int{0, 1, 0, 2, 0, 1}[i%6]
		tasks := [bins]int{10 + r.IntN(40), logUniform(r, 51, 500), logUniform(r, 501, 900)}[bin]
		if len(sizes) > 0 {
			tasks = sizes[r.IntN(len(sizes))]
			bin = binOf(tasks)
		}
		// 4 to 40 jobs share the machines; each gets as much as the others.
		active := logUniform(r, 4, 41)
		all[i] = spec{
			seed: r.Uint64(), tasks: tasks, bin: bin, width: max(2, min(tasks, machines/active)), utilisation: float64(active) / 40,
			slack: 0.02 + 0.18*r.Float64(), err: 0.05 + 0.25*r.Float64(), explore: r.Float64(),
		}
	}
	return all
}

func binOf(tasks int) int {
	switch {
	case tasks < 50:
		return 0
	case tasks <= 500:
		return 1
	}
	return 2
}

// few are jobs that the oracle can search.
func few(seed uint64, n int) []spec {
	r := rand.New(rand.NewPCG(seed, 0xbb67ae85))
	all := load(seed, n, []int{9})
	for i := range all {
		all[i].tasks, all[i].width = 6+r.IntN(4), 2+r.IntN(2)
	}
	return all
}

func logUniform(r *rand.Rand, low, high float64) int {
	return int(low * math.Pow(high/low, r.Float64()))
}

// times draws a factor of a task's time from a part of the tail, not beyond the cut. The logarithm of a Pareto time is
// exponential, which is the sum of two gammas: one is the input's, the other the copy's.
func times(size, part float64, src rand.Source) float64 {
	g := distuv.Gamma{Alpha: part, Beta: tail, Src: src}
	for {
		if x := size * math.Exp(g.Rand()); x <= slowestMost*median()/unit {
			return x
		}
	}
}

// draw draws the sizes of inputs.
func (s *spec) draw() {
	src := rand.NewPCG(s.seed, 1)
	for len(s.sizes) < s.tasks {
		s.sizes = append(s.sizes, times(1, known, src))
	}
}

// copied is the work of the k-th copy of a task, s, and how its progress bends.
func (s *spec) copied(task, k int) (work, gamma float64) {
	src := rand.NewPCG(s.seed, uint64(task)<<16|uint64(k)<<1|1<<48)
	work = unit * times(s.sizes[task], 1-known, src)
	return work, math.Exp(skew * distuv.Normal{Mu: 0, Sigma: 1, Src: src}.Rand())
}

// ideal is how long the job would take if every task took the median, s.
func (s *spec) ideal() float64 {
	return max(1, float64(s.tasks)/float64(s.width)) * median()
}

// caps reports whether the nodes are under power caps, which come and go: a third of the nodes runs at a part of its
// speed from the start, and another third from the midst of the job on, while the first are free.
type caps bool

// change is when the caps change, s.
func (c caps) change(s *spec) float64 { return s.ideal() / 2 }

// speed is that of a slot's node at a time.
func (c caps) speed(s *spec, slot int, at float64) float64 {
	if !c {
		return 1
	}
	third := rand.New(rand.NewPCG(s.seed, uint64(slot)<<1|1<<60)).IntN(3)
	if early := at < c.change(s); third == 0 && early || third == 1 && !early {
		return cappedSpeed
	}
	return 1
}

// mean is the mean speed from one time to another.
func (c caps) mean(s *spec, slot int, from, to float64) float64 {
	at := c.change(s)
	if !c || from >= at || to <= at || to <= from {
		return c.speed(s, slot, to)
	}
	return min(1, (c.speed(s, slot, from)*(at-from)+c.speed(s, slot, to)*(to-at))/(to-from))
}
