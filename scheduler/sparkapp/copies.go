package sparkapp

import (
	"math"
	"slices"
	"time"

	"headroom/jobs/speculation"
)

// tailBeta is the exponent of the tail that late tasks are taken to have, from GRASS's traces: Spark does not tell how far
// a task is.
const tailBeta = 1.259

// reserve is the part of a deadline that is left for what follows the stages that read the input: reduces and output.
// How long they take is known once they are over.
const reserve = 0.1

// Promise is what an application has to keep.
type Promise struct {
	// Floor is the least part of a stage's partitions that must be done.
	Floor float64
	// Bounded tells that it has an error bound: it has what it needs once its floor is done.
	Bounded bool
	// Submitted is when its deadline began to run. Deadline is 0 for none.
	Submitted time.Time
	Deadline  time.Duration
}

// left is the time until its stages ought to end; false without a deadline.
func (p Promise) left(now time.Time) (time.Duration, bool) {
	due := p.Submitted.Add(p.Deadline - time.Duration(reserve*float64(p.Deadline)))
	return due.Sub(now), p.Deadline > 0
}

// End is the part of its partitions that a stage may leave out if it ends now.
func (p Promise) End(now time.Time) float64 {
	if left, dated := p.left(now); !p.Bounded && (!dated || left > 0) {
		return 0
	}
	return max(0, 1-p.Floor)
}

// Copies are the tasks of an application of which a second attempt is worth a free core, by the policy. Spark starts what
// waits before it starts copies, so stages in which tasks wait have none.
func (r Report) Copies(policy speculation.Policy, p Promise, now time.Time) []Copy {
	left, dated := p.left(now)
	if !dated && !p.Bounded {
		return nil
	}
	bound := speculation.Bound{ByDeadline: dated && left > 0 && !p.Bounded}
	if bound.ByDeadline {
		bound.Left = left
	}
	free := r.free()
	var copies []Copy
	for _, s := range r.Stages {
		if len(s.Attempts) == 0 || s.TypicalMS == 0 || s.Done+s.Running < s.Kept || s.Running > len(s.Attempts) {
			continue
		}
		if !bound.ByDeadline {
			bound.Error = s.error(p.Floor)
		}
		for _, partition := range s.copies(policy, bound, sum(free)) {
			if host := s.hostOf(partition); takes(free, host) {
				copies = append(copies, Copy{Stage: s.ID, Attempt: s.Attempt, Partition: partition})
			}
		}
	}
	return copies
}

// free are the cores of each host on which nothing runs.
func (r Report) free() map[string]int {
	free := make(map[string]int, len(r.CoresOn))
	for host, cores := range r.CoresOn {
		if n := cores - r.RunningOn[host]; n > 0 {
			free[host] = n
		}
	}
	return free
}

// takes uses up a free core of another host than this one: Spark puts no copy beside its original.
func takes(free map[string]int, not string) bool {
	best := ""
	for host, n := range free {
		if host != not && n > 0 && (best == "" || n > free[best] || n == free[best] && host < best) {
			best = host
		}
	}
	if best == "" {
		return false
	}
	free[best]--
	return true
}

func (s StageReport) hostOf(partition int) string {
	i := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.Partition == partition })
	return s.Attempts[i].Host
}

// copies are the partitions of a stage, all of whose tasks have begun, that get a free core.
func (s StageReport) copies(policy speculation.Policy, bound speculation.Bound, free int) []int {
	if free == 0 {
		return nil
	}
	typical := time.Duration(s.TypicalMS) * time.Millisecond
	v := speculation.View{Slots: free, Typical: typical, Bound: bound}
	running := make(map[int]*speculation.Task, len(s.Attempts))
	for _, a := range s.Attempts {
		left := leftOf(typical, time.Duration(a.MS)*time.Millisecond)
		if t := running[a.Partition]; t != nil {
			t.Copies, t.Remaining = t.Copies+1, min(t.Remaining, left)
			continue
		}
		running[a.Partition] = &speculation.Task{ID: a.Partition, State: speculation.Running, Copies: 1, Remaining: left, New: typical}
	}
	for id, t := range running {
		t.ID = id
		v.Tasks = append(v.Tasks, *t)
	}
	// Which partitions are done is not told, and of no matter: their numbers come after all others.
	slices.SortFunc(v.Tasks, func(a, b speculation.Task) int { return a.ID - b.ID })
	for i := range s.Done {
		v.Tasks = append(v.Tasks, speculation.Task{ID: numberMax + 1 + i, State: speculation.Done})
	}
	d, err := speculation.Decide(policy, v, nil)
	if err != nil {
		return nil // what makes no sense gets no copy
	}
	var partitions []int
	for _, a := range d.Actions {
		if t := running[a.Task]; a.Kind == speculation.Copy && t != nil && t.Copies == 1 {
			partitions = append(partitions, a.Task)
		}
	}
	return partitions
}

// error is the part of the stage's tasks that may be missing, of those that it computes.
func (s StageReport) error(floor float64) float64 {
	need := math.Ceil(float64(s.Partitions)*floor - 1e-9)
	return max(0, 1-need/float64(max(1, s.Kept)))
}

// leftOf is how long a task still takes: what is usual, and once it is late the median of a heavy tail.
func leftOf(typical, ran time.Duration) time.Duration {
	if ran < typical {
		return typical - ran
	}
	return time.Duration(float64(ran) * (math.Pow(2, 1/tailBeta) - 1))
}
