package eagle

const (
	// probesPerTask is how many workers are probed for each task: the power of two choices of Sparrow's paper.
	probesPerTask = 2
	// Rounds is after how many rounds of rejected probes those that are left go to the short partition.
	Rounds = 2
	// triesMost bounds the draws for a worker without long tasks before all are looked at.
	triesMost = 16
)

// Source gives random numbers, as math/rand/v2's Rand does.
type Source interface{ IntN(n int) int }

// Prober chooses the workers for probes of short jobs.
type Prober struct {
	random  Source
	workers []int // a permutation, drawn anew bit by bit
	short   int
}

// NewProber returns a Prober of so many workers, of which the first short ones are the short partition.
func NewProber(random Source, workers, short int) *Prober {
	p := &Prober{random: random, workers: make([]int, workers), short: short}
	for i := range p.workers {
		p.workers[i] = i
	}
	return p
}

// First returns the workers to probe for a job with so many tasks. They are distinct; where there are too few, each is there
// as often as the others, but for one more of some.
func (p *Prober) First(tasks int) (drawn []int) {
	for n := probesPerTask * tasks; n > 0; {
		part := p.workers[:min(n, len(p.workers))]
		for i := range part {
			j := i + p.random.IntN(len(p.workers)-i)
			p.workers[i], p.workers[j] = p.workers[j], p.workers[i]
		}
		drawn = append(drawn, part...)
		n -= len(part)
	}
	return drawn
}

// Again returns the workers to probe after so many probes of a round, counted from 1, were rejected. view is the newest that
// came back. With no short partition and all workers in the View, any worker is probed again.
func (p *Prober) Again(rejected, round int, view *View) (drawn []int) {
	for range rejected {
		if round < Rounds || p.short == 0 {
			drawn = append(drawn, p.without(view))
		} else {
			drawn = append(drawn, p.random.IntN(p.short))
		}
	}
	return drawn
}

// without returns a random worker that has no long task as far as a View shows.
func (p *Prober) without(view *View) int {
	for range triesMost {
		if w := p.random.IntN(len(p.workers)); !view.Long(w) {
			return w
		}
	}
	var free []int
	for w := range p.workers {
		if !view.Long(w) {
			free = append(free, w)
		}
	}
	if len(free) == 0 {
		return p.random.IntN(len(p.workers))
	}
	return free[p.random.IntN(len(free))]
}
