// Claims: every way to decide runs the same jobs lawfully: joules are there before they are spent, no machine exceeds
// its cap, floors are kept, each task runs to its end once, and all jobs end; a seed gives the same figures again,
// however many CPUs there are.
package arbitration

import (
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"headroom/units"
)

// watched checks a run whenever its decider runs.
type watched struct {
	decider

	t    *testing.T
	name string
}

func (w watched) look(r *run) {
	w.check(r)
	w.decider.look(r)
	w.check(r)
}

func (w watched) check(r *run) {
	w.t.Helper()
	escrow := 0.0
	if r.sprint != nil {
		escrow = r.sprint.escrow
	}
	if r.pot < -1e-6 || r.pot+escrow > r.potMost+1e-6 {
		w.t.Fatalf("%s at %v: %v J and %v J put aside of %v J", w.name, r.now(), r.pot, escrow, r.potMost)
	}
	for _, n := range r.nodes {
		if n.running.Len() > n.containers || n.down && n.running.Len() > 0 || n.draws > max(n.cap, n.floor())+units.Watt {
			w.t.Fatalf("%s at %v: %s runs %d of %d and draws %v of %v", w.name, r.now(), n.name, n.running.Len(), n.containers, n.draws, n.cap)
		}
	}
	for _, j := range r.live {
		if j.done+j.dropped+len(j.running)+j.pending() != len(j.times) {
			w.t.Fatalf("%s at %v: %s has %d done, %d dropped, %d running and %d pending of %d tasks", w.name, r.now(), j.id, j.done, j.dropped, len(j.running), j.pending(), len(j.times))
		}
	}
}

// everyVariant are all ways to decide.
func everyVariant() (out []variant) {
	for _, b := range baselines() {
		out = append(out, b.with(0), b.with(20*time.Second))
	}
	return append(out, shown()...)
}

func TestRunsAreLawful(t *testing.T) {
	t.Parallel()
	for i, l := range Loads() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			for k, v := range everyVariant() {
				if k%3 != i%3 {
					continue // each load with a third of them
				}
				r := newRun(&l, 7, watched{v.decide(), t, v.name})
				if !r.run() {
					t.Fatalf("%s: jobs have not ended", v.name)
				}
				if most := r.potMost + r.refill*r.now().Seconds(); r.spent > most || r.spent < 0 || r.energy <= 0 {
					t.Errorf("%s: %v J are spent of %v J, %v J in all", v.name, r.spent, most, r.energy)
				}
				for _, j := range r.jobs {
					if j.end == 0 || j.end < j.Arrival || j.done+j.dropped != len(j.times) || j.done < units.Ratio(j.Floor).Least(len(j.times)) {
						t.Errorf("%s: %s ends at %v with %d of %d tasks, floor %v", v.name, j.id, j.end, j.done, len(j.times), j.Floor)
					}
				}
			}
		})
	}
}

func TestSameSeedSameFigures(t *testing.T) {
	t.Parallel()
	l := Loads()[3]
	variants := []variant{baselines()[0].with(0), member(3*time.Second, usual)}
	var alone [][]map[string]float64
	for _, v := range variants {
		var of []map[string]float64
		for seed := range uint64(2) {
			r := newRun(&l, 5+seed, v.decide())
			r.run()
			of = append(of, r.figures())
		}
		alone = append(alone, of)
	}
	results, err := runAll(t.Context(), &l, variants, seedRange{5, 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, res := range results {
		for name, each := range res.each {
			if !slices.Equal(each, []float64{alone[i][0][name], alone[i][1][name]}) {
				t.Errorf("%s, %s: %v on %d processors, %v and %v alone", res.Name, name, each, runtime.GOMAXPROCS(0), alone[i][0][name], alone[i][1][name])
			}
		}
	}
	if reflect.DeepEqual(l.Jobs(1), l.Jobs(2)) || len(l.Jobs(1)) == 0 {
		t.Error("two seeds give the same jobs")
	}
}

// The machines follow their power model: at full power at full speed, slower with less, and a few busy containers
// need less power for the same speed.
func TestMachines(t *testing.T) {
	t.Parallel()
	last := 0.0
	for w := 80; w <= 400; w += 10 {
		speed, draws := speedAt(units.Power(w)*units.Watt, idleServer, ratedServer, perServer, perServer)
		few, _ := speedAt(units.Power(w)*units.Watt, idleServer, ratedServer, perServer, 7)
		if speed < last || speed > 1 || few < speed || w >= 113 && draws > units.Power(w)*units.Watt+1 {
			t.Errorf("%d W: speed %v, %v of 7 containers, draws %v", w, speed, few, draws)
		}
		last = speed
	}
	if speed, draws := speedAt(250*units.Watt, idleServer, ratedServer, perServer, perServer); math.Abs(speed-atBase) > 1e-9 || draws != 250*units.Watt {
		t.Errorf("speed %v at %v", speed, draws)
	}
}

func TestLoads(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, l := range Loads() {
		jobs := l.Jobs(1)
		if names[l.Name] || len(jobs) < 10 || len(l.Budget) == 0 || l.Budget[0].At != 0 {
			t.Errorf("%s: %d jobs", l.Name, len(jobs))
		}
		names[l.Name] = true
		if !slices.IsSortedFunc(jobs, func(a, b Job) int { return int(a.Arrival - b.Arrival) }) || jobs[len(jobs)-1].Arrival > l.For+time.Minute {
			t.Errorf("%s: jobs are not in order, or late", l.Name)
		}
	}
	low, high := traced()[0].Budget, traced()[0].Budget
	for _, s := range traced() {
		low, high = min(low, s.Budget), max(high, s.Budget)
	}
	if low != 160*units.Watt || high != 300*units.Watt || len(traced()) != 24 {
		t.Errorf("the trace goes from %v to %v", low, high)
	}
}

// The objective of the study and that of the arbiter weigh alike.
func TestCost(t *testing.T) {
	t.Parallel()
	u := Job{Class: Urgent, Tasks: 100, Deadline: 10 * time.Second, Floor: 1}
	if got := u.cost(14*time.Second, 0); got != 14+2*4 {
		t.Errorf("4 s late: %v", got)
	}
	j := Job{Class: Tolerant, Tasks: 100, Floor: 0.6}
	// 40 percents cost 3 s each in the mean, the first half of that, the last one and a half.
	if got := j.cost(100*time.Second, 40); math.Abs(got-(100+40*3)/20.0) > 1e-9 {
		t.Errorf("all that may be given up: %v", got)
	}
	if first, last := j.cost(0, 1), j.cost(0, 40)-j.cost(0, 39); math.Abs(first-1.5375/20) > 1e-9 || math.Abs(last-4.4625/20) > 1e-9 {
		t.Errorf("the first costs %v, the last %v", first, last)
	}
}
