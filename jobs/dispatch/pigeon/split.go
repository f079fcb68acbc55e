package pigeon

import (
	"cmp"
	"math"
	"slices"
)

// Source gives random numbers, as math/rand/v2's Rand does.
type Source interface {
	Float64() float64
	IntN(n int) int
}

// share is how many tasks of a job a group gets.
type share struct{ Group, Tasks int }

// splitter divides the tasks of jobs among groups.
type splitter struct {
	random Source
	order  []int // a permutation of the groups, drawn anew bit by bit
	shares []share
	left   []share
}

// newSplitter returns a splitter that draws from a source.
func newSplitter(random Source) *splitter { return &splitter{random: random} }

// even gives each group the same number of tasks and the remainder to distinct random groups, one each (Li, section 4.2.2).
// The result has the groups that get any, in the order of their numbers; it is valid until the next call.
func (s *splitter) even(tasks, groups int) []share {
	s.shares = s.shares[:0]
	if groups <= 0 || tasks <= 0 {
		return s.shares
	}
	s.permute(groups)
	each, rest := tasks/groups, tasks%groups
	if each == 0 {
		for _, g := range s.draw(rest) {
			s.shares = append(s.shares, share{g, 1})
		}
		s.sort()
		return s.shares
	}
	for g := range groups {
		s.shares = append(s.shares, share{g, each})
	}
	for _, g := range s.draw(rest) {
		s.shares[g].Tasks++
	}
	return s.shares
}

// weighted gives each group tasks in proportion to its weight: the whole part of its quota, and of what remains at most one more,
// with a probability equal to the fractional part. So the expected number is the quota, even of jobs with one task
// (Li, section 4.6.2). Weights that are not positive and finite count as 0; with none above 0 the split is even.
func (s *splitter) weighted(tasks int, weights []float64) []share {
	sum := total(weights)
	if !(sum > 0) || math.IsInf(sum, 0) {
		return s.even(tasks, len(weights))
	}
	if tasks <= 0 {
		return s.shares[:0]
	}
	s.permute(len(weights))
	s.draw(len(weights))
	rest := s.whole(tasks, sum, weights)
	s.remainder(tasks, rest, sum, weights)
	return s.some()
}

// remainder hands out what is left by systematic sampling: the fractional parts lie side by side in random order, and each
// whole number after a random start picks the group below it.
func (s *splitter) remainder(tasks, rest int, sum float64, weights []float64) {
	at, heaviest := s.random.Float64(), 0
	for _, g := range s.order {
		part := quota(tasks, weights[g], sum)
		if positive(weights[g]) > positive(weights[heaviest]) {
			heaviest = g
		}
		if at += part - math.Floor(part); at >= 1 && rest > 0 {
			at--
			rest--
			s.shares[g].Tasks++
		}
	}
	s.shares[heaviest].Tasks += rest // at most what sums of fractions lose to rounding
}

// whole makes shares the whole parts of the groups' quotas, and returns how many tasks remain.
func (s *splitter) whole(tasks int, sum float64, weights []float64) (rest int) {
	s.shares = s.shares[:0]
	rest = tasks
	for g, w := range weights {
		s.shares = append(s.shares, share{g, int(quota(tasks, w, sum))})
		rest -= s.shares[g].Tasks
	}
	return rest
}

// quota returns the part of the tasks that a group's weight gives it.
func quota(tasks int, weight, sum float64) float64 { return float64(tasks) * (positive(weight) / sum) }

// some returns the shares of the groups that get any tasks.
func (s *splitter) some() []share {
	s.shares = slices.DeleteFunc(s.shares, func(x share) bool { return x.Tasks == 0 })
	return s.shares
}

// sort puts shares in the order of their groups.
func (s *splitter) sort() {
	slices.SortFunc(s.shares, func(a, b share) int { return cmp.Compare(a.Group, b.Group) })
}

// total returns the sum of the weights that count.
func total(weights []float64) (sum float64) {
	for _, w := range weights {
		sum += positive(w)
	}
	return sum
}

func positive(w float64) float64 {
	if w > 0 && !math.IsInf(w, 0) {
		return w
	}
	return 0
}

