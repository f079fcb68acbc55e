package dispatch

import (
	"fmt"
	"slices"

	"headroom/jobs/dispatch/pigeon"
)

// Policy is how tasks are dispatched.
type Policy string

// The policies.
const (
	Pigeon  Policy = "pigeon"  // splits jobs evenly over the groups
	Sparrow Policy = "sparrow" // probes two workers a task
	Eagle   Policy = "eagle"   // places long jobs centrally and probes for short ones
	Central Policy = "central" // is Pigeon with one group
	// Ours is Pigeon with splits in proportion to the groups' learned power, the remainder to where least is ahead.
	Ours Policy = "ours"
	// OursWeighted splits in proportion to the groups' learned power, without their queues.
	OursWeighted Policy = "ours-weighted"
	// Queues is Pigeon with groups leveled by what is ahead there over their slots, without learned power.
	Queues Policy = "queues"
	// TwoQueues places each task in the shorter of two random groups' queues.
	TwoQueues Policy = "two-queues"
)

// Policies returns all policies.
func Policies() []Policy {
	return []Policy{Pigeon, Sparrow, Eagle, Central, Ours, OursWeighted, Queues, TwoQueues}
}

// spread is how the distributors of a policy with groups split.
func (p Policy) spread() pigeon.Spread {
	switch p {
	case Ours:
		return pigeon.Balanced
	case Queues:
		return pigeon.Level
	case OursWeighted:
		return pigeon.Weighted
	case TwoQueues:
		return pigeon.Shorter
	default:
		return pigeon.Even
	}
}

// learns reports whether its distributors learn the groups' power.
func (p Policy) learns() bool { return p == Ours || p == OursWeighted }

// Usual values.
const (
	// HopUsual is the paper's time between two nodes, s.
	HopUsual = 0.0005
	// DistributorsUsual is how many schedulers the paper's experiment has.
	DistributorsUsual = 10
)

// Setup describes a simulation.
type Setup struct {
	Policy  Policy
	Workers int
	// Groups of workers, and how many of each are reserved for short jobs. Sparrow ignores both; Eagle and Central take the product as one
	// reserve.
	Groups, Reserved int
	// W is Pigeon's weight; 0 is strict priority.
	W         int
	Placement pigeon.Placement
	// Cutoff is the mean task time up to which a job is short, s. Hop is the time between two nodes, s.
	Cutoff, Hop  float64
	Distributors int
	Seed         uint64
	// Stretch multiplies the arrivals; 0 is 1.
	Stretch float64
	// SRPT and SBP are options of Eagle.
	SRPT, SBP bool
	// Caps are the caps of the groups, in the order of their times. Groups begin uncapped.
	Caps []Cap
	// Ended, if set, is called with each job as it ends.
	Ended func(Ended)
}

// Cap is the effect of a power cap on a group from a given time on.
type Cap struct {
	At    float64 // s, after stretching
	Group int
	// Speed of the slots; 1 is the trace's.
	Speed float64
	// Usable slots. The others take no tasks; none is killed.
	Usable int
}

// Ended is a job that has ended. Times are in seconds.
type Ended struct {
	// Index counts the jobs as they arrive, from 0.
	Index int
	Tasks int
	// Completion counts from arrival to the last result, Longest is the time of the longest task.
	Completion, Longest float64
}

// Size is how many workers a group has. Sizes differ by at most one.
func (s *Setup) Size(group int) int { return (group+1)*s.Workers/s.Groups - group*s.Workers/s.Groups }

// check returns an error for values that do not fit each other.
func (s *Setup) check() error {
	switch {
	case !slices.Contains(Policies(), s.Policy):
		return fmt.Errorf("unknown policy %q: must be one of %v", s.Policy, Policies())
	case s.Groups < 1 || s.Groups > s.Workers:
		return fmt.Errorf("groups is %d: must be from 1 to %d, the number of workers", s.Groups, s.Workers)
	case s.Reserved < 0 || s.Reserved > s.Workers/s.Groups:
		return fmt.Errorf("reserved is %d per group: must be from 0 to %d, the workers of a group", s.Reserved, s.Workers/s.Groups)
	case s.Policy != Sparrow && s.Reserved*s.Groups == s.Workers:
		return fmt.Errorf("reserved is %d per group, which is every worker: long jobs would never run", s.Reserved)
	case s.Policy == Eagle && s.Reserved == 0:
		return fmt.Errorf("reserved is 0: policy eagle needs at least 1 per group for its short partition")
	case len(s.Caps) > 0 && (s.Policy == Sparrow || s.Policy == Eagle || s.Policy == Central):
		return fmt.Errorf("caps: policy %s has no groups to cap", s.Policy)
	}
	last := 0.0
	usable := make([]int, s.Groups)
	for g := range usable {
		usable[g] = s.Size(g)
	}
	for i, c := range s.Caps {
		switch {
		case c.Group < 0 || c.Group >= s.Groups:
			return fmt.Errorf("caps[%d].group is %d: must be from 0 to %d", i, c.Group, s.Groups-1)
		case c.At < last:
			return fmt.Errorf("caps[%d].at_s is %v: must be at least %v, because caps are in order of time", i, c.At, last)
		case c.Usable < 0 || c.Usable > s.Size(c.Group):
			return fmt.Errorf("caps[%d].usable is %d: group %d has %d slots", i, c.Usable, c.Group, s.Size(c.Group))
		}
		last, usable[c.Group] = c.At, c.Usable
	}
	for g, n := range usable {
		if n <= s.Reserved {
			return fmt.Errorf("caps leave group %d with %d slots, of which %d are reserved: its long tasks would never run", g, n, s.Reserved)
		}
	}
	return nil
}
