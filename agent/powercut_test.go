// Claims (P3, P6, P11): what powerd has told a coordinator, or has changed, does not depend on
// anything that a power cut takes: the journal holds the original of every changed control,
// state.json the newest stamp and brake that were acknowledged, denied.json every denial, as
// they were synced; what of held.json a cut leaves, nothing, half of it or an older one,
// raises nothing at the next start. A restore that fails keeps the journal.
package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/statedir"
	"headroom/internal/durable/durabletest"
	"headroom/units"

	"headroom/internal/testkit"
)

// onDisk is the lab's state directory on a disk that forgets at a power cut what was not
// synced, with what an earlier powerd remembered.
func (l *lab) onDisk(cfg config.Config) (statedir.OS, *durabletest.Disk) {
	l.t.Helper()
	disk := durabletest.New()
	d := statedir.OS{Dir: cfg.StateDir, FS: disk}
	data, err := os.ReadFile(l.state(statedir.MemoryFile))
	if err = errors.Join(err, d.Durable(statedir.MemoryFile, data)); err != nil {
		l.t.Fatal(err)
	}
	return d, disk
}

// survives judges what a power cut leaves now: the original of every control that has another
// value than before, and the newest stamp that was acknowledged.
func (l *lab) survives(cfg config.Config, disk *durabletest.Disk, before map[string]int64, acknowledged uint64) (changed bool) {
	l.t.Helper()
	now := l.controls()
	for i, left := range disk.Survivors() {
		d := statedir.OS{Dir: cfg.StateDir, FS: left}
		saved := originalsIn(l.t, d)
		for name, v := range now {
			original, ok := saved[name]
			if changed = changed || v != before[name]; v != before[name] && (!ok || original != before[name]) {
				l.t.Errorf("outcome %d: %s was %d, is %d; a power cut leaves a journal that says %d (%v)", i, name, before[name], v, original, ok)
			}
		}
		m, _, err := records.LoadState(d, cfg.Power.Floor)
		if err != nil || m.Highest.Seq < acknowledged {
			l.t.Errorf("outcome %d: acknowledged sequence %d; a power cut leaves %+v, %v", i, acknowledged, m, err)
		}
	}
	return changed
}

// originalsIn are the original values that a journal keeps of the lab's controls, by name.
func originalsIn(t *testing.T, d statedir.Disk) map[string]int64 {
	t.Helper()
	j, err := originals.Load(d)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	if j == nil {
		return out
	}
	for _, c := range j.Controls {
		out[filepath.Base(c.Path)] = c.Original
	}
	return out
}

func TestPowerCutTakesNothingThatCounts(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	before := l.controls()
	cfg := l.config(c.addr)
	d, disk := l.onDisk(cfg)
	stop := runOn(t, cfg, d)
	changed := false
	for _, watts := range []units.Power{190, 120, 170, 110} {
		seq := c.grant(t, watts*units.Watt)
		waitFor(t, "it is acknowledged", c.acknowledged)
		changed = l.survives(cfg, disk, before, seq) || changed
	}
	if !changed {
		t.Error("nothing was changed: the test sees nothing")
	}
	c.set(func() { c.refuse = nil })
	stop()
	for i, left := range disk.Survivors() {
		if len(originalsIn(t, statedir.OS{Dir: cfg.StateDir, FS: left})) > 0 {
			t.Errorf("outcome %d: the originals are back, and a power cut brings their journal back", i)
		}
	}
}

// The same with the disk dead from each of its calls on: powerd goes on, or ends, and changes
// nothing whose original is not safe.
func TestDiskDiesAtEveryCall(t *testing.T) {
	t.Parallel()
	testkit.Unraced(t)
	var changed atomic.Int64
	const calls = 12 // the journal and the first stamp take five each
	t.Run("from", func(t *testing.T) {
		for after := range calls {
			t.Run(fmt.Sprintf("call %d on", after), func(t *testing.T) {
				t.Parallel()
				if diskDies(t, after) {
					changed.Add(1)
				}
			})
		}
	})
	if changed.Load() < calls/3 {
		t.Errorf("a control was changed in %d of %d runs: the test sees little", changed.Load(), calls)
	}
}

