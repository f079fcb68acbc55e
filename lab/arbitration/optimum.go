package arbitration

import (
	"context"
	"math"
	"slices"
	"time"

	"headroom/units"
)

// The optimum is searched in a fluid model of the machines: work is infinitely divisible, and all run as one. The search is exhaustive but
// for two grids: how long each stretch between arrivals begins with a sprint, and how much each job gives up. Joules are best spent first.
const (
	sprintGrid = 10 * time.Second
	dropLevels = 4 // from nothing to all that the floor leaves
)

// flow is the machines as one, in the fluid model.
type flow struct {
	slow, fast float64 // container seconds of work in a second
	watts      float64 // that a sprint takes above the budget
	refill     float64 // W
	potMost    float64 // J
}

// flowOf is the fluid model of a load's machines at full load under its first budget.
func flowOf(l *Load) flow {
	r := newRun(l, 0, nil)
	f := flow{refill: r.refill, potMost: r.potMost, watts: rise(r.nodes).Watts()}
	f.slow, f.fast = speeds(r.nodes)
	return f
}

type problem struct {
	flow

	jobs    []Job
	work    []float64 // of each job without what it gives up, container seconds
	dropped []int
	best    float64
}

type state struct {
	now, pot   float64   // s, J
	left, ends []float64 // container seconds, and s; 0 while a job has not ended
	cost       float64   // of the jobs that have ended
}

// optimum returns the least cost of jobs whose tasks take these times, s.
func optimum(f flow, jobs []Job, times [][]float64) float64 {
	p := &problem{flow: f, jobs: jobs, dropped: make([]int, len(jobs)), work: make([]float64, len(jobs)), best: math.Inf(1)}
	p.drops(0, times)
	return p.best
}

// drops tries what the jobs from one on give up.
func (p *problem) drops(from int, times [][]float64) {
	if from == len(p.jobs) {
		p.solve(0, state{pot: p.potMost, left: slices.Clone(p.work), ends: make([]float64, len(p.jobs))})
		return
	}
	j := &p.jobs[from]
	all := 0.0
	for _, t := range times[from] {
		all += t
	}
	most := j.Tasks - units.Ratio(j.Floor).Least(j.Tasks)
	for level := range dropLevels {
		n := most * level / (dropLevels - 1)
		if level > 0 && n == 0 {
			return
		}
		p.dropped[from], p.work[from] = n, all*float64(j.Tasks-n)/float64(j.Tasks)
		p.drops(from+1, times)
	}
}

// solve tries the stretch that begins when a job comes, and those after it.
func (p *problem) solve(from int, s state) {
	s.now = p.jobs[from].Arrival.Seconds()
	until := math.Inf(1)
	if from < len(p.jobs)-1 {
		until = p.jobs[from+1].Arrival.Seconds()
	}
	if p.bound(&s) >= p.best {
		return
	}
	var here []int
	for i := range from + 1 {
		if s.ends[i] == 0 {
			here = append(here, i)
		}
	}
	permute(here, 0, func(order []int) {
		if math.IsInf(until, 1) {
			p.best = min(p.best, p.pass(s, order, until, math.Inf(1)).cost)
			return
		}
		for sprint := 0.0; ; sprint += sprintGrid.Seconds() {
			p.solve(from+1, p.pass(s, order, until, sprint))
			if sprint >= until-s.now || len(order) == 0 {
				return
			}
		}
	})
}

// bound returns what a schedule costs at the least: jobs that have come end no sooner than now, and all work takes its time at full speed.
func (p *problem) bound(s *state) float64 {
	sum := s.cost
	for i := range p.jobs {
		if s.ends[i] > 0 {
			continue
		}
		sum += p.costOf(i, max(s.now, p.jobs[i].Arrival.Seconds())+s.left[i]/p.fast)
	}
	return sum
}

func (p *problem) costOf(i int, at float64) float64 {
	j := &p.jobs[i]
	return j.cost(time.Duration((at-j.Arrival.Seconds())*float64(time.Second)), p.dropped[i])
}

func permute(list []int, from int, f func([]int)) {
	if from >= len(list)-1 {
		f(list)
		return
	}
	for i := from; i < len(list); i++ {
		list[from], list[i] = list[i], list[from]
		permute(list, from+1, f)
		list[from], list[i] = list[i], list[from]
	}
}

