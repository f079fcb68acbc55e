// Claims: through the mount a program meets the kernel's own answers, values are
// fresh at every read, and the mount is gone when it should be.
package treefs_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"headroom/internal/testkit"
	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/plant"
	"headroom/lab/emulator/treefs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	zone   = "sys/class/powercap/intel-rapl:0/"
	limit  = zone + "constraint_0_power_limit_uw"
	policy = "sys/devices/system/cpu/cpufreq/policy1/"
)

// mounted is a machine behind a mount in a folder of the test's own.
type mounted struct {
	dir   string
	lock  sync.Mutex
	tree  *kernel.Tree
	plant *plant.Plant
	mount *treefs.Mount
}

func mount(t *testing.T, shape string) *mounted {
	t.Helper()
	s := testkit.Need(kernel.ShapeOf(shape))(t)
	p, err := plant.New(s.Spec)
	if err != nil {
		t.Fatal(err)
	}
	m := &mounted{dir: t.TempDir(), plant: p}
	m.tree = kernel.New(p, s, kernel.Identity{MachineID: "m", BootID: "b"})
	m.mount, err = treefs.NewMount(m.dir, m.tree, &m.lock)
	if errors.Is(err, treefs.ErrNoFUSE) {
		testkit.NotRun(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.mount.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *mounted) fault(f kernel.Faults) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.tree.SetFaults(f)
}

// read is the file's text without its line break, and the error of reading it.
func (m *mounted) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	return strings.TrimSuffix(string(text), "\n"), err
}

// write is the error of one write to the file.
func (m *mounted) write(name, text string, flags int) error {
	f, err := os.OpenFile(filepath.Join(m.dir, name), os.O_WRONLY|flags, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// The errors that a driver's tests on a real machine met arrive through the mount.
func TestErrorsArrive(t *testing.T) {
	t.Parallel()
	m := mount(t, "xeon-1s")
	for _, c := range []struct {
		file, text string
		want       error
	}{
		{limit, "abc\n", syscall.EINVAL},
		{limit, "-1", syscall.EINVAL},
		{limit, "25060000\n", nil},
		{"sys/class/powercap/intel-rapl/enabled", "0", syscall.ENOSYS},
		{zone + "energy_uj", "0", syscall.EACCES},
		{zone + "name", "x", syscall.EACCES},
		{policy + "scaling_setspeed", "2000000", syscall.EINVAL},
	} {
		if err := m.write(c.file, c.text, 0); !errors.Is(err, c.want) {
			t.Errorf("writing %q to %s: %v, want %v", c.text, c.file, err, c.want)
		}
	}
	if got, err := m.read(limit); got != "25000000" || err != nil {
		t.Errorf("limit %q, %v", got, err)
	}
	if err := m.write(limit, "90000000\n", os.O_TRUNC); err != nil {
		t.Errorf("a shell's write: %v", err) // which truncates first
	}
	if _, err := m.read("sys/class/powercap/intel-rapl:0:0/constraint_0_max_power_uw"); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("a maximum that is not there: %v", err)
	}
	m.fault(kernel.Faults{Locked: true, Refuse: true})
	if err := m.write(limit, "50000000", 0); !errors.Is(err, syscall.ENODATA) {
		t.Errorf("a locked limit: %v", err)
	}
	m.fault(kernel.Faults{FailRead: kernel.AllZones})
	if _, err := m.read(zone + "energy_uj"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a failing counter: %v", err)
	}
	m.fault(kernel.Faults{Offline: 1})
	if _, err := m.read(policy + "scaling_max_freq"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("an offline CPU's policy: %v", err)
	}
	m.fault(kernel.Faults{Permission: kernel.AllZones})
	if _, err := m.read(zone + "energy_uj"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("a counter without permission: %v", err)
	}
	m.fault(kernel.Faults{})
	if got, err := m.read(limit); got != "90000000" || err != nil {
		t.Errorf("limit after all faults %q, %v", got, err)
	}
}

// Through the mount a bound of frequency reads back late, as from a kernel; a plain
// file has no worker behind it.
func TestBoundsReadBackLate(t *testing.T) {
	t.Parallel()
	m := mount(t, "arm-cppc")
	f := testkit.Need(os.OpenFile(filepath.Join(m.dir, policy, "scaling_max_freq"), os.O_RDWR, 0))(t)
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte("2000000\n"), 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3000000\n", "2000000\n"} {
		buf := make([]byte, 64)
		n, err := f.ReadAt(buf, 0)
		if got := string(buf[:n]); got != want {
			t.Errorf("reads %q, want %q (%v)", got, want, err)
		}
	}
}

// One open descriptor shows what is now, at every read; modes can change; links
// lead where they should; nothing can be made or removed.
func TestFilesLive(t *testing.T) {
	t.Parallel()
	m := mount(t, "client-psys-mmio")
	f := testkit.Need(os.Open(filepath.Join(m.dir, zone, "energy_uj")))(t)
	defer func() { _ = f.Close() }()
	pread := func() string {
		buf := make([]byte, 64)
		n, _ := f.ReadAt(buf, 0)
		return string(buf[:n])
	}
	before := pread()
	m.lock.Lock()
	m.plant.Step(time.Second, 1)
	m.lock.Unlock()
	if now := pread(); now == before || !strings.HasSuffix(now, "\n") {
		t.Errorf("counter %q after %q", now, before)
	}
	path := filepath.Join(m.dir, zone, "energy_uj")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o400 || info.Size() != 4096 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(path, 0o444); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o444 {
		t.Errorf("%v, %v", info, err)
	}
	if got, err := m.read("sys/class/powercap/intel-rapl:0/subsystem/intel-rapl-mmio:0/name"); got != "package-0" || err != nil {
		t.Errorf("through links: %q, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "sys/new"), nil, 0o600); err == nil {
		t.Error("a file was made")
	}
	if err := os.Remove(path); err == nil {
		t.Error("a file was removed")
	}
}

// A mount goes even while a program holds a file of it.
func TestMountGoes(t *testing.T) {
	t.Parallel()
	m := mount(t, "xeon-1s")
	f := testkit.Need(os.Open(filepath.Join(m.dir, limit)))(t)
	if err := m.mount.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Read(make([]byte, 8)); err == nil {
		t.Error("a file of a mount that is gone was read")
	}
	_ = f.Close()
	if entries, err := os.ReadDir(m.dir); err != nil || len(entries) != 0 {
		t.Errorf("below the mount: %v, %v", entries, err)
	}
}
