// Claims: where an engine tells of tasks only that they ended, a job is foreseen from the
// ages of its running ones, and does not seem to stand still within a wave; where the
// engine does tell, ages change nothing.
package progress

import (
	"math"
	"testing"
	"time"

	"headroom/internal/testkit"
	"headroom/units"
)

// waves is a job of 12 tasks of 20 s on two containers, the second 7 s behind the first,
// looked at every 5 s; told is what the engine says of a running task that is so far done.
func waves(t *testing.T, told func(part float64) float64, look func(o Observation, tr *Tracker, seen float64)) {
	t.Helper()
	tr := NewTracker(Learned)
	for at := 2.5; at < 127; at += 5 {
		o := Observation{Elapsed: time.Duration(at * float64(time.Second)), Tasks: 12, Reduced: -1, Phase: Map, Power: 200 * units.Watt, Full: 200 * units.Watt}
		for _, start := range []float64{0, 7} {
			if at < start {
				continue
			}
			done, part := math.Modf(math.Min((at-start)/20, 6))
			o.Done += int(done)
			o.Work += done + told(part)
			if done < 6 {
				o.Containers++
			}
		}
		testkit.Check(t, tr.Observe(o))
		look(o, tr, tr.last.Work)
	}
}

func TestAgesStandForProgressThatIsNotTold(t *testing.T) {
	t.Parallel()
	const end = 127.0
	worst := 0.0
	waves(t, func(float64) float64 { return 0 }, func(o Observation, tr *Tracker, _ float64) {
		if o.Done < 2 || o.Done >= 10 {
			return
		}
		f := tr.Finish(0, o.Containers, 12)
		if !f.Known {
			t.Fatalf("at %v: its finish time is not known", o.Elapsed)
		}
		worst = math.Max(worst, math.Abs(f.At.Seconds()-end)/end)
	})
	if worst > 0.15 {
		t.Errorf("finish times are off by up to %.0f %%", 100*worst)
	}
}

func TestAgesLeaveToldProgressAlone(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]func(float64) float64{
		"evenly":      func(part float64) float64 { return part },
		"late, quick": func(part float64) float64 { return part * part },
	} {
		waves(t, told, func(o Observation, _ *Tracker, seen float64) {
			if seen != o.Work {
				t.Errorf("%s, at %v: work %.2f was told, %.2f is believed", name, o.Elapsed, o.Work, seen)
			}
		})
	}
}

// Tasks that are taken away, a burst of them, or a master that starts again leave no
// running task that is not there.
func TestWaveFollowsWhatRuns(t *testing.T) {
	t.Parallel()
	var w wave
	at := func(s float64, done int, running float64) Observation {
		return Observation{Elapsed: time.Duration(s * float64(time.Second)), Tasks: 20, Done: done, Containers: running}
	}
	last := Observation{}
	for _, o := range []Observation{at(0, 0, 4), at(5, 0, 2), at(10, 5, 6), at(15, 6, 0), at(20, 20, 3)} {
		w.step(&last, &o)
		if want := min(int(o.Containers), o.Tasks-o.Done); len(w.begun) != want {
			t.Errorf("at %v: %d running tasks are followed, %d run", o.Elapsed, len(w.begun), want)
		}
		last = o
	}
	if !(w.length > 0 && w.length < 20) {
		t.Errorf("a task took %.1f s", w.length)
	}
}