// pass serves jobs in their order until a moment or their end, the first seconds in a sprint as far as the joules go.
func (p *problem) pass(s state, order []int, until, sprint float64) state {
	s.left, s.ends = slices.Clone(s.left), slices.Clone(s.ends)
	for _, i := range order {
		for s.left[i] > 0 && s.now < until {
			speed, draws, most := p.slow, 0.0, until-s.now
			switch {
			case sprint > hair && s.pot > hair:
				speed, draws = p.fast, p.watts
				most = min(most, sprint, s.pot/(p.watts-p.refill))
			case sprint > hair: // joules are spent as they come in
				part := p.refill / p.watts
				speed, draws = p.slow+part*(p.fast-p.slow), p.refill
				most = min(most, sprint/part)
			}
			dt := min(most, s.left[i]/speed)
			if draws > 0 {
				sprint -= dt * min(1, draws/p.watts)
			}
			s.pot = min(p.potMost, max(0, s.pot+(p.refill-draws)*dt))
			s.now += dt
			if s.left[i] -= speed * dt; s.left[i] < hair*speed*1e3 {
				s.left[i], s.ends[i] = 0, s.now
				s.cost += p.costOf(i, s.now)
			}
		}
	}
	if !math.IsInf(until, 1) {
		s.pot = min(p.potMost, s.pot+p.refill*(until-s.now))
	}
	return s
}

// smallCase draws two to four jobs of both classes, some with tight deadlines. Tasks are short, so that the machines come near the fluid.
func smallCase(seed uint64) (jobs []Job) {
	const task = 400 * time.Millisecond
	r := drawn(seed, streamUrgent)
	for range 2 + r.IntN(3) {
		at := time.Duration(r.IntN(10)) * sprintGrid
		if r.IntN(2) == 0 {
			jobs = append(jobs, Job{Class: Urgent, Arrival: at, Tasks: 400 + r.IntN(800), Task: task, Deadline: time.Duration(15+r.IntN(60)) * time.Second, Floor: 1})
			continue
		}
		jobs = append(jobs, Job{Class: Tolerant, Arrival: at, Tasks: 1000 + r.IntN(3000), Task: task, Floor: 0.6})
	}
	return sorted(jobs)
}

// Optimum compares the arbiter with the offline optimum of small cases.
type Optimum struct {
	Seed  uint64  `json:"seed"`
	Cases []Case  `json:"cases"`
	Mean  float64 `json:"mean"` // of the arbiter's costs over the optimum's
	Worst float64 `json:"worst"`
	Other float64 `json:"urgent_first_mean"`
}

// Case is one of them: costs in weighted seconds.
type Case struct {
	Seed        uint64  `json:"seed"`
	Jobs        int     `json:"jobs"`
	Optimum     float64 `json:"optimum"`
	Arbiter     float64 `json:"arbiter"`
	UrgentFirst float64 `json:"urgent_first"`
}

func measureOptimum(ctx context.Context, seeds seedRange) (*Optimum, error) {
	out := &Optimum{Seed: seeds.first}
	l := &Load{Name: "small", Containers: perServer, For: time.Minute, Budget: []Step{{0, 250 * units.Watt}}, Jobs: smallCase}
	f, n := flowOf(l), float64(seeds.count)
	results, err := runAll(ctx, l, []variant{member(3*time.Second, usual), baselines()[3].with(0)}, seeds)
	if err != nil {
		return nil, err
	}
	for i := range seeds.count {
		seed := seeds.first + uint64(i)
		jobs, times := smallCase(seed), [][]float64{}
		for _, j := range l.draw(seed) {
			times = append(times, j.times)
		}
		c := Case{Seed: seed, Jobs: len(jobs), Optimum: optimum(f, jobs, times)}
		c.Arbiter, c.UrgentFirst = results[0].each[WeightedS][i]*float64(len(jobs)), results[1].each[WeightedS][i]*float64(len(jobs))
		out.Cases = append(out.Cases, c)
		out.Mean, out.Other = out.Mean+c.Arbiter/c.Optimum/n, out.Other+c.UrgentFirst/c.Optimum/n
		out.Worst = max(out.Worst, c.Arbiter/c.Optimum)
	}
	return out, nil
}
