package buffers

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"headroom/internal/testkit"

	"pgregory.net/rapid"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func two(d Discipline) *Buffers {
	b, err := New(Settings{Discipline: d, Width: 1, Classes: []Class{
		{Name: "high", Sprint: true, SprintAfter: 65 * time.Second}, {Name: "low", Theta: 0.2},
	}})
	if err != nil {
		panic(err)
	}
	return b
}

func add(t *testing.T, b *Buffers, id string, class int, s float64) {
	t.Helper()
	testkit.Check(t, b.Add(Job{ID: id, Class: class, Submitted: at(s)}))
}

// words are actions as tests compare them.
func words(actions []Action) (out []string) {
	for _, a := range actions {
		switch a := a.(type) {
		case Start:
			out = append(out, fmt.Sprintf("start %s.%d theta %v", a.Run.ID, a.Run.Number, a.Run.Theta))
		case Kill:
			out = append(out, fmt.Sprintf("kill %s.%d for %q", a.Run.ID, a.Run.Number, a.For))
		case SprintDue:
			out = append(out, "sprint "+a.Run.ID)
		}
	}
	return out
}

func expect(t *testing.T, got []Action, want ...string) {
	t.Helper()
	if w := words(got); !slices.Equal(w, want) {
		t.Fatalf("actions %q, want %q", w, want)
	}
}

// Without preemption a higher job waits for the lower one that runs, and then goes before earlier lower ones.
func TestNonPreemptive(t *testing.T) {
	t.Parallel()
	b := two(DIAS)
	add(t, b, "low1", 1, 0)
	expect(t, b.Step(at(0)), "start low1.1 theta 0.2")
	add(t, b, "low2", 1, 1)
	add(t, b, "high1", 0, 2)
	expect(t, b.Step(at(2)))
	b.Ended(at(10), "low1")
	expect(t, b.Step(at(10)), "start high1.1 theta 0")
	if next, ok := b.Next(); !ok || !next.Equal(at(75)) {
		t.Fatalf("the timer fires at %v (%v), want 65 s after the dispatch", next, ok)
	}
	expect(t, b.Step(at(74.9)))
	expect(t, b.Step(at(75)), "sprint high1")
	expect(t, b.Step(at(76)))
	b.Ended(at(80), "high1")
	expect(t, b.Step(at(80)), "start low2.1 theta 0.2")
}

// "p" kills the lower run, its job goes to the head of its buffer and starts again from the beginning; the killed time is waste.
func TestPreemptiveRestart(t *testing.T) {
	t.Parallel()
	b := two(P)
	add(t, b, "low1", 1, 0)
	add(t, b, "low2", 1, 1)
	expect(t, b.Step(at(0)), "start low1.1 theta 0")
	add(t, b, "high1", 0, 30)
	expect(t, b.Step(at(30)), `kill low1.1 for "high1"`)
	expect(t, b.Step(at(30.5))) // the engine takes its time: no second kill
	b.Ended(at(31), "low1")
	expect(t, b.Step(at(31)), "start high1.1 theta 0")
	b.Ended(at(50), "high1")
	expect(t, b.Step(at(50)), "start low1.2 theta 0")
	b.Ended(at(100), "low1")
	if w := b.Waste(); w.Killed != 31*time.Second || w.Total != 100*time.Second {
		t.Fatalf("waste %+v, want 31 s of 100 s", w)
	}
	expect(t, b.Step(at(100)), "start low2.1 theta 0")
}

// A run that reaches its end although it was told to stop is done, not repeated.
func TestCompletedBeforeTheKill(t *testing.T) {
	t.Parallel()
	b := two(P)
	add(t, b, "low1", 1, 0)
	b.Step(at(0))
	add(t, b, "high1", 0, 5)
	expect(t, b.Step(at(5)), `kill low1.1 for "high1"`)
	b.Completed(at(6), "low1")
	expect(t, b.Step(at(6)), "start high1.1 theta 0")
	if b.knows("low1") {
		t.Fatal("low1 is kept although it is done")
	}
}

// Cancelling takes a waiting job away at once, and kills a running one without putting it back.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := two(P)
	add(t, b, "low1", 1, 0)
	b.Step(at(0))
	add(t, b, "high1", 0, 1)
	add(t, b, "high2", 0, 2)
	expect(t, b.Step(at(2)), `kill low1.1 for "high1"`)
	b.Cancel("high1")
	b.Cancel("low1") // it stops already: cancelled, it does not come back
	expect(t, b.Step(at(3)))
	b.Ended(at(4), "low1")
	expect(t, b.Step(at(4)), "start high2.1 theta 0")
	b.Cancel("high2")
	expect(t, b.Step(at(5)), `kill high2.1 for ""`)
	b.Ended(at(6), "high2")
	if b.knows("low1") || b.knows("high1") || b.knows("high2") {
		t.Fatal("cancelled jobs are still known")
	}
}

// A dispatcher that takes over starts nothing beside an adopted run, and its timer counts from the true dispatch.
func TestAdopt(t *testing.T) {
	t.Parallel()
	b := two(NPS)
	run := Run{Job: Job{ID: "high1", Class: 0, Submitted: at(0)}, Number: 2, Began: at(0), Sprint: true, SprintAfter: 65 * time.Second}
	testkit.Check(t, b.Adopt(run))
	add(t, b, "low1", 1, 1)
	expect(t, b.Step(at(70)), "sprint high1")
	b.Ended(at(90), "high1")
	expect(t, b.Step(at(90)), "start low1.1 theta 0")
}

