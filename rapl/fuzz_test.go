// Claims: whatever any file of the tree holds, and whatever error it gives,
// nothing panics, no energy is made up, and no limit of 0 W is written.
package rapl

import (
	"path"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"headroom/rapl/sysfs"
	"headroom/units"
)

// zoneFiles are the files that a package of packageFiles has.
func zoneFiles() []string {
	return []string{
		"name", "energy_uj", "max_energy_range_uj", "enabled", longFile, shortFile, "constraint_0_name", "constraint_1_name",
		"constraint_0_time_window_us", "constraint_1_time_window_us", "constraint_0_max_power_uw", "constraint_1_max_power_uw",
	}
}

// exercise does everything that a node does with a tree.
func exercise(k *kernel, m *machine, want units.Power) {
	tree, err := openTree(m.root, k.open)
	if err != nil {
		return
	}
	defer func() { _ = tree.Close() }()
	tree.Remarks()
	zones := tree.OfKind(Package)
	mirrors := NewMirrors(zones)
	for _, z := range tree.Zones() {
		z.Socket()
		z.Die()
		z.Locked()
		meter := NewMeter(z)
		for i := range 3 {
			if r, err := meter.Look(time.Duration(i) * time.Second); r.Known && (err != nil || r.Energy < 0) || !r.Known && r.Energy != 0 {
				panic("a reading made up")
			}
			mirrors.NoteMeters([]*Meter{meter})
		}
		_, _ = tree.Binding(z, LongTerm)
		l, err := z.Limiter()
		if err != nil {
			continue
		}
		_, _ = l.Apply(Limits{Long: want, Short: want + want/5, LongWindow: time.Second, ShortWindow: 10 * time.Millisecond, Enable: true}, nil)
		_, _ = l.Drift()
		_ = l.Close()
	}
	_, _ = tree.Refresh()
}

// onlyPositive says that no limit written was 0 W.
func onlyPositive(written []string) bool {
	for _, w := range written {
		file, value, _ := strings.Cut(w, "=")
		if strings.HasSuffix(file, "power_limit_uw") && (len(value) < 6 || value[0] == '0' || value[0] == '-') {
			return false
		}
	}
	return true
}

func FuzzZoneFiles(f *testing.F) {
	for i := range zoneFiles() {
		for _, text := range []string{"", "\n", "0\n", "-1\n", "1e6\n", "<unsupported>\n", "18446744073709551616\n", "package-0-die-\n", "262143328850"} {
			f.Add(uint8(i), text, int64(95_000_000))
		}
	}
	m := newMachine(f)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	f.Fuzz(func(t *testing.T, file uint8, text string, want int64) {
		k := newKernel(m)
		k.texts[zoneFiles()[int(file)%len(zoneFiles())]] = text
		k.disk = readOnlyDisk(k.disk)
		exercise(k, m, units.Power(want))
		if !onlyPositive(k.written) {
			t.Fatalf("wrote %v", k.written)
		}
	})
}

// readOnlyDisk lets nothing change the files, so that inputs do not meet.
func readOnlyDisk(disk sysfs.Opener) sysfs.Opener {
	return func(name string, write bool) (sysfs.File, error) {
		f, err := disk(name, false)
		if !write || err != nil {
			return f, err
		}
		return sink{f}, nil
	}
}

type sink struct{ sysfs.File }

func (sink) Pwrite(text []byte) (int, error) { return len(text), nil }

// Every file in turn, and several at once, fails to open, read or write.
func TestEveryFileFails(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.zone("intel-rapl", "intel-rapl:0", "package-0", packageFiles(0))
	faults := []error{nil, nil, nil, unix.EIO, unix.EINVAL, unix.ENODATA, unix.ENOSYS, unix.EACCES, unix.ENODEV, unix.ENOENT, unix.EBUSY}
	rapid.Check(t, func(t *rapid.T) {
		k := newKernel(m)
		k.disk = readOnlyDisk(k.disk)
		for _, file := range zoneFiles() {
			for kind, set := range map[string]map[string]error{"open": k.opening, "read": k.reading, "write": k.writing} {
				if err := rapid.SampledFrom(faults).Draw(t, kind+" "+path.Base(file)); err != nil {
					set[file] = err
				}
			}
		}
		exercise(k, m, units.Power(rapid.Int64Range(-5, 5_000_000_000).Draw(t, "want")))
		if !onlyPositive(k.written) {
			t.Fatalf("wrote %v", k.written)
		}
	})
}
