// Claims: a long task goes where it would begin first, and never to the short partition; a worker with a long task rejects short probes and
// returns the newest view; rejected probes go where the view shows no long task, in the end to the short partition; with SBP a worker
// stays with a job until it has no task left; with SRPT the job with the least work left is served first, and no probe is overtaken by more than
// its bound; probes go to distinct workers as long as there are enough, each as likely; a worker serves short probes in order, one at a time.
package eagle

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each task is placed as if one looked at all workers.
func TestCentralPlacesWhereFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(2, 9).Draw(t, "workers")
		short := rapid.IntRange(0, workers-1).Draw(t, "short")
		c := NewCentral(workers, short)
		queues := make([][]float64, workers) // estimates; the first may run
		since := make([]float64, workers)    // negative: none runs
		for w := range since {
			since[w] = -1
		}
		sequence, now := uint64(0), 0.0
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			now++
			if rapid.Bool().Draw(t, "place") {
				estimate := float64(rapid.IntRange(1, 9).Draw(t, "estimate"))
				got, view := c.Place(now, rapid.IntRange(1, 6).Draw(t, "tasks"), estimate)
				for _, w := range got {
					if want := first(queues, since, short, now); w != want {
						t.Fatalf("worker %d, want %d of %v", w, want, queues)
					}
					queues[w] = append(queues[w], estimate)
				}
				for w := range queues {
					if view.Long(w) != (len(queues[w]) > 0) {
						t.Fatalf("view of worker %d: %v, it has %v", w, view.Long(w), queues[w])
					}
				}
				if view.Sequence <= sequence {
					t.Fatalf("sequence %d after %d", view.Sequence, sequence)
				}
				sequence = view.Sequence
				continue
			}
			w := rapid.IntRange(0, workers-1).Draw(t, "worker")
			switch {
			case len(queues[w]) == 0:
			case since[w] < 0:
				c.Started(w, now, queues[w][0])
				since[w] = now
			default:
				c.Ended(w, queues[w][0])
				queues[w], since[w] = queues[w][1:], -1
			}
		}
	})
}

// first is the worker outside the short partition that would begin a task first.
func first(queues [][]float64, since []float64, short int, now float64) int {
	best, least := -1, 0.0
	for w := short; w < len(queues); w++ {
		wait := 0.0
		for i, x := range queues[w] {
			if i == 0 && since[w] >= 0 {
				x = max(0, x-(now-since[w]))
			}
			wait += x
		}
		if best < 0 || wait < least {
			best, least = w, wait
		}
	}
	return best
}

func TestRejectedProbesGoElsewhere(t *testing.T) {
	t.Parallel()
	const workers, short = 200, 10
	p := NewProber(rand.New(rand.NewPCG(3, 3)), workers, short)
	c := NewCentral(workers, short)
	_, view := c.Place(0, 150, 100) // 40 of 190 are left
	for range 200 {
		for _, w := range p.Again(5, 1, view) {
			if view.Long(w) {
				t.Fatalf("worker %d has a long task", w)
			}
		}
		for _, w := range p.Again(5, Rounds, view) {
			if w >= short {
				t.Fatalf("worker %d is not in the short partition", w)
			}
		}
	}
	_, full := NewCentral(workers, 1).Place(0, workers, 1)
	if got := p.Again(3, 1, full); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("probes %v, but only worker 0 has no long task", got)
	}
	if got := p.First(7); len(got) != 14 {
		t.Errorf("%d probes for 7 tasks", len(got))
	}
}

func TestNodeRejectsBehindLong(t *testing.T) {
	t.Parallel()
	n := NewNode[string](false, false, nil)
	_, view := NewCentral(4, 0).Place(0, 1, 1)
	if !n.Probe(Probe[string]{To: "short"}) || !n.Probe(Probe[string]{To: "long", View: view}) {
		t.Fatal("an idle node rejects")
	}
	serve := func(want string) {
		t.Helper()
		if p, ok := n.Next(); !ok || p.To != want {
			t.Fatalf("serves %q %v, want %q", p.To, ok, want)
		}
		n.Bound(true)
		if n.Probe(Probe[string]{To: "late"}) || n.View() != view {
			t.Fatalf("a short probe waits with a long task, at %q", want)
		}
		n.End()
	}
	serve("short")
	serve("long")
	if !n.Probe(Probe[string]{To: "late"}) {
		t.Fatal("rejects after the long task has ended")
	}
	if p, ok := n.Next(); !ok || p.To != "late" {
		t.Fatalf("serves %q %v", p.To, ok)
	}
	n.Bound(false)
	if p, ok := n.Next(); ok {
		t.Fatalf("serves %q again, for which there was no task", p.To)
	}
}

