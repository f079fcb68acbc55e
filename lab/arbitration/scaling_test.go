// Claims: the machines slow jobs by their true curve, at every moment; who learns finds the peak from runs alone, and holds
// no job beyond what it learned; knowing how jobs scale lowers the arbiter's cost; loads without curves are as they were.
package arbitration

import (
	"math"
	"strings"
	"testing"
	"time"

	"headroom/jobs/containers"
	"headroom/jobs/scaling/runs"
	"headroom/units"

	"headroom/internal/testkit"
)

// bound lets a job hold so many containers, others from a moment on.
type bound struct {
	first, then int
	at          time.Duration
}

func (b *bound) look(*run) {}

func (b *bound) pick(r *run) *job {
	most := b.first
	if r.now() >= b.at {
		most = b.then
	}
	if len(r.live) == 0 {
		return nil
	}
	j := r.live[0]
	if j.pending() == 0 || len(j.running) >= most {
		return nil
	}
	return j
}

func TestMachinesSlowJobsByTheirCurves(t *testing.T) {
	t.Parallel()
	one := func(n int, b *bound) float64 {
		l := Load{Containers: perServer, For: time.Second, Budget: []Step{{0, 350 * units.Watt}}, Jobs: func(uint64) []Job {
			return []Job{{Class: Tolerant, Tasks: 20 * n, Task: time.Second, Floor: 1, Name: "x", Scales: typeIV}}
		}}
		r := newRun(&l, 1, b)
		for i := range r.jobs[0].times {
			r.jobs[0].times[i] = 1
		}
		if !r.run() {
			t.Fatal("it does not end")
		}
		return r.jobs[0].end.Seconds()
	}
	for _, n := range []int{1, 7, 14, 28} {
		if got, want := one(n, &bound{first: n, then: n}), 20*typeIV.slowness(n); math.Abs(got-want) > 0.02*want {
			t.Errorf("20 waves on %d containers take %v s, want %v", n, got, want)
		}
	}
	// Half of the work on 14, the rest on 28: tasks that run change their pace when others begin.
	half := 10 * typeIV.slowness(14)
	if got, want := one(14, &bound{first: 14, then: 28, at: seconds(half)}), half+5*typeIV.slowness(28); math.Abs(got-want) > 0.1*want {
		t.Errorf("first on 14, then on 28: %v s, want about %v", got, want)
	}
}

// learns checks that no job holds more than it is advised.
type learns struct {
	decider

	t *testing.T
}

func (x learns) look(r *run) {
	x.decider.look(r)
	for _, j := range r.live {
		if p := j.curve.Peak(); p > 0 && len(j.running) > p {
			x.t.Errorf("at %v: %s runs %d tasks, its peak is %d", r.now(), j.id, len(j.running), p)
		}
	}
}

func TestKnowingHowJobsScalePays(t *testing.T) {
	t.Parallel()
	testkit.Slow(t)
	l := scalingLoad()
	cost := map[bool]float64{}
	for _, knows := range []bool{false, true} {
		r := newRun(&l, 3, learns{member(noPrice, usual).decide(), t})
		if knows {
			r.book = &runs.Book{}
		}
		if !r.run() {
			t.Fatal("jobs have not ended")
		}
		cost[knows] = r.figures()[WeightedS]
		if !knows {
			continue
		}
		a := r.book.Advise("type-IV", false)
		if a == nil {
			t.Fatal("nothing is known of type IV")
		}
		c, err := containers.NewCurve(a.Points)
		if err != nil || c.Peak() < 11 || c.Peak() > 18 {
			t.Errorf("a peak of %d, the machines have 14: %v", c.Peak(), err)
		}
		for _, name := range []string{"type-I", "type-II"} {
			if a := r.book.Advise(name, false); a != nil && a.Type == "IV" {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	if cost[true] >= cost[false] {
		t.Errorf("costs %.2f weighted seconds with curves, %.2f without", cost[true], cost[false])
	}
}

func TestScalingCommand(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"[load scaling] were all set":    {"--scaling", "--load", "steady"},
		"--seeds 1: must be from 2":      {"--scaling", "--seeds", "1"},
		"[optimum scaling] were all set": {"--scaling", "--optimum"},
	} {
		if text, err := execute(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v\n%s", args, err, text)
		}
	}
}
