package sparkapp

import (
	"maps"
	"math"
	"slices"
	"time"

	"headroom/internal/each"
	"headroom/jobs/speculation"
	"headroom/units"
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
	// Bounded reports that it has an error bound: it has what it needs once its floor is done.
	Bounded bool
	// Submitted is when its deadline began to run. Deadline is 0 for none.
	Submitted time.Time
	Deadline  time.Duration
}

// left returns the time until its stages ought to end; false without a deadline.
func (p Promise) left(now time.Time) (time.Duration, bool) {
	due := p.Submitted.Add(p.Deadline - time.Duration(reserve*float64(p.Deadline)))
	return due.Sub(now), p.Deadline > 0
}

// End returns the part of its partitions that a stage may leave out if it ends now.
func (p Promise) End(now time.Time) float64 {
	if left, dated := p.left(now); !p.Bounded && (!dated || left > 0) {
		return 0
	}
	return max(0, 1-p.Floor)
}

// Copies returns the tasks of an application of which a second attempt is worth a free core, by the policy. Spark starts what
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
		running := s.tasks()
		if len(running) == 0 || s.TypicalMS == 0 || s.Done+len(running) < s.Kept || s.Running > len(s.Attempts) {
			continue
		}
		if !bound.ByDeadline {
			bound.Error = s.error(p.Floor, len(running))
		}
		for _, partition := range copied(policy, speculation.View{Bound: bound, Slots: sum(free), Typical: s.typical(), Tasks: running}) {
			if takes(free, s.hostOf(partition)) {
				copies = append(copies, Copy{Stage: s.ID, Attempt: s.Attempt, Partition: partition})
			}
		}
	}
	return copies
}

// free returns the cores of each host on which nothing runs.
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

func (s stageReport) hostOf(partition int) string {
	i := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.Partition == partition })
	return s.Attempts[i].Host
}

// copies returns how many of its tasks have a second attempt.
func (s stageReport) copies() (n int) {
	for _, t := range s.tasks() {
		if t.Copies > 1 {
			n++
		}
	}
	return n
}

func (s stageReport) typical() time.Duration { return time.Duration(s.TypicalMS) * time.Millisecond }

// tasks returns those of the stage that run, by their partitions.
func (s stageReport) tasks() []speculation.Task {
	running := make(map[int]speculation.Task, len(s.Attempts))
	for _, a := range s.Attempts {
		left := leftOf(s.typical(), time.Duration(a.MS)*time.Millisecond)
		t, more := running[a.Partition]
		if more {
			left = min(left, t.Remaining)
		}
		running[a.Partition] = speculation.Task{ID: a.Partition, State: speculation.Running, Copies: t.Copies + 1, Remaining: left, New: s.typical()}
	}
	return each.List(slices.Sorted(maps.Keys(running)), func(id int) speculation.Task { return running[id] })
}

// copied returns the partitions that get a free core. What is invalid gets none.
func copied(policy speculation.Policy, v speculation.View) (partitions []int) {
	if v.Slots == 0 {
		return nil
	}
	d, err := speculation.Decide(policy, v, nil)
	if err != nil {
		return nil
	}
	for _, a := range d.Actions {
		i := slices.IndexFunc(v.Tasks, func(t speculation.Task) bool { return t.ID == a.Task })
		if a.Kind == speculation.Copy && i >= 0 && v.Tasks[i].Copies == 1 {
			partitions = append(partitions, a.Task)
		}
	}
	return partitions
}

// error returns the part of the tasks that run that may be missing: what is done counts towards the floor.
func (s stageReport) error(floor float64, running int) float64 {
	need := units.Ratio(floor).Of(s.Partitions) - s.Done
	return min(1, max(0, 1-float64(need)/float64(max(1, running))))
}

// leftOf returns how long a task still takes: what is usual, and once it is late the median of a heavy tail.
func leftOf(typical, ran time.Duration) time.Duration {
	if ran < typical {
		return typical - ran
	}
	return time.Duration(float64(ran) * (math.Pow(2, 1/tailBeta) - 1))
}
