package grass

import (
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"
)

// The set-up of the paper's experiments, and what it leaves open.
const (
	// machines have one slot each.
	machines = 200
	// tail is beta of the tasks' Pareto times, and slowestMost the slowest over the median.
	tail        = 1.259
	slowestMost = 8
	// unit is the shortest task with an input of size 1, s. Seconds count, since GRASS compares
	// splits in steps of 1 s.
	unit = 10.0
	// known is the part of the tail that comes from the sizes of inputs. It is chosen so that
	// estimates of t_new are as accurate as the paper's, 76 %.
	known = 0.3
	// Progress reports come in steps of 5 %, and progress is part^gamma of the work, with gamma
	// log-normal: chosen so that estimates of t_rem are as accurate as the paper's, 72 %.
	reports   = 0.05
	fullSteps = 20
	skew      = 0.2
)

// median is that of the tasks' times, s: of a Pareto tail that is cut at slowestMost medians.
func median() float64 { return unit * cutMedian() }

// cutMedian is m with P(x <= m) = P(x <= 8 m) / 2, for the least x of 1.
func cutMedian() float64 {
	return math.Pow(2-math.Pow(slowestMost, -tail), 1/tail)
}

// bins are the paper's: below 50 tasks, up to 500, above.
const bins = 3

func binNames() [bins]string { return [bins]string{"small", "medium", "large"} }

// spec is a job before any policy runs it.
type spec struct {
	seed         uint64
	tasks, width int
	bin          int
	utilisation  float64
	// slack is the deadline's beyond the ideal, err the error bound, each a part.
	slack, err float64
	// explore is the draw that makes a sample of the job.
	explore float64
	// sizes of the tasks' inputs, drawn when a policy first runs the job.
	sizes []float64
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

func logUniform(r *rand.Rand, low, high float64) int {
	return int(low * math.Pow(high/low, r.Float64()))
}

// draw draws the sizes of inputs. The logarithm of a Pareto time is exponential, which is the
// sum of two gammas: one is the input's, the other the copy's.
func (s *spec) draw() {
	if s.sizes != nil {
		return
	}
	g := distuv.Gamma{Alpha: known, Beta: tail, Src: rand.NewPCG(s.seed, 1)}
	s.sizes = make([]float64, s.tasks)
	for i := range s.sizes {
		s.sizes[i] = math.Exp(g.Rand())
		for s.sizes[i] > slowestMost*median()/unit {
			s.sizes[i] = math.Exp(g.Rand())
		}
	}
}

// copied is the work of the k-th copy of a task, s, and how its progress bends.
func (s *spec) copied(task, k int) (work, gamma float64) {
	src := rand.NewPCG(s.seed, uint64(task)<<16|uint64(k)<<1|1<<48)
	g := distuv.Gamma{Alpha: 1 - known, Beta: tail, Src: src}
	for {
		work = s.sizes[task] * math.Exp(g.Rand())
		if work <= slowestMost*median()/unit {
			break
		}
	}
	return unit * work, math.Exp(skew * distuv.Normal{Mu: 0, Sigma: 1, Src: src}.Rand())
}

// ideal is how long the job would take if every task took the median, s.
func (s *spec) ideal() float64 {
	return max(1, float64(s.tasks)/float64(s.width)) * median()
}
