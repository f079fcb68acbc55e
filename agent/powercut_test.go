// Claims (P3, P6, P11): what powerd has told a coordinator, or has changed, does not depend on
// anything that a power cut takes: the journal holds the original of every changed control,
// state.json the newest stamp and brake that were acknowledged, denied.json every denial, as
// they were synced; what of held.json a cut leaves, nothing, half of it or an older one,
// raises nothing at the next start. A restore that fails keeps the journal.
package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/statedir"
	"headroom/units"
)

// forgetful is a state directory that knows what a power cut would leave of it.
type forgetful struct {
	statedir.Disk
	mu   sync.Mutex
	kept map[string][]byte
}

func newForgetful(dir string) *forgetful {
	d := &forgetful{Disk: statedir.OS{Dir: dir}, kept: map[string][]byte{}}
	for _, name := range []string{statedir.MemoryFile, statedir.JournalFile} { // from before
		if data, err := d.Disk.Read(name); err == nil {
			d.kept[name] = data
		}
	}
	return d
}

func (d *forgetful) Durable(name string, data []byte) error {
	err := d.Disk.Durable(name, data)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.kept[name] = bytes.Clone(data)
	}
	return err
}

// Replace leaves what was kept: a power cut may undo it.
func (d *forgetful) Replace(name string, data []byte) error { return d.Disk.Replace(name, data) }

func (d *forgetful) Remove(name string) error {
	err := d.Disk.Remove(name)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.kept, name)
	}
	return err
}

// after is the state directory as a power cut leaves it.
func (d *forgetful) after() remains {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.kept)
}

// remains is a state directory after a power cut, to be read only.
type remains map[string][]byte

func (r remains) Read(name string) ([]byte, error) {
	data, ok := r[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return data, nil
}

func (remains) Durable(string, []byte) error { return errors.ErrUnsupported }
func (remains) Replace(string, []byte) error { return errors.ErrUnsupported }
func (remains) Remove(string) error          { return errors.ErrUnsupported }

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
	d := newForgetful(cfg.StateDir)
	stop := runOn(t, cfg, d)
	changed := false
	for _, watts := range []units.Power{190, 120, 170, 110} {
		seq := c.grant(t, watts*units.Watt)
		waitFor(t, "it is acknowledged", c.acknowledged)
		now := d.after()
		saved := originalsIn(t, now)
		for name, v := range l.controls() {
			original, ok := saved[name]
			if changed = changed || v != before[name]; v != before[name] && (!ok || original != before[name]) {
				t.Errorf("%s was %d, is %d; a power cut leaves a journal that says %d (%v)", name, before[name], v, original, ok)
			}
		}
		m, _, err := records.LoadState(now, cfg.Power.Floor)
		if err != nil || m.Highest.Seq < seq || m.FailSafe != 95*units.Watt {
			t.Errorf("acknowledged sequence %d; a power cut leaves %+v, %v", seq, m, err)
		}
	}
	if !changed {
		t.Error("nothing was changed: the test sees nothing")
	}
	c.set(func() { c.refuse = nil })
	stop()
	if _, err := d.after().Read(statedir.JournalFile); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the originals are back, and a power cut brings their journal back: %v", err)
	}
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