// diskDies reports whether any control was changed all the same.
func diskDies(t *testing.T, after int) (changed bool) {
	t.Helper()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	before := l.controls()
	cfg := l.config(c.addr)
	d, disk := l.onDisk(cfg)
	disk.CutAfter(after)
	n, err := start(cfg, testLog(t), d)
	if err != nil { // it could not even save what it found
		return l.survives(cfg, disk, before, 0)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	c.grant(t, 120*units.Watt)
	waitFor(t, "some heartbeats", func() bool { return len(c.beatsSeen()) > 2 })
	cancel()
	if err := <-ended; err != nil {
		t.Logf("it ended with %v: the disk is dead", err)
	}
	applied := uint64(0)
	for _, h := range c.beatsSeen() {
		applied = max(applied, h.GetHolding().GetApplied().GetSeq())
	}
	return l.survives(cfg, disk, before, applied)
}

// After a power cut held.json may be missing, empty, cut short or older than what the node
// held: the start writes the fail-safe cap all the same, and says what it holds.
func TestStartAfterAPowerCut(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(held []byte) []byte{
		"missing":   func([]byte) []byte { return nil },
		"empty":     func([]byte) []byte { return []byte{} },
		"cut short": func(held []byte) []byte { return held[:len(held)/2] },
		"older":     func(held []byte) []byte { return bytes.Replace(held, []byte(`"cap_w"`), []byte(`"was_w"`), 1) },
	} {
		l, c := newLab(t), newCoordinator(t)
		c.refuse = errors.New("not now")
		cfg := l.config(c.addr)
		stop := runOn(t, cfg, statedir.OS{Dir: cfg.StateDir})
		waitFor(t, "a lease is held", func() bool { return c.acknowledged() && !failSafeLong(l.long()) })
		stop()
		held, err := os.ReadFile(l.state(statedir.HeldFile))
		if err != nil {
			t.Fatal(err)
		}
		left := leave(held)
		if err := os.Remove(l.state(statedir.HeldFile)); err != nil {
			t.Fatal(err)
		}
		if left != nil {
			if err := os.WriteFile(l.state(statedir.HeldFile), left, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.set(func() { c.silent = true })
		stop = runOn(t, cfg, statedir.OS{Dir: cfg.StateDir})
		if !failSafeLong(l.long()) {
			t.Errorf("%s: limit %v after the start", name, l.long())
		}
		if h := l.held(); h.State != "fail-safe" || h.CapW != 95 {
			t.Errorf("%s: held.json says %+v", name, h)
		}
		stop()
	}
}

// A control that cannot be put back keeps the journal, for the next try: a forced restore by
// hand on a dead powerd forgets nothing that is still changed.
func TestRestoreThatFailsKeepsTheJournal(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	before := l.controls()
	cfg := l.config(c.addr)
	stop := runOn(t, cfg, statedir.OS{Dir: cfg.StateDir})
	waitFor(t, "a lease is held", func() bool { return c.acknowledged() && !equal(l.controls(), before) })
	stop()
	broken := l.zone("constraint_0_power_limit_uw")
	held, err := os.ReadFile(broken)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(broken), os.Mkdir(broken, 0o700)); err != nil { // a driver that refuses
		t.Fatal(err)
	}
	for range 2 { // and again: a second try must find it too
		out, err := Restore(t.Context(), cfg, RestoreOptions{Force: true})
		if err != nil || out.Failed != 1 || !slices.ContainsFunc(out.Kept, func(line string) bool { return strings.Contains(line, "long_term") }) {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if err := errors.Join(os.Remove(broken), os.WriteFile(broken, held, 0o600)); err != nil {
		t.Fatal(err)
	}
	out, err := Restore(t.Context(), cfg, RestoreOptions{Force: true})
	if err != nil || out.Failed != 0 || !equal(l.controls(), before) {
		t.Errorf("%+v, %v: %v, want %v", out, err, l.controls(), before)
	}
	if _, err := os.Stat(l.state(statedir.JournalFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("all is back and the journal is still there: %v", err)
	}
}