func TestStickyBatch(t *testing.T) {
	t.Parallel()
	n := NewNode[string](false, true, nil)
	n.Probe(Probe[string]{To: "a"})
	n.Probe(Probe[string]{To: "b"})
	for step, want := range []string{"a", "a", "a", "b"} {
		p, ok := n.Next()
		if !ok || p.To != want {
			t.Fatalf("step %d serves %q %v, want %q", step, p.To, ok, want)
		}
		if step < 2 {
			n.Bound(true)
			n.End()
		} else {
			n.Bound(false)
		}
	}
}

// However jobs come, none is overtaken by more than DelayMost times its task time plus one task, and without that bound in the way the one with the
// least work is next.
func TestShortestFirst(t *testing.T) {
	t.Parallel()
	type job struct{ left, estimate, overtaken float64 }
	rapid.Check(t, func(t *rapid.T) {
		jobs := []*job{}
		n := NewNode(true, false, func(j *job) float64 { return j.left })
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "arrives") {
				j := &job{left: float64(rapid.IntRange(0, 50).Draw(t, "left")), estimate: float64(rapid.IntRange(1, 5).Draw(t, "estimate"))}
				if n.Probe(Probe[*job]{To: j, Estimate: j.estimate}) {
					jobs = append(jobs, j)
				}
				continue
			}
			p, ok := n.Next()
			jobs = slices.DeleteFunc(jobs, func(j *job) bool { return j.left <= 0 })
			if ok != (len(jobs) > 0) {
				t.Fatalf("serves %v with %d jobs", ok, len(jobs))
			}
			if !ok {
				continue
			}
			at := slices.Index(jobs, p.To)
			for _, j := range jobs[:at] {
				j.overtaken += p.Estimate
				if j.overtaken > DelayMost*j.estimate {
					t.Fatalf("%+v is overtaken too much", *j)
				}
			}
			if at == 0 { // only the bound keeps a shorter one from it
				for i, j := range jobs[1:] {
					if j.left < p.To.left && !slices.ContainsFunc(jobs[:i+1], func(a *job) bool { return a.overtaken+j.estimate > DelayMost*a.estimate }) {
						t.Fatalf("%+v is served before %+v", *p.To, *j)
					}
				}
			}
			n.Bound(true)
			n.End()
			jobs = slices.Delete(jobs, at, at+1)
		}
	})
}

func TestProbesAreDistinct(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 40).Draw(t, "workers")
		p := NewProber(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), workers, 0)
		tasks := rapid.IntRange(0, 50).Draw(t, "tasks")
		count := map[int]int{}
		for _, w := range p.First(tasks) {
			count[w]++
		}
		total := 0
		for w, c := range count {
			total += c
			if w < 0 || w >= workers || c > (2*tasks+workers-1)/workers {
				t.Fatalf("worker %d of %d has %d of %d probes", w, workers, c, 2*tasks)
			}
		}
		if total != 2*tasks {
			t.Fatalf("%d probes, want %d", total, 2*tasks)
		}
	})
}

func TestProbesAreUniform(t *testing.T) {
	t.Parallel()
	const draws, workers, tasks = 20_000, 10, 2
	p := NewProber(rand.New(rand.NewPCG(1, 2)), workers, 0)
	var count [workers]float64
	for range draws {
		for _, w := range p.First(tasks) {
			count[w]++
		}
	}
	for w, c := range count { // five standard deviations
		if mean := 2 * draws * tasks / float64(workers); math.Abs(c-mean) > 5*math.Sqrt(mean) {
			t.Errorf("worker %d is probed %v times of %v", w, c, mean)
		}
	}
}

func TestNodeServesInOrder(t *testing.T) {
	t.Parallel()
	n := NewNode[int](false, false, nil)
	next, served := 0, 0
	for step := range 500 {
		for range step % 4 {
			next++
			n.Probe(Probe[int]{To: next})
		}
		p, ok := n.Next()
		if ok != (served < next) || ok && p.To != served+1 {
			t.Fatalf("serves %d %v after %d of %d", p.To, ok, served, next)
		}
		if !ok {
			continue
		}
		served++
		if _, again := n.Next(); again {
			t.Fatal("serves two at once")
		}
		n.Bound(step%2 == 0)
		if step%2 == 0 {
			n.End()
		}
	}
}
