// Claims: an observation that cannot be true is refused with its numbers and changes
// nothing; a restarted application master is a new beginning; a tracker that comes
// late knows what the job has shown since its start; a job that stops early ends
// early; shuffle and reduce belong to the job; policies are judged by what came true.
package progress

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// at is a job of 100 tasks of 20 s on 10 containers, uncapped, tasks ending evenly.
func at(seconds, done int) Observation {
	return Observation{
		Elapsed: time.Duration(seconds) * time.Second, Tasks: 100, Done: done, Work: -1, Reduced: -1, Phase: Map,
		Power: 350 * units.Watt, Full: 350 * units.Watt, Containers: 10,
	}
}

func observe(t *testing.T, tr *Tracker, all ...Observation) {
	t.Helper()
	for _, o := range all {
		testkit.Check(t, tr.Observe(o))
	}
}

// within fails unless f is within a part of want.
func within(t *testing.T, f Finish, want time.Duration, part float64) {
	t.Helper()
	if !f.Known || math.Abs(f.At.Seconds()-want.Seconds()) > part*want.Seconds() {
		t.Errorf("ends at %+v, want %v within %.0f %%", f, want, 100*part)
	}
}

func TestNonsenseIsPassedOver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *Observation){
		"negative time": func(o *Observation) { o.Elapsed = -1 }, "negative progress": func(o *Observation) { o.Done = -1 },
		"more done than there are": func(o *Observation) { o.Done = 101 }, "more work than tasks": func(o *Observation) { o.Work = 102 },
		"no number": func(o *Observation) { o.Work = math.NaN() }, "endless containers": func(o *Observation) { o.Containers = math.Inf(1) },
		"negative containers": func(o *Observation) { o.Containers = -1 }, "negative watts": func(o *Observation) { o.Power = -1 },
		"reduced more than all": func(o *Observation) { o.Reduced = 1.5 }, "no such phase": func(o *Observation) { o.Phase = 9 },
	} {
		for _, p := range Policies() {
			tr, same := NewTracker(p), NewTracker(p)
			observe(t, tr, at(0, 0), at(20, 10), at(40, 20))
			observe(t, same, at(0, 0), at(20, 10), at(40, 20))
			o := at(60, 30)
			change(&o)
			if err := tr.Observe(o); !errors.Is(err, errNonsense) {
				t.Errorf("%s: %v", name, err)
			}
			if err := tr.Observe(at(39, 20)); !errors.Is(err, errTimeBack) {
				t.Errorf("time going back: %v", err)
			}
			if !reflect.DeepEqual(tr, same) {
				t.Errorf("%s, %s: what was refused has changed the tracker", p, name)
			}
		}
	}
}

func TestRestartIsANewBeginning(t *testing.T) {
	t.Parallel()
	for _, p := range Policies() {
		tr := NewTracker(p)
		observe(t, tr, at(0, 0), at(20, 10), at(40, 20), at(60, 30), at(80, 40))
		if err := tr.Observe(at(100, 5)); !errors.Is(err, errRestarted) {
			t.Errorf("%s: %v", p, err)
		}
		observe(t, tr, at(120, 15), at(140, 25))
		within(t, tr.Finish(350*units.Watt, 10, 100), 290*time.Second, 0.1)
	}
}

func TestComesLate(t *testing.T) {
	t.Parallel()
	tr := NewTracker(Learned)
	observe(t, tr, at(100, 50))
	within(t, tr.Finish(350*units.Watt, 10, 100), 200*time.Second, 0.1)
}

func TestStopsEarly(t *testing.T) {
	t.Parallel()
	for _, p := range Policies() {
		tr := NewTracker(p)
		observe(t, tr, at(0, 0), at(20, 10), at(40, 20), at(60, 30))
		within(t, tr.Finish(350*units.Watt, 10, 75), 150*time.Second, 0.1)
		if f := tr.Finish(350*units.Watt, 10, 30); !f.Known || f.At != 60*time.Second {
			t.Errorf("%s: the tasks that are wanted are done: %+v, want now", p, f)
		}
	}
}

// Before the first task has ended the work of running tasks tells a rate.
func TestWorkTellsEarly(t *testing.T) {
	t.Parallel()
	a, b := at(0, 0), at(10, 0)
	a.Work, b.Work = 0, 5
	tr := NewTracker(Learned)
	observe(t, tr, a, b)
	within(t, tr.Finish(350*units.Watt, 10, 100), 205*time.Second, 0.1)
	blind := NewTracker(Learned)
	observe(t, blind, at(0, 0), at(10, 0))
	if f := blind.Finish(350*units.Watt, 10, 100); f.Known {
		t.Errorf("no task has ended and nothing is known of running ones: %+v", f)
	}
}

// Tasks that all began together end together.
func TestOneWave(t *testing.T) {
	t.Parallel()
	tr := NewTracker(Learned)
	for s := range 4 {
		o := at(4*s, 0)
		o.Tasks, o.Work = 10, 2*float64(s)
		observe(t, tr, o)
	}
	within(t, tr.Finish(350*units.Watt, 10, 10), 20*time.Second, 0.1)
}

func TestReduceBelongsToTheJob(t *testing.T) {
	t.Parallel()
	tr := NewTracker(Learned)
	for s := 0; s <= 200; s += 10 {
		o := at(s, s/2)
		o.Reduced = 0
		observe(t, tr, o)
	}
	before := tr.Finish(350*units.Watt, 10, 100)
	if !before.Known || before.At <= 200*time.Second || before.High < 250*time.Second {
		t.Errorf("the map part is over, a reduce part is to come: %+v", before)
	}
	for s := 210; s <= 260; s += 10 { // it will take 100 s
		o := at(s, 100)
		o.Phase, o.Reduced, o.Containers = Reduce, float64(s-200)/100, 2
		observe(t, tr, o)
	}
	within(t, tr.Finish(350*units.Watt, 2, 100), 300*time.Second, 0.06)
}

