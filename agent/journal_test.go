// Claims: with a damaged journal nothing is restored and the fail-safe cap is written; a
// crash between journal and first write restores to what stands there; after a
// reboot the limits found are the originals.
package agent

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/internal/durable"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/secure"
	"headroom/units"
)

func TestCrashBetweenJournalAndFirstWrite(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	original := l.controls()
	n, err := startUntilSaved(t, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.close(); err != nil {
		t.Fatal(err)
	}
	out, err := Restore(t.Context(), l.config("127.0.0.1:1"), RestoreOptions{Force: true})
	if err != nil || len(out.Restored) != 5 || len(out.Kept) != 0 || !equal(l.controls(), original) {
		t.Errorf("%+v, %v", out, err)
	}
}

// startUntilSaved is a start that dies right after the journal is on disk.
func startUntilSaved(t *testing.T, l *lab) (*node, error) {
	t.Helper()
	cfg := l.config("127.0.0.1:1")
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	n := newNode(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	n.lock = file
	return n, errors.Join(n.open(), n.ladder.save())
}

// Something else in the place of the journal is refused at once and in words, with the fail-safe cap
// written; so is what else of the state directory is read.
func TestJournalThatIsNoFile(t *testing.T) {
	t.Parallel()
	for what, place := range map[string]func(path string) error{
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a FIFO":          func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symbolic link": func(path string) error { return os.Symlink("nowhere", path) },
		"a device or socket": func(path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { _ = l.Close() })
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			cfg := l.config()
			if err := place(l.state(statedir.JournalFile)); err != nil {
				t.Fatal(err)
			}
			var bad *cli.Error
			if err := Run(t.Context(), cfg, testLog(t)); !errors.As(err, &bad) || bad.Code != "journal-damaged" || !strings.Contains(bad.Message, "is "+what) {
				t.Errorf("run: %v", err)
			}
			if !failSafeLong(l.long()) {
				t.Errorf("limit %v", l.long())
			}
			if _, err := Restore(t.Context(), cfg, RestoreOptions{Force: true}); !errors.As(err, &bad) || bad.Code != "journal-damaged" {
				t.Errorf("restore: %v", err)
			}
			if _, err := Leftovers(cfg.StateDir); !errors.Is(err, originals.ErrDamaged) {
				t.Errorf("check: %v", err)
			}
		})
	}
	dir := t.TempDir()
	for _, name := range []string{statedir.DeniedFile, statedir.HeldFile, statedir.MemoryFile, statedir.WrittenFile, statedir.CoordinatorsFile} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (statedir.OS{Dir: dir}).Read(name); !errors.Is(err, durable.ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := secure.ReadDenials(filepath.Join(dir, statedir.DeniedFile)); err == nil {
		t.Error("denials were read from a FIFO")
	}
	if _, err := originals.OpenTrail(dir, &originals.Journal{}, false); !errors.Is(err, durable.ErrNotRegular) {
		t.Errorf("the trail: %v", err)
	}
}

func TestDamagedJournalKeepsTheFailSafeCap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	garbage := []byte(`{"version":1,"node":"n0`)
	if err := os.WriteFile(l.state(statedir.JournalFile), garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), l.config("127.0.0.1:1"), testLog(t))
	var bad *cli.Error
	if !errors.As(err, &bad) || bad.Code != "journal-damaged" || !strings.Contains(bad.Message, "fail-safe") || bad.Hint == "" {
		t.Errorf("ended with %v", err)
	}
	if !failSafeLong(l.long()) {
		t.Errorf("limit %v, want the fail-safe cap's", l.long())
	}
	if data, err := os.ReadFile(l.state(statedir.JournalFile)); err != nil || !bytes.Equal(data, garbage) {
		t.Errorf("the journal was touched: %q, %v", data, err)
	}
	if _, err := Restore(t.Context(), l.config("127.0.0.1:1"), RestoreOptions{Force: true}); !errors.As(err, &bad) || bad.Code != "journal-damaged" {
		t.Errorf("restore with a damaged journal: %v", err)
	}
}

