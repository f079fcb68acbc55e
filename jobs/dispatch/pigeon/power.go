package pigeon

import (
	"math"
	"time"
)

// Bounds of Power.
const (
	// kindsMost bounds the kinds of task that are remembered; the oldest is forgotten first.
	kindsMost = 4096
	// memory is after how long an observation counts 1/e as much. Caps that last shorter teach little.
	memory = 5 * time.Minute
	// trust is how many observations count as much as the assumption that a group is as fast as the others.
	trust = 4
)

// Power learns how fast the slots of each group are at its present cap, from the service times of ended tasks.
//
// A task says something only in comparison with tasks of the same kind, such as of the same job, that ran elsewhere. So Power keeps,
// for each kind, the mean logarithm of what a task takes at speed 1, and for each group the mean logarithm of how much longer its
// tasks take than that. The logarithm makes one long task weigh little.
type Power struct {
	groups []speed
	kinds  map[uint64]*mean
	order  []uint64 // of kinds, oldest first from next on
	next   int
}

// speed is what is known of a group.
type speed struct {
	slots int
	slow  mean // logarithm of service time over the kind's
	at    time.Duration
}

// mean is a mean with the weight behind it.
type mean struct{ value, weight float64 }

func (m *mean) add(x, weight float64) {
	m.weight += weight
	m.value += (x - m.value) * weight / m.weight
}

// NewPower returns a Power of so many groups without slots, about which nothing is known.
func NewPower(groups int) *Power {
	return &Power{groups: make([]speed, groups), kinds: map[uint64]*mean{}}
}

// Cap sets how many slots a group may use now, and forgets how fast they were: its cap has changed.
func (p *Power) Cap(g Group, slots int) { p.groups[g] = speed{slots: slots} }

// Ended learns from a task that took a time on a group. Times that are not positive teach nothing.
func (p *Power) Ended(now time.Duration, g Group, kind uint64, took time.Duration) {
	if took <= 0 {
		return
	}
	x := &p.groups[g]
	if now > x.at {
		x.slow.weight *= math.Exp(-float64(now-x.at) / float64(memory))
		x.at = now
	}
	k := p.kind(kind)
	seconds := math.Log(took.Seconds())
	if k.weight > 0 {
		// A kind of which little is known teaches little.
		x.slow.add(seconds-k.value, k.weight/(k.weight+1))
	}
	k.add(seconds-x.slow.shrunk(), 1)
}

// shrunk is the mean, drawn to 0 while there is little behind it.
func (m *mean) shrunk() float64 { return m.value * m.weight / (m.weight + trust) }

func (p *Power) kind(kind uint64) *mean {
	if k, ok := p.kinds[kind]; ok {
		return k
	}
	k := &mean{}
	if len(p.order) < kindsMost {
		p.order = append(p.order, kind)
	} else {
		k = p.kinds[p.order[p.next]]
		*k = mean{}
		delete(p.kinds, p.order[p.next])
		p.order[p.next] = kind
		p.next = (p.next + 1) % kindsMost
	}
	p.kinds[kind] = k
	return k
}

// Speed returns how fast a slot of a group is, relative to the mean of all; 1 while nothing is known.
func (p *Power) Speed(g Group) float64 { return math.Exp(-p.groups[g].slow.shrunk()) }

// Power returns the speed of a group's slots together, as a weight for splits.
func (p *Power) Power(g Group) float64 { return p.Speed(g) * float64(p.groups[g].slots) }