func TestScoreJudges(t *testing.T) {
	t.Parallel()
	var s Score
	s.Note(Paper, Finish{})
	for i := range 3 * notesMax { // more than it keeps
		s.Note(Learned, Finish{At: time.Duration(90+20*(i%2)) * time.Second, Low: 80 * time.Second, High: 105 * time.Second, Known: true})
	}
	s.Note(Released, Finish{At: 150 * time.Second, Low: 150 * time.Second, High: 150 * time.Second, Known: true})
	got := s.Judge(100 * time.Second)
	if len(got) != 2 || got[0].Policy != Learned || got[1].Policy != Released {
		t.Fatalf("%+v, want learned and released only", got)
	}
	if l := got[0]; math.Abs(l.Error-0.1) > 1e-9 || l.Covered != 1 || l.Predictions != 3*notesMax {
		t.Errorf("%+v, want 10 %% off", l)
	}
	if r := got[1]; r.Error != 0.5 || r.Covered != 0 {
		t.Errorf("%+v, want 50 %% off", r)
	}
	if len(s.notes[Learned].kept) > notesMax {
		t.Error("keeps without bound")
	}
	if got := s.Judge(0); len(got) != 0 {
		t.Errorf("no runtime, but %+v", got)
	}
}

// A pool and a tracker keep within bounds however long they live.
func TestBounds(t *testing.T) {
	t.Parallel()
	var e exposure
	for i := range 10_000 {
		e.add(float64(i%997)/100, 1)
	}
	sum := 0.0
	for _, s := range e.spells {
		sum += s.seconds
	}
	if len(e.spells) > spellsMax || sum != 10_000 {
		t.Errorf("%d spells of %g s, want at most %d of 10000", len(e.spells), sum, spellsMax)
	}
	var p Pool
	for i := range 2 * namesMax {
		p.entry(string(rune('a' + i)))
	}
	if len(p.names) != namesMax {
		t.Errorf("%d names, want %d", len(p.names), namesMax)
	}
}

// A reduce part that begins and ends between two looks is learned from the job's end:
// the next job of its name is told one of about that length, not a tenth of its maps.
func TestShortTailIsLearnedFromTheEnd(t *testing.T) {
	t.Parallel()
	for _, tail := range []float64{1, 3, 8} {
		var pool Pool
		work := func(at float64) float64 { return min(2*at, 200) } // 200 tasks in 100 s
		observe := func(tr *Tracker, at float64) {
			o := Observation{
				Elapsed: time.Duration(at * float64(time.Second)), Tasks: 200, Done: int(work(at)), Work: work(at), Phase: Map,
				Power: 300 * units.Watt, Full: 300 * units.Watt, Containers: 20,
			}
			if at >= 100 {
				o.Phase, o.Reduced = Reduce, (at-100)/tail
			}
			testkit.Check(t, tr.Observe(o))
		}
		for first := 1.0; first <= 5; first++ {
			tr := NewTracker(Learned)
			for at := first; at < 100+tail; at += 5 {
				observe(tr, at)
			}
			tr.End(time.Duration((100+tail)*float64(time.Second)), 200)
			pool.Learn("words", tr)
		}
		p := pool.Prior("words").Tail
		if p == nil {
			t.Fatalf("a reduce part of %g s: nothing was learned", tail)
		}
		if got := 200 * math.Exp(p.Value); got < tail/2-0.5 || got > 2*tail+1 {
			t.Errorf("a reduce part of %g s was learned as %.1f s", tail, got)
		}
	}
}

// What jobs of a name have shown without a cap is not mixed with what capped ones would
// do at full power; how far jobs of one name lie apart is learned from those of all names.
func TestPaceIsThatOfUncappedJobs(t *testing.T) {
	t.Parallel()
	run := func(pool *Pool, name string, power units.Power, rate float64) {
		tr := NewTrackerWith(Learned, pool.Prior(name))
		for at := 5.0; at*rate < 200; at += 5 {
			testkit.Check(t, tr.Observe(Observation{
				Elapsed: time.Duration(at * float64(time.Second)), Tasks: 200, Done: int(at * rate), Work: at * rate, Phase: Map, Reduced: -1,
				Power: power, Full: 300 * units.Watt, Containers: 20,
			}))
		}
		pool.Learn(name, tr)
	}
	var alike, apart Pool
	run(&alike, "words", 200*units.Watt, 1.95) // a cap that hardly slows it
	if p := alike.Prior("words").Pace; p == nil || p.SD < 0.3 {
		t.Errorf("of a capped job alone: %+v", p)
	}
	for i := range 4 {
		run(&alike, "words", 300*units.Watt, 2)
		run(&alike, "words", 200*units.Watt, 1.95)
		run(&apart, "words", 300*units.Watt, 2*math.Pow(2, float64(i%2)))
	}
	if p := alike.Prior("words").Pace; math.Abs(math.Exp(p.Value)*20-2) > 0.1 || p.SD > 0.25 {
		t.Errorf("%.3f tasks/s, SD %.3f of jobs that are alike, each of 2 tasks/s", math.Exp(p.Value)*20, p.SD)
	}
	if p := apart.Prior("words").Pace; p.SD < 0.4 {
		t.Errorf("SD %.3f of jobs of which every other is twice as quick", p.SD)
	}
}