// Lesson 14: after a reboot the value before is the one that was found then.
func TestAfterARebootTheLimitsFoundAreTheOriginals(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	c.refuse = errors.New("not now")
	r := run(t, l.config(c.addr))
	waitFor(t, "a lease is held", c.acknowledged)
	_ = r.stop()
	boot := filepath.Join(l.dir, "root", machine.BootIDFile)
	if err := os.Chmod(boot, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{boot: "11111111-2222-3333-4444-555555555555\n", l.zone("constraint_0_power_limit_uw"): "170000000\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.set(func() { c.refuse = nil })
	r = run(t, l.config(c.addr))
	waitFor(t, "a lease is held again", func() bool { return c.lastHello().GetBootId()[:8] == "11111111" && c.acknowledged() })
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if l.long() != 170*units.Watt {
		t.Errorf("limit %v after the release, want the 170 W found after the reboot", l.long())
	}
}

// fullDisk refuses to write some files, as a full file system does.
type fullDisk struct {
	statedir.Disk
	mu   sync.Mutex
	full map[string]bool
}

func (d *fullDisk) set(name string, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full[name] = full
}

func (d *fullDisk) check(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full[name] {
		return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
	return nil
}

func (d *fullDisk) Durable(name string, data []byte) error {
	if err := d.check(name); err != nil {
		return err
	}
	return d.Disk.Durable(name, data)
}

func (d *fullDisk) Replace(name string, data []byte) error {
	if err := d.check(name); err != nil {
		return err
	}
	return d.Disk.Replace(name, data)
}

func TestNoRoomForTheJournalWritesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	original := l.controls()
	cfg := l.config()
	d := &fullDisk{Disk: statedir.OS{Dir: cfg.StateDir}, full: map[string]bool{statedir.JournalFile: true}}
	_, err := start(cfg, testLog(t), d)
	var bad *cli.Error
	if !errors.As(err, &bad) || bad.Hint == "" || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("started with %v", err)
	}
	if !equal(l.controls(), original) {
		t.Errorf("controls %v were written without a journal", l.controls())
	}
}

func TestNoRoomForAStampTakesNoGrant(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	cfg := l.config(c.addr)
	d := &fullDisk{Disk: statedir.OS{Dir: cfg.StateDir}, full: map[string]bool{statedir.MemoryFile: true}}
	stop := runOn(t, cfg, d)
	waitFor(t, "it says so", func() bool { return hasItem(c.last(), "state-not-stored") })
	if h := c.last().GetHolding(); h.GetState() != headroomv1.LeaseState_LEASE_STATE_FAIL_SAFE || !failSafeLong(l.long()) {
		t.Errorf("holding %v, limit %v: a grant was taken whose stamp is not on disk", h, l.long())
	}
	d.set(statedir.MemoryFile, false)
	waitFor(t, "the grant is taken once there is room", c.acknowledged)
	stop()
}

func TestNoRoomForHeldCarriesOutNoRaise(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	cfg := l.config(c.addr)
	d := &fullDisk{Disk: statedir.OS{Dir: cfg.StateDir}, full: map[string]bool{statedir.HeldFile: true}}
	stop := runOn(t, cfg, d)
	waitFor(t, "it says so", func() bool { return hasItem(c.last(), "held-not-stored") && c.last().GetNumber() > 2 })
	if !failSafeLong(l.long()) {
		t.Errorf("limit %v was raised although held.json does not say so", l.long())
	}
	d.set(statedir.HeldFile, false)
	waitFor(t, "the raise is carried out once there is room", c.acknowledged)
	stop()
}

// runOn is run with a state directory that can fail.
func runOn(t *testing.T, cfg config.Config, d statedir.Disk) (stop func()) {
	t.Helper()
	n, err := start(cfg, testLog(t), d)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}
