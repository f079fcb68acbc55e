package dispatch

// How a run went is told with its end: when its maps began and ended, how many ran and how many at once; nothing of runs
// that an earlier process began, since their beginning was not seen.

import (
	"testing"
	"time"

	"headroom/internal/testkit"
)

func TestCourseOfARun(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	k.c.Hello(k.now, "n1", 2, nil)
	p := plan("words", "high", 3, 3)
	p.Reduce = true
	k.add(p)
	k.step(0)
	at := k.now
	k.now = k.now.Add(2 * time.Second)
	k.finish("words", PhaseMap, 0, "")
	k.now = k.now.Add(time.Second)
	k.finish("words", PhaseMap, 1, "")
	k.now = k.now.Add(time.Second)
	k.finish("words", PhaseMap, 2, "")
	k.now = k.now.Add(5 * time.Second)
	k.finish("words", PhaseReduce, 0, "")
	want := Course{Maps: at, MapsOver: at.Add(4 * time.Second), Reduce: at.Add(4 * time.Second), Tasks: 3, Kept: 3, Slots: 2}
	if got := k.ended["words"].Course; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCourseOfAnEnginesRun(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	p := plan("words", "high", 0, 3)
	p.Engine = "spark"
	k.add(p)
	k.step(0)
	at := k.now
	tell := func(d time.Duration, e EngineProgress) {
		k.now = k.now.Add(d)
		k.c.Progress(k.now, "words", 1, e)
		k.step(0)
	}
	tell(3*time.Second, EngineProgress{Known: true, Tasks: 10, Stages: []Stage{{ID: 0, Kept: 8, Total: 10}}})
	tell(time.Second, EngineProgress{Known: true, Tasks: 10, Running: 2, Stages: []Stage{{ID: 0, Kept: 8, Total: 10}}})
	tell(4*time.Second, EngineProgress{Known: true, Tasks: 14, Done: 9, Running: 1, Stages: []Stage{{ID: 1, Kept: 4, Total: 4, Done: 1}, {ID: 0, Kept: 8, Total: 10, Done: 8}}})
	k.c.RunEnded(k.now, "words", 1, true, "done")
	k.step(0)
	want := Course{Maps: at.Add(4 * time.Second), MapsOver: at.Add(8 * time.Second), Tasks: 10, Kept: 8, Slots: 2}
	if got := k.ended["words"].Course; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestCourseOfAnAdoptedRunIsUnknown(t *testing.T) {
	t.Parallel()
	k := newDriver(t)
	p := plan("words", "high", 2, 2)
	testkit.Check(t, k.c.Add(k.now, p, Past{Started: k.now, Done: []int{0}}))
	k.c.Hello(k.now, "n1", 2, nil)
	k.step(time.Second)
	k.finish("words", PhaseMap, 1, "")
	if e := k.ended["words"]; e.State != Done || e.Course != (Course{}) {
		t.Errorf("%+v", e)
	}
}