// level gives tasks one by one to the group that would end them first: the one with the least work ahead of its power. ahead are tasks
// that already wait or run there. Groups without power get none, unless none has any. (Li, section 4.6.2: masters report
// how long their queues are.) Ties are broken at random.
func (s *splitter) level(tasks int, power []float64, ahead []int) []share {
	sum := total(power)
	if !(sum > 0) {
		return s.even(tasks, len(power))
	}
	s.permute(len(power))
	s.left = s.left[:0]
	for _, g := range s.draw(len(power)) {
		if positive(power[g]) > 0 {
			s.left = append(s.left, share{g, 0})
		}
	}
	ends := func(i int) float64 { return float64(ahead[s.left[i].Group]+s.left[i].Tasks+1) / power[s.left[i].Group] }
	for i := len(s.left)/2 - 1; i >= 0; i-- {
		sink(s.left, i, ends)
	}
	for range max(0, tasks) {
		s.left[0].Tasks++
		sink(s.left, 0, ends)
	}
	s.shares = append(s.shares[:0], s.left...)
	s.sort()
	return s.some()
}

// balanced returns weighted, but what remains after the whole parts of the quotas goes to the groups that would end it first, at most one task each.
// So large jobs are spread by power alone, and small ones go where least is ahead.
func (s *splitter) balanced(tasks int, power []float64, ahead []int) []share {
	sum := total(power)
	if !(sum > 0) || math.IsInf(sum, 0) {
		return s.even(tasks, len(power))
	}
	s.permute(len(power))
	rest := s.whole(tasks, sum, power)
	s.left = s.left[:0]
	for _, g := range s.draw(len(power)) {
		if positive(power[g]) > 0 {
			s.left = append(s.left, share{g, s.shares[g].Tasks})
		}
	}
	ends := func(x share) float64 { return float64(ahead[x.Group]+x.Tasks+1) / power[x.Group] }
	slices.SortStableFunc(s.left, func(a, b share) int { return cmp.Compare(ends(a), ends(b)) })
	for i := range rest {
		s.shares[s.left[i%len(s.left)].Group].Tasks++
	}
	return s.some()
}

// shorter gives each task to that one of two random groups that has less ahead.
func (s *splitter) shorter(tasks int, ahead []int) []share {
	s.shares = s.shares[:0]
	if len(ahead) == 0 {
		return s.shares
	}
	for g := range ahead {
		s.shares = append(s.shares, share{g, 0})
	}
	s.permute(len(ahead))
	for range max(0, tasks) {
		best := none
		for _, g := range s.draw(min(2, len(ahead))) {
			if best == none || ahead[g]+s.shares[g].Tasks < ahead[best]+s.shares[best].Tasks {
				best = g
			}
		}
		s.shares[best].Tasks++
	}
	return s.some()
}

// sink restores a binary heap below i.
func sink(heap []share, i int, key func(int) float64) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(heap); child++ {
			if key(child) < key(least) {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// permute makes order a permutation of so many groups.
func (s *splitter) permute(groups int) {
	if len(s.order) != groups {
		s.order = s.order[:0]
		for g := range groups {
			s.order = append(s.order, g)
		}
	}
}

// draw returns n distinct random groups.
func (s *splitter) draw(n int) []int {
	for i := range n {
		j := i + s.random.IntN(len(s.order)-i)
		s.order[i], s.order[j] = s.order[j], s.order[i]
	}
	return s.order[:n]
}

// Placement is how the tasks of a job are dealt to the groups, in the order that they have in the job.
type Placement uint8

const (
	// RoundRobin deals them one by one, as the released Pigeon does.
	RoundRobin Placement = iota
	// Block gives each group one contiguous block, as in the paper's worked example.
	Block
)

// deal appends the group of each task to dealt.
func (p Placement) deal(shares []share, dealt []int) []int {
	if p == Block {
		for _, s := range shares {
			for range s.Tasks {
				dealt = append(dealt, s.Group)
			}
		}
		return dealt
	}
	more := true
	for round := 0; more; round++ {
		more = false
		for _, s := range shares {
			if s.Tasks > round {
				dealt = append(dealt, s.Group)
				more = more || s.Tasks > round+1
			}
		}
	}
	return dealt
}
