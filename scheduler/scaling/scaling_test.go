// Claims: a meter measures what a run held, under which caps, and refuses runs that show little; what was learned is there
// after a restart; a file that is invalid counts as none, is said, and is kept aside; nobody waits.
package scaling

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headroom/internal/testkit"
	"headroom/jobs/scaling/runs"
)

func known(part float64) func(string) (float64, bool) {
	return func(string) (float64, bool) { return part, true }
}

// looks has a meter look at run number n times, four times a second.
func looks(m *Meter, number uint32, from, n, slots int, part func(string) (float64, bool)) {
	for i := range n {
		m.Look(time.Unix(0, 0).Add(time.Duration(from+i)*250*time.Millisecond), number, Sample{Held: float64(slots), On: map[string]int{"n1": slots / 2, "n2": slots - slots/2}}, part)
	}
}

func TestMeter(t *testing.T) {
	t.Parallel()
	var m Meter
	looks(&m, 1, 0, 41, 8, known(0.5)) // 10 s
	looks(&m, 1, 41, 40, 2, known(1))  // 10 s
	r, ok := m.End(1, 50, 5*time.Second)
	// 80 and 20 slot seconds: what a task has seen is 0.8 * 8 + 0.2 * 2 slots.
	if !ok || math.Abs(r.Busy-100) > 0.1 || math.Abs(r.Containers-6.8) > 0.01 || math.Abs(r.Power-0.6) > 0.01 || r.Tasks != 50 {
		t.Errorf("%+v, %v", r, ok)
	}
	for name, x := range map[string]func(m *Meter) (runs.Run, bool){
		"of another run": func(m *Meter) (runs.Run, bool) { return m.End(2, 50, 0) },
		"with no task":   func(m *Meter) (runs.Run, bool) { return m.End(1, 0, 0) },
		"wasted":         func(m *Meter) (runs.Run, bool) { return m.End(1, 50, 11*time.Second) },
		"begun anew": func(m *Meter) (runs.Run, bool) {
			looks(m, 2, 81, 10, 8, known(1))
			return m.End(2, 50, 0)
		},
		"with a gap": func(m *Meter) (runs.Run, bool) {
			looks(m, 1, 200, 30, 8, known(1))
			return m.End(1, 50, 0)
		},
		"never seen": func(*Meter) (runs.Run, bool) { return (*Meter)(nil).End(1, 50, 0) },
	} {
		x2 := m
		if r, ok := x(&x2); ok {
			t.Errorf("a run %s counts: %+v", name, r)
		}
	}
	// A scheduler that was restarted has not seen the beginning: its tasks' time is missing.
	var late Meter
	for i := range 40 {
		late.Look(time.Unix(0, 0).Add(time.Duration(i)*250*time.Millisecond), 1, Sample{Held: 4, On: map[string]int{"n1": 4}, Done: 50 + i}, known(1))
	}
	if r, ok := late.End(1, 90, 0); ok {
		t.Errorf("a run seen late counts: %+v", r)
	}
	if r, ok := late.End(1, 900, 0); !ok || r.Tasks != 850 {
		t.Errorf("a run seen a little late: %+v, %v", r, ok)
	}
	looks(&m, 1, 81, 1, 8, func(string) (float64, bool) { return 0, false })
	if r, ok := m.End(1, 50, 0); !ok || r.Power != 0 {
		t.Errorf("a cap that is not known: %+v, %v", r, ok)
	}
}

// teach lets a learner learn runs of a name whose tasks get slower the more run, with a peak at 10.
func teach(t *testing.T, l *Learner, name string) (changed int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = l.Run(ctx, func(string) { changed++ })
	}()
	for _, n := range []float64{2, 4, 6, 8, 12, 16, 20, 24} {
		l.Ended(name, runs.Run{Containers: n, Tasks: 100, Busy: 300 * (1 + 0.01*(n-1) + 0.0099*n*(n-1))})
	}
	synctest.Wait()
	cancel()
	<-over
	return changed
}

func TestLearner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&said, nil))
		l := Open(dir, logger)
		if l.Advise("words", true) != nil || said.Len() != 0 {
			t.Errorf("an empty folder: %s", said.String())
		}
		if n := teach(t, l, "words"); n < 1 {
			t.Error("no curve was fitted")
		}
		first, again := l.Advise("words", false), Open(dir, logger).Advise("words", false)
		if first == nil || len(first.GetPoints()) < 5 || first.GetType() != "IV" || again.String() != first.String() {
			t.Errorf("%v, after a restart %v", first, again)
		}
		l.Ended("words", runs.Run{Containers: -1})
		teach(t, l, "other")
		if all, curves := l.Names(); all != 2 || curves != 2 || !strings.Contains(said.String(), "containers is -1") {
			t.Errorf("%d names, %d curves: %s", all, curves, said.String())
		}
	})
}

func TestBadFile(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"half": `{"names":[`, "odd": `{"names":[{"name":"a","runs":[{"containers":0}]}]}`, "large": strings.Repeat(" ", fileMost+1)} {
		dir := t.TempDir()
		testkit.WriteFile(t, filepath.Join(dir, file), text)
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			l := Open(dir, slog.New(slog.NewTextHandler(&said, nil)))
			if l.Advise("a", true) != nil || strings.Count(said.String(), "level=ERROR") != 1 {
				t.Errorf("%s: %s", name, said.String())
			}
			teach(t, l, "words")
		})
		if kept := testkit.Need(os.ReadFile(filepath.Join(dir, file+".bad")))(t); string(kept) != text {
			t.Errorf("%s: the file is not kept aside", name)
		}
		if Open(dir, slog.New(slog.DiscardHandler)).Advise("words", false) == nil {
			t.Errorf("%s: nothing is learned anew", name)
		}
	}
}

func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	l := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	for range 10 * endedMost { // nobody learns
		l.Ended("words", runs.Run{Containers: 1, Tasks: 1, Busy: 1})
	}
	var none *Learner
	none.Ended("words", runs.Run{})
	if none.Advise("words", true) != nil {
		t.Error("a learner that is off knows something")
	}
}
