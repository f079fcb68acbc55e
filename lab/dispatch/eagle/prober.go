package eagle

import "headroom/lab/dispatch/sparrow"

// Rounds is after how many rounds of rejected probes those that are left go to the short partition.
const Rounds = 2

// triesMost bounds the draws for a worker without long tasks before all are looked at.
const triesMost = 16

// Prober chooses the workers for probes of short jobs.
type Prober struct {
	random  sparrow.Source
	all     *sparrow.Sampler
	workers int
	short   int
	free    []int
	drawn   []int
}

// NewProber returns a Prober of so many workers, of which the first short ones are the short partition.
func NewProber(random sparrow.Source, workers, short int) *Prober {
	return &Prober{random: random, all: sparrow.NewSampler(random, 0, workers), workers: workers, short: short}
}

// First returns the workers to probe for a job with so many tasks, valid until the next call.
func (p *Prober) First(tasks int) []int { return p.all.Draw(sparrow.ProbesPerTask * tasks) }

// Again returns the workers to probe after so many probes of a round, counted from 1, were rejected. view is the newest that came back. With no short
// partition and all workers in the View, any worker is probed again. The result is valid until the next call.
func (p *Prober) Again(rejected, round int, view *View) []int {
	p.drawn = p.drawn[:0]
	p.free = p.free[:0]
	for range rejected {
		switch {
		case round < Rounds || p.short == 0:
			p.drawn = append(p.drawn, p.without(view))
		default:
			p.drawn = append(p.drawn, p.random.IntN(p.short))
		}
	}
	return p.drawn
}

// without returns a random worker that has no long task as far as a View says.
func (p *Prober) without(view *View) int {
	for range triesMost {
		if w := p.random.IntN(p.workers); !view.Long(w) {
			return w
		}
	}
	if len(p.free) == 0 {
		for w := range p.workers {
			if !view.Long(w) {
				p.free = append(p.free, w)
			}
		}
	}
	if len(p.free) == 0 {
		return p.random.IntN(p.workers)
	}
	return p.free[p.random.IntN(len(p.free))]
}
