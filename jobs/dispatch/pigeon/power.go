package pigeon

import (
	"math"
	"slices"
	"time"
)

// Bounds of Power.
const (
	// samplesMost bounds the tasks of kinds that are not done, about 2 MB and two of the largest jobs; the oldest kind is forgotten first.
	samplesMost = 1 << 17
	// memory is after how long an observation counts 1/e as much. It is long, as a changed cap drops what was learned anyway.
	memory = time.Hour
	// spreadUsual is the variance of the logarithm of speeds that is expected of groups: caps make them slower by a third or so.
	spreadUsual = 0.35 * 0.35
	// noiseUsual is the variance of the logarithm of task times within a kind that is expected, and noiseWeight how many tasks that counts as
	// much as.
	noiseUsual, noiseWeight = 0.5, 4
	// farMost is how far from the middle a task counts, as a logarithm: one that ended at once is no sign of a fast group.
	farMost = 1.5
)

// Power learns how fast the slots of each group are at its present cap, from the service times of ended tasks.
//
// A task says something only in comparison with tasks of the same kind, such as of the same job, that ran elsewhere. It is compared
// once all tasks of its kind have ended: before that, only the short ones have. For each group Power keeps the mean logarithm of how much
// longer its tasks take. The more the tasks of a kind differ, the more of them it takes until a group is believed to be
// faster or slower than the others.
type Power struct {
	groups []speed
	kinds  map[uint64][]sample
	order  []uint64 // kinds by age, oldest first; some are done
	count  int      // of all samples
	sorted []float64
	parts  []mean // of each group, scratch
}

// speed is what is known of a group.
type speed struct {
	slots int
	// slow is the logarithm of service time over the kind's, its weight the inverse of its variance.
	slow mean
	at   time.Duration
	// epoch counts the changes of its cap, the last of which was at since.
	epoch uint32
	since time.Duration
}

// sample is the logarithm of what a task took.
type sample struct {
	group Group
	epoch uint32
	took  float32
}

// mean is a mean with the weight behind it.
type mean struct{ value, weight float64 }

func (m *mean) add(x, weight float64) {
	if weight > 0 {
		m.weight += weight
		m.value += (x - m.value) * weight / m.weight
	}
}

// NewPower returns a Power of so many groups without slots, about which nothing is known.
func NewPower(groups int) *Power {
	return &Power{groups: make([]speed, groups), kinds: map[uint64][]sample{}, parts: make([]mean, groups)}
}

// Cap sets how many slots a group may use from now on, and forgets how fast they were: its cap has changed.
func (p *Power) Cap(now time.Duration, g Group, slots int) {
	p.groups[g] = speed{slots: slots, at: now, since: now, epoch: p.groups[g].epoch + 1}
}

// Ended takes a task that took a time on a group. One that began at an earlier cap teaches nothing.
func (p *Power) Ended(now time.Duration, g Group, kind uint64, took time.Duration) {
	x := &p.groups[g]
	if took <= 0 || now-took < x.since {
		return
	}
	samples, ok := p.kinds[kind]
	if !ok {
		p.remember(kind)
	}
	p.count++
	p.kinds[kind] = append(samples, sample{g, x.epoch, float32(math.Log(took.Seconds()))})
}

// remember makes room for a kind.
func (p *Power) remember(kind uint64) {
	if len(p.order) > 2*len(p.kinds) {
		p.order = slices.DeleteFunc(p.order, func(kind uint64) bool { _, open := p.kinds[kind]; return !open })
	}
	p.order = append(p.order, kind)
	for p.count >= samplesMost {
		p.drop(p.order[0])
		p.order = p.order[1:]
	}
}

func (p *Power) drop(kind uint64) {
	p.count -= len(p.kinds[kind])
	delete(p.kinds, kind)
}

// Done learns from a kind of which all tasks have ended.
func (p *Power) Done(now time.Duration, kind uint64) {
	samples := slices.DeleteFunc(slices.Clone(p.kinds[kind]), func(x sample) bool { return x.epoch != p.groups[x.group].epoch })
	p.drop(kind)
	if len(samples) < 2 {
		return
	}
	middle := p.middle(samples)
	clear(p.parts)
	squares, sum := 0.0, 0.0
	for _, x := range samples {
		off := max(-farMost, min(float64(x.took)-p.slow(x.group)-middle, farMost))
		squares += off * off
		sum += off
		p.parts[x.group].add(off, 1)
	}
	n := float64(len(samples))
	noise := (squares + noiseWeight*noiseUsual) / (n - 1 + noiseWeight)
	for g := range p.parts {
		if part := p.parts[g]; part.weight > 0 {
			x, slow := &p.groups[g], p.slow(Group(g))
			x.slow.weight *= math.Exp(-float64(now-x.at) / float64(memory))
			x.at = now
			// What the group itself has added to the middle says nothing.
			x.slow.add(slow+part.value-sum/n, part.weight*(1-part.weight/n)/noise)
		}
	}
}

// middle returns the median of what tasks took, at the usual speed.
func (p *Power) middle(samples []sample) float64 {
	p.sorted = p.sorted[:0]
	for _, x := range samples {
		p.sorted = append(p.sorted, float64(x.took)-p.slow(x.group))
	}
	slices.Sort(p.sorted)
	n := len(p.sorted)
	return (p.sorted[(n-1)/2] + p.sorted[n/2]) / 2
}

// slow returns the logarithm of how much longer tasks take in a group: the mean, drawn to 0 as far as noise explains it.
func (p *Power) slow(g Group) float64 {
	m := p.groups[g].slow
	return m.value * m.weight / (m.weight + 1/spreadUsual)
}

// Speed returns how fast a slot of a group is, relative to what is usual; 1 while nothing is known.
func (p *Power) Speed(g Group) float64 { return math.Exp(-p.slow(g)) }

// Known reports whether anything was learned of a group at its present cap.
func (p *Power) Known(g Group) bool { return p.groups[g].slow.weight > 0 }

// Power returns the speed of a group's slots together, as a weight for splits.
func (p *Power) Power(g Group) float64 { return p.Speed(g) * float64(p.groups[g].slots) }