// A killed job comes back to the head of its buffer under a new dispatcher too, with its runs counted on; a hold lets
// nothing begin for a moment.
func TestReturn(t *testing.T) {
	t.Parallel()
	b := two(P)
	add(t, b, "low1", 1, 0)
	testkit.Check(t, b.Return(Job{ID: "low2", Class: 1, Submitted: at(5)}, 3))
	b.Hold(true)
	expect(t, b.Step(at(6)))
	b.Hold(false)
	if b.Place("low2") != 1 || b.Place("low1") != 2 {
		t.Fatalf("places %d and %d, want 1 and 2", b.Place("low2"), b.Place("low1"))
	}
	expect(t, b.Step(at(7)), "start low2.4 theta 0")
}

// While drained nothing begins and nothing is killed; afterwards all goes on.
func TestDrain(t *testing.T) {
	t.Parallel()
	b := two(P)
	add(t, b, "low1", 1, 0)
	b.Step(at(0))
	b.Drain(true)
	add(t, b, "high1", 0, 1)
	expect(t, b.Step(at(1)))
	b.Ended(at(2), "low1")
	expect(t, b.Step(at(2)))
	b.Drain(false)
	expect(t, b.Step(at(3)), "start high1.1 theta 0")
}

// Settings that cannot be are refused by name.
func TestRefusals(t *testing.T) {
	t.Parallel()
	class := []Class{{Name: "a"}}
	for name, c := range map[string]struct {
		s    Settings
		want error
	}{
		"discipline": {Settings{Discipline: "fifo", Classes: class, Width: 1}, errDiscipline},
		"no class":   {Settings{Discipline: NP, Width: 1}, errClass},
		"width":      {Settings{Discipline: NP, Classes: class}, errWidth},
		"theta":      {Settings{Discipline: DA, Classes: []Class{{Name: "a", Theta: 1.1}}, Width: 1}, errTheta},
		"NaN":        {Settings{Discipline: DA, Classes: []Class{{Name: "a", Theta: math.NaN()}}, Width: 1}, errTheta},
	} {
		if _, err := New(c.s); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	b := two(NP)
	if err := b.Add(Job{ID: "x", Class: 2}); !errors.Is(err, errClass) {
		t.Errorf("a job of class 2 of 2: %v", err)
	}
	if err := b.Point(class); !errors.Is(err, errClass) {
		t.Errorf("one point for two classes: %v", err)
	}
}

// Whatever happens: never more than Width runs, no job lost or doubled, no kill without "p", and "p" never leaves a
// higher job waiting behind a lower run that is not stopping.
func TestLaws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(Disciplines()[1:]).Draw(t, "discipline")
		width := rapid.IntRange(1, 3).Draw(t, "width")
		b := testkit.Need(New(Settings{Discipline: d, Width: width, Classes: []Class{{Name: "a", Sprint: true, SprintAfter: 3 * time.Second}, {Name: "b"}, {Name: "c", Theta: 0.5}}}))(t)
		live := map[string]int{}
		sprinted := map[string]bool{}
		now, count := 0.0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Float64Range(0, 5).Draw(t, "dt")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				count++
				id := fmt.Sprintf("j%03d", count)
				live[id] = rapid.IntRange(0, 2).Draw(t, "class")
				testkit.Check(t, b.Add(Job{ID: id, Class: live[id], Submitted: at(now)}))
			case 2:
				if run := b.Running(); len(run) > 0 {
					r := run[rapid.IntRange(0, len(run)-1).Draw(t, "run")]
					b.Ended(at(now), r.ID)
					if !r.Back {
						delete(live, r.ID)
					}
				}
			case 3:
				b.Drain(!b.Drained())
			}
			for _, a := range b.Step(at(now)) {
				switch a := a.(type) {
				case Kill:
					if d != P {
						t.Fatalf("%s kills %s", d, a.Run.ID)
					}
				case SprintDue:
					key := fmt.Sprint(a.Run.ID, a.Run.Number)
					if sprinted[key] || !d.Sprints() {
						t.Fatalf("%s: %s sprints again", d, key)
					}
					sprinted[key] = true
				}
			}
			judge(t, b, width, live)
		}
	})
}

func judge(t *rapid.T, b *Buffers, width int, live map[string]int) {
	seen := map[string]bool{}
	lowest := -1
	for _, r := range b.Running() {
		seen[r.ID] = true
		if !r.Stopping {
			lowest = max(lowest, r.Class)
		}
	}
	if len(seen) > width {
		t.Fatalf("%d run, the most is %d", len(seen), width)
	}
	stopping := len(b.Running())
	for _, r := range b.Running() {
		if !r.Stopping {
			stopping--
		}
	}
	higher := 0
	for class := range b.Classes {
		for _, j := range b.Waiting(class) {
			if seen[j.ID] {
				t.Fatalf("%s is there twice", j.ID)
			}
			seen[j.ID] = true
			if class < lowest {
				higher++
			}
		}
	}
	if b.Discipline == P && !b.Drained() && higher > stopping {
		t.Fatalf("%d jobs wait behind lower runs, and only %d stop", higher, stopping)
	}
	for id := range live {
		if !seen[id] {
			t.Fatalf("%s is lost", id)
		}
	}
	if len(seen) != len(live) {
		t.Fatalf("%d jobs, want %d", len(seen), len(live))
	}
}
