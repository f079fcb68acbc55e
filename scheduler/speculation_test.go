package scheduler

// Samples of past jobs outlive the scheduler, the newest of them; a spoilt file costs nothing but the samples.

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"headroom/internal/testkit"
	"headroom/jobs/speculation"
)

func TestSamplesAreKept(t *testing.T) {
	t.Parallel()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	s := readSamples(dir, quiet)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	s.keep(nil)
	testkit.Check(t, s.run(stopped))
	if _, err := os.Stat(s.path); err == nil || len(s.all) != 0 {
		t.Fatalf("begins with %v", s.all)
	}
	s.all = make([]speculation.Sample, samplesKept)
	x := speculation.Sample{Greedy: true, Tasks: 4, Size: 2, Result: 1.5, Utilisation: 0.123456789012345678, Accuracy: 0.75}
	s.keep(&speculation.Sample{Tasks: 1}) // what is not written yet is written once, with the newest
	s.keep(&x)
	testkit.Check(t, s.run(stopped))
	again := readSamples(dir, quiet)
	if n := len(again.all); n != samplesKept || again.all[n-1] != x {
		t.Errorf("%d kept, the last is %+v", n, again.all[n-1])
	}
	testkit.WriteFile(t, filepath.Join(dir, "samples.json"), "{")
	if s := readSamples(dir, quiet); len(s.all) != 0 {
		t.Errorf("read %v", s.all)
	}
}
