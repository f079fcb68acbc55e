package dispatch

// Copies pay where tasks straggle: jobs with Pareto task times, as in GRASS's traces, end sooner at their error bound and
// have more tasks done at their deadline than without copies.

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"headroom/jobs/speculation"
)

// trial runs a job of 100 tasks on ten nodes of two slots each. An attempt takes a time of its own, with a tail of exponent
// 1.259 from 2 s on; half of the nodes are capped at half of their power and take twice as long.
func trial(t *testing.T, p speculation.Policy, seed uint64, bound func(*Plan)) (e EndJob, took time.Duration) {
	t.Helper()
	k := newDriver(t)
	k.c = New(shared("high", "mid", "low"), 1, draws)
	k.c.Speculate(Speculation{Policy: p})
	nodes := []string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}
	for i, n := range nodes {
		k.c.Hello(k.now, n, 2, nil)
		if i%2 == 1 {
			k.c.SetCap(n, Cap{Cap: 100, Floor: 1, Max: 200})
		}
	}
	random := rand.New(rand.NewPCG(seed, 1))
	ends := make(map[Ref]time.Time)
	job := plan("j", "low", 100, 20)
	bound(&job)
	k.add(job)
	began := k.now
	for k.now.Sub(began) < 2*time.Hour {
		for _, a := range k.step(0) {
			switch a := a.(type) {
			case StartTask:
				whole := 2 * math.Pow(random.Float64(), -1/1.259) / k.c.speed(a.Node)
				ends[a.Ref] = k.now.Add(time.Duration(min(whole, 1e5) * float64(time.Second)))
			case Kill:
				delete(ends, a.Ref)
				k.c.Stopped(k.now, a.Node, a.Ref)
			}
		}
		if e, over := k.ended["j"]; over {
			return e, k.now.Sub(began)
		}
		k.now = k.now.Add(100 * time.Millisecond)
		for _, n := range nodes {
			k.c.Alive(k.now, n)
		}
		for _, r := range sortedRefs(refs(k.running)) {
			if !ends[r].After(k.now) {
				k.c.Result(k.now, k.running[r], r, "")
				delete(k.running, r)
			}
		}
	}
	t.Fatal("the job never ended")
	return EndJob{}, 0
}

func TestCopiesPay(t *testing.T) {
	t.Parallel()
	const trials = 12
	for name, x := range map[string]struct {
		bound func(*Plan)
		// better reports whether the policy does better than another: by how long its jobs took and how many tasks they did.
		better func(took, done, otherTook, otherDone float64) bool
	}{
		"all tasks": {
			func(p *Plan) { p.MinTasks, p.ErrorBound = 1, true },
			func(took, _, other, _ float64) bool { return took < 0.9*other },
		},
		"error of 10 %": {
			func(p *Plan) { p.MinTasks, p.ErrorBound = 0.9, true },
			func(took, _, other, _ float64) bool { return took < other },
		},
		"deadline": {
			func(p *Plan) { p.MinTasks, p.Deadline = 0.1, start.Add(30*time.Second) },
			func(_, done, _, other float64) bool { return done > other },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			took, done := make(map[speculation.Policy]float64), make(map[speculation.Policy]float64)
			for _, p := range []speculation.Policy{speculation.Ours, speculation.LATE, speculation.None} {
				wasted := 0.0
				for seed := range uint64(trials) {
					e, d := trial(t, p, seed, x.bound)
					took[p] += d.Seconds() / trials
					done[p] += float64(e.Done) / trials
					wasted += e.Wasted.Total().Seconds() / (e.Wasted.Total() + e.Work).Seconds() / trials
				}
				t.Logf("%-5s %6.1f s, %5.1f tasks done, %4.1f %% of the slot time wasted", p, took[p], done[p], 100*wasted)
			}
			for _, other := range []speculation.Policy{speculation.LATE, speculation.None} {
				if !x.better(took[speculation.Ours], done[speculation.Ours], took[other], done[other]) {
					t.Errorf("ours is no better than %s", other)
				}
			}
		})
	}
}
