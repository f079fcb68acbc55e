package dispatch

// Shares decide who gets free slots first, and none is idle for them; a job that may end on fewer tasks starts last what
// a ratio would give up first.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/buffers"
)

// counts are the running tasks of each job, "a=2 b=1".
func (k *driver) counts() string {
	n := map[string]int{}
	for r := range k.running {
		n[r.Job]++
	}
	var parts []string
	for job, x := range n {
		parts = append(parts, fmt.Sprintf("%s=%d", job, x))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func TestSharesComeBeforeClassAndArrival(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		shares []Share
		want   string
	}{
		"no shares":            {nil, "a=6"},
		"in their order":       {[]Share{{Job: "c", Slots: 3}, {Job: "b", Slots: 2}, {Job: "a", Slots: 1}}, "a=1 b=2 c=3"},
		"what is left over":    {[]Share{{Job: "c", Slots: 2}, {Job: "b", Slots: 1}}, "b=1 c=5"},
		"a share of nothing":   {[]Share{{Job: "b", Slots: 0}, {Job: "c", Slots: 1}}, "c=6"},
		"more than it can use": {[]Share{{Job: "b", Slots: 100}, {Job: "a", Slots: 100}}, "b=6"},
		"nobody knows them":    {[]Share{{Job: "x", Slots: 3}, {Job: "y", Slots: 9}}, "a=6"},
		"named twice":          {[]Share{{Job: "c", Slots: 1}, {Job: "c", Slots: 5}, {Job: "b", Slots: 5}}, "b=5 c=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newDriver(t)
			k.c.Hello(k.now, "n1", 6, nil)
			for _, id := range []string{"a", "b", "c"} {
				k.add(plan(id, "low", 20, 20))
			}
			k.c.Share(x.shares)
			k.step(0)
			if got := k.counts(); got != x.want || k.c.Capacity() != 6 {
				t.Errorf("running %s of %d slots, want %s", got, k.c.Capacity(), x.want)
			}
		})
	}
}

// Slots that get free go by shares to jobs that run: none is taken away.
func TestSharesMoveAsTasksEnd(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 4, nil)
	k.add(plan("a", "low", 20, 20))
	k.add(plan("b", "low", 20, 20))
	k.step(0)
	k.c.Share([]Share{{Job: "b", Slots: 3}, {Job: "a", Slots: 1}})
	k.step(0)
	if got := k.counts(); got != "a=4" {
		t.Fatalf("running %s: a share takes no slot away", got)
	}
	for i, want := range []string{"a=3 b=1", "a=2 b=2", "a=1 b=3", "a=1 b=3"} {
		k.finish("a", PhaseMap, i, "")
		if got := k.counts(); got != want {
			t.Errorf("after %d tasks of a: %s, want %s", i+1, got, want)
		}
	}
}

// Among shares a job of a higher class gets the first slot that is free, before running jobs of lower ones; without shares
// a running job leaves no slot that it can use.
func TestHigherClassBeginsFirst(t *testing.T) {
	t.Parallel()
	for _, shares := range [][]Share{{{Job: "a", Slots: 2}}, {{Job: "a", Slots: 1}, {Job: "x", Slots: 1}}} {
		k := newDriver(t)
		k.c.Hello(k.now, "n1", 2, nil)
		k.add(plan("a", "low", 20, 20))
		k.c.Share(shares)
		k.step(0)
		k.add(plan("l", "low", 20, 20))
		k.add(plan("u", "high", 1, 1))
		k.step(0)
		k.finish("a", PhaseMap, 0, "")
		if got := k.counts(); got != "a=1 u=1" {
			t.Errorf("shares %v: running %s, want a=1 u=1", shares, got)
		}
		k.finish("u", PhaseMap, 0, "")
		if got := k.counts(); got != "a=2" {
			t.Errorf("shares %v: running %s, want a=2", shares, got)
		}
	}
}

// A ratio that rises when most tasks have begun still finds the tasks that it would have given up at the start.
func TestLateRatioFindsItsTasks(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 3, nil)
	p := plan("a", "low", 20, 20)
	p.MinTasks = 0.5
	k.add(p)
	k.step(0)
	for range 8 { // of 20: 3 run, 9 wait
		for r := range k.running {
			k.finish(r.Job, r.Phase, r.Index, "")
			break
		}
	}
	testkit.Check(t, k.c.Deflate("a", 0.4, buffers.Seed("a"), "late"))
	var dropped []int
	for _, a := range k.step(0) {
		if x, is := a.(DropTasks); is {
			dropped = append(dropped, x.Indexes...)
		}
	}
	want := slices.Sorted(slices.Values(DropOrder(20, draws(buffers.Seed("a")))[:8]))
	if !slices.Equal(dropped, want) {
		t.Errorf("dropped %v, want %v, as at its start", dropped, want)
	}
}
