// Claims: the use of the CPUs is what prometheus/procfs makes of the same file,
// however many CPUs it lists; a file that is not understood, or that went back,
// is no use of 0 but none that is known.
package machine

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"pgregory.net/rapid"
)

// statFile writes proc/stat as the kernel does, in place.
func statFile(t rapid.TB, root string, ticks []uint64, cpus int) {
	t.Helper()
	numbers := strings.Trim(fmt.Sprint(ticks), "[]")
	text := "cpu  " + numbers + "\n"
	for i := range cpus {
		text += fmt.Sprintf("cpu%d %s\n", i, numbers)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/stat"), []byte(text+"intr 0\nctxt 0\nbtime 1\nprocesses 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// procRoot is a file system with an empty proc.
func procRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func TestBusyIsWhatProcfsReads(t *testing.T) {
	t.Parallel()
	root, dir := procRoot(t)
	oracle, err := procfs.NewFS(filepath.Join(dir, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		ticks := rapid.SliceOfN(rapid.Uint64Range(0, 1<<40), 10, 10)
		cpus := rapid.IntRange(1, 300).Draw(t, "cpus")
		before, more := ticks.Draw(t, "before"), ticks.Draw(t, "more")
		statFile(t, dir, before, cpus)
		u := openCPUUse(root)
		for range 1 + u.rest {
			if _, known := u.busy(); known {
				t.Fatal("known from one look")
			}
		}
		was := procfsTimes(t, oracle)
		for i := range more {
			more[i] += before[i]
		}
		statFile(t, dir, more, cpus)
		now := procfsTimes(t, oracle)
		for range u.rest { // many CPUs are not looked at every second
			u.busy()
		}
		got, known := u.busy()
		if known != (now.total > was.total) {
			t.Fatalf("known %v, though the total went from %v to %v", known, was.total, now.total)
		}
		if want := (now.busy - was.busy) / (now.total - was.total); known && math.Abs(got-want) > 1e-6 {
			t.Fatalf("busy %v, procfs says %v", got, want)
		}
	})
}

func procfsTimes(t rapid.TB, fs procfs.FS) cpuTimes {
	t.Helper()
	stat, err := fs.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c := stat.CPUTotal
	busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
	return cpuTimes{busy: busy, total: busy + c.Idle + c.Iowait}
}

func TestBusyUnknown(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing":    "",
		"one CPU":    "cpu0 1 2 3 4 5 6 7 8 9 10",
		"no number":  "cpu 1 2 3 4 5 six 7 8 9 10",
		"below zero": "cpu 1 2 3 -4 5 6 7 8 9 10",
		"infinite":   "cpu 1 2 3 inf 5 6 7 8 9 10",
		"too big":    "cpu 1 2 3 18446744073709551616 5 6 7 8 9 10",
	} {
		root, dir := procRoot(t)
		statFile(t, dir, []uint64{5, 0, 0, 5, 0, 0, 0, 0, 0, 0}, 1)
		u := openCPUUse(root)
		if err := os.WriteFile(filepath.Join(dir, "proc/stat"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if share, known := u.busy(); known {
			t.Errorf("%s: %q was read as %v", name, text, share)
		}
	}
	root, dir := procRoot(t)
	if u := openCPUUse(root); u != nil {
		t.Error("a kernel without proc/stat tells CPU use")
	}
	statFile(t, dir, []uint64{5, 0, 0, 5, 0, 0, 0, 0, 0, 0}, 1)
	u := openCPUUse(root)
	u.busy()
	for _, idle := range []uint64{5, 4} { // stood still, went back
		statFile(t, dir, []uint64{5, 0, 0, idle, 0, 0, 0, 0, 0, 0}, 1)
		if share, known := u.busy(); known {
			t.Errorf("idle time went from 5 to %d: busy %v", idle, share)
		}
	}
}
