// Claim: caps on the emulated nodes slow what YARN runs on them: a job takes at least as
// long as its work, measured without caps, takes on the part of the CPUs that the caps
// leave. (How long it takes without caps shows little: that depends on what else runs here.)
package hadoop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"headroom/lab/emulator"
	"headroom/lab/hadoop"
)

const (
	// full is a package's limit as the factory set it, capped one at which it is left
	// cappedSpeed of its full speed, in microwatts.
	full, capped = 185_000_000, 45_000_000
	cappedSpeed  = 0.4
	// ownShare is what each of the two nodes owns of the host's CPUs.
	ownShare = 0.375
)

func TestCapsSlowWhatYARNRuns(t *testing.T) {
	c := shared(t)
	t.Cleanup(func() { c.limits(t, full) })
	in, out, _ := words(t, hadoop.Text{Files: 2, Bytes: 100_000, Topical: 0.5, Seed: 2})
	c.limits(t, full)
	free, work := c.measured(t, in, filepath.Join(out, "free"))
	c.limits(t, capped)
	held, heldWork := c.measured(t, in, filepath.Join(out, "capped"))
	t.Logf("without caps %v for %.1f CPU seconds, with caps %v for %.1f", free, work, held, heldWork)
	if work < 3 {
		t.Fatalf("a job of two maps has used %.1f CPU seconds: the test measures wrong", work)
	}
	const slack = 1.15
	left := 2 * ownShare * float64(runtime.NumCPU()) * cappedSpeed * slack
	if least := work / left; held.Seconds() < least {
		t.Errorf("%.1f CPU seconds took %v on %.2f CPUs, which is at least %.1f s: the caps do not slow them", work, held, left, least)
	}
}

// limits sets the limit of both nodes.
func (l *lab) limits(t *testing.T, microwatts int64) {
	t.Helper()
	l.limit(t, "n1", microwatts)
	l.limit(t, "n2", microwatts)
}

// measured runs a word count and returns how long it took and what the nodes used
// meanwhile, in seconds of a host CPU.
func (l *lab) measured(t *testing.T, in, out string) (took time.Duration, work float64) {
	t.Helper()
	done := make(chan struct{})
	var looking sync.WaitGroup
	var used [2]float64
	for i, node := range []string{"n1", "n2"} {
		looking.Go(func() { used[i] = l.used(node, done) })
	}
	r, err := l.Run(within(t), hadoop.Job{Program: "wordcount", Queue: "q1", Args: []string{in, out}})
	close(done)
	looking.Wait()
	if err != nil || !r.Succeeded() {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.Elapsed(), used[0] + used[1]
}

// used adds up what a node's own view shows until done is closed: the used part of the
// CPU time that its frequency allows.
func (l *lab) used(node string, done <-chan struct{}) (seconds float64) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last, fastest := time.Now(), emulator.DefaultSpec().FreqMax.Hertz()
	for {
		select {
		case <-done:
			return seconds
		case now := <-tick.C:
			view, err := readView(filepath.Join(l.nodes, node, "run", "plant.json"))
			if err != nil {
				continue // the last look's time is counted at the next
			}
			seconds += now.Sub(last).Seconds() * view.Utilisation * view.FreqHz / fastest * ownShare * float64(runtime.NumCPU())
			last = now
		}
	}
}

func readView(path string) (view emulator.View, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &view)
	}
	if err != nil {
		return view, errors.Join(fmt.Errorf("view %s", path), err)
	}
	return view, nil
}
