// Claims: each task of a job is given out once, in order, to workers that ask; a job without tasks is told from a later one in its place;
// probes go to distinct workers as long as there are enough, each as likely; a worker serves its probes in order, one at a time.
package sparrow

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTasksAreBoundOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var jobs Jobs[int]
		left := map[Job][]int{}
		var all []Job
		next := 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) == 0 || rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				var tasks []int
				for range rapid.IntRange(0, 4).Draw(t, "tasks") {
					next++
					tasks = append(tasks, next)
				}
				id := jobs.Submit(tasks)
				if slices.Contains(all, id) {
					t.Fatalf("job %x is there twice", id)
				}
				all = append(all, id)
				left[id] = slices.Clone(tasks)
				clear(tasks) // the caller may reuse it
				continue
			}
			id := rapid.SampledFrom(all).Draw(t, "job")
			task, ok := jobs.Bind(id)
			if want := left[id]; ok != (len(want) > 0) || ok && task != want[0] {
				t.Fatalf("bound %d %v of %v", task, ok, want)
			} else if ok {
				left[id] = want[1:]
			}
			if got := jobs.Left(id); got != len(left[id]) {
				t.Fatalf("%d left, want %d", got, len(left[id]))
			}
		}
	})
}

func TestProbesAreDistinct(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, workers := rapid.IntRange(0, 5).Draw(t, "first"), rapid.IntRange(1, 40).Draw(t, "workers")
		s := NewSampler(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), first, workers)
		n := rapid.IntRange(0, 100).Draw(t, "n")
		count := map[int]int{}
		for _, w := range s.Draw(n) {
			if w < first || w >= first+workers {
				t.Fatalf("worker %d of %d from %d", w, workers, first)
			}
			count[w]++
		}
		total := 0
		for w, c := range count {
			total += c
			if c > (n+workers-1)/workers {
				t.Fatalf("worker %d has %d of %d probes", w, c, n)
			}
		}
		if total != n {
			t.Fatalf("%d probes, want %d", total, n)
		}
	})
}

func TestProbesAreUniform(t *testing.T) {
	t.Parallel()
	const draws, workers, each = 20_000, 10, 3
	s := NewSampler(rand.New(rand.NewPCG(1, 2)), 0, workers)
	var count [workers]float64
	for range draws {
		for _, w := range s.Draw(each) {
			count[w]++
		}
	}
	for w, c := range count { // five standard deviations
		if mean := draws * each / float64(workers); math.Abs(c-mean) > 5*math.Sqrt(mean) {
			t.Errorf("worker %d is probed %v times of %v", w, c, mean)
		}
	}
}

func TestNodeServesInOrder(t *testing.T) {
	t.Parallel()
	var n Node[int]
	next, served := 0, 0
	for step := range 500 {
		for range step % 4 {
			next++
			n.Probe(next)
		}
		p, ok := n.Next()
		if ok != (served < next) || ok && p != served+1 {
			t.Fatalf("serves %d %v after %d of %d", p, ok, served, next)
		}
		if !ok {
			continue
		}
		served++
		if _, again := n.Next(); again {
			t.Fatal("serves two at once")
		}
		n.Free()
		if n.Waiting() != next-served {
			t.Fatalf("%d wait, want %d", n.Waiting(), next-served)
		}
	}
}
