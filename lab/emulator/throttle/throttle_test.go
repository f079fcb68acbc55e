package throttle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"headroom/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// busy starts a shell that keeps one CPU busy until the test ends, in a child of
// its own so that descendants are met too.
func busy(t *testing.T) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	cmd := exec.CommandContext(ctx, "sh", "-c", "ulimit -t 60; sh -c 'while :; do :; done' & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testkit.Check(t, cmd.Start())
	t.Cleanup(func() {
		defer cancel()
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	return cmd
}

// spent is the CPU time of a process and its descendants, by their own clocks.
func spent(root int) (sum time.Duration) {
	for _, pid := range Descendants([]int{root}) {
		cpu, _ := cpuTime(pid)
		sum += cpu
	}
	return sum
}

// slowed runs the throttle over a busy process for d at cores CPUs and returns
// the CPU seconds per second that it used, and those that another one, which is
// not held, used in the same time: the host may be busy with something else.
func slowed(t *testing.T, th Throttle, root, free int, cores float64, d time.Duration) (got, possible float64) {
	t.Helper()
	begin := time.Now()
	last, before, freeBefore := begin, spent(root), spent(free)
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for n := 0; ; n++ {
		if n%5 == 0 {
			testkit.Check(t, th.Hold([]int{root}))
		}
		now := <-ticker.C
		if _, err := th.Step(now.Sub(last), cores); err != nil {
			t.Fatal(err)
		}
		last = now
		if now.Sub(begin) >= d {
			took := time.Since(begin).Seconds()
			return (spent(root) - before).Seconds() / took, (spent(free) - freeBefore).Seconds() / took
		}
	}
}

// check runs the law of both throttles: a busy process gets its share and no
// more, half of it at half the speed, and runs freely afterwards.
func check(t *testing.T, th Throttle) {
	t.Helper()
	root, free := busy(t).Process.Pid, busy(t).Process.Pid
	slowed(t, th, root, free, 0.3, 500*time.Millisecond) // taken over, first period
	for _, cores := range []float64{0.3, 0.15} {
		got, possible := slowed(t, th, root, free, cores, 2*time.Second)
		t.Logf("%s: allowed %.3f CPUs, used %.3f, one not held used %.3f", th.Kind(), cores, got, possible)
		if got > cores*1.15+0.02 {
			t.Errorf("a process allowed %.2f CPUs used %.3f", cores, got)
		}
		if least := 0.5 * min(cores, possible); got < least {
			t.Errorf("a process allowed %.2f CPUs got only %.3f where %.3f were to be had", cores, got, possible)
		}
	}
	used, err := th.Step(pulse, 0.3)
	if err != nil || used < 0 {
		t.Errorf("used %v, %v", used, err)
	}
}

// Signals alone hold a busy process to its share.
func TestSignalsHoldTheShare(t *testing.T) {
	t.Parallel()
	note := filepath.Join(t.TempDir(), "held.json")
	th := testkit.Need(NewSignals(note))(t)
	check(t, th)
	if err := th.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(note); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note of held processes stays behind: %v", err)
	}
}

// What a killed run left stopped is ended at the next start of the same name, and
// nothing else: a pid that another process has by now is left alone.
func TestSignalsEndLeftovers(t *testing.T) {
	t.Parallel()
	left, other := busy(t), busy(t)
	st, ok := readStat(left.Process.Pid)
	if !ok {
		t.Fatal("no stat of a running process")
	}
	testkit.Check(t, unix.Kill(left.Process.Pid, unix.SIGSTOP))
	note := filepath.Join(t.TempDir(), "held.json")
	text := fmt.Sprintf(`[{"pid":%d,"start":%d},{"pid":%d,"start":1},{"pid":1,"start":0}]`, left.Process.Pid, st.start, other.Process.Pid)
	testkit.WriteFile(t, note, text)
	if _, err := NewSignals(note); err != nil {
		t.Fatal(err)
	}
	if err := left.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("leftover ended with %v", err)
	}
	if err := unix.Kill(other.Process.Pid, 0); err != nil {
		t.Errorf("a process that was never held is gone: %v", err)
	}
}

// A cgroup holds a busy process to its share and is gone afterwards.
func TestCgroupHoldsTheShare(t *testing.T) {
	t.Parallel()
	run := "headroom-test-" + strconv.Itoa(os.Getpid())
	th, err := NewCgroup(run, "n01", 0.07)
	if errors.Is(err, errNoCgroup) {
		testkit.NotRun(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, th)
	// An earlier run that crashed leaves its group and processes: the next one ends them.
	again, err := NewCgroup(run, "n01", 0.07)
	if err != nil {
		t.Fatalf("a group left behind is in the way: %v", err)
	}
	if pids := again.pids(); len(pids) != 0 {
		t.Errorf("processes %v of the earlier run are still there", pids)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := th.Close(); err != nil {
		t.Error(err)
	}
	for _, dir := range append(th.groups, th.parents...) {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s stays behind: %v", dir, err)
		}
	}
}

// The files of cgroup version 2 are written and read as documented
// (on a folder of plain files: this proves the format, not the slowing).
func TestCgroupVersion2Files(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	group := filepath.Join(mount, "headroom-x", "n01")
	testkit.Check(t, os.MkdirAll(group, 0o755))
	for name, text := range map[string]string{
		"cgroup.controllers": "cpuset cpu io memory", "cgroup.subtree_control": "", "headroom-x/cgroup.subtree_control": "",
	} {
		testkit.WriteFile(t, filepath.Join(mount, name), text)
	}
	version, roots, err := hierarchies(mount)
	if err != nil || version != 2 || len(roots) != 1 || roots[0] != mount {
		t.Fatalf("version %d in %v, %v", version, roots, err)
	}
	c := &Cgroup{version: 2, period: period, parents: []string{filepath.Dir(group)}, groups: []string{group}}
	testkit.Check(t, c.delegate())
	for _, dir := range []string{mount, filepath.Dir(group)} {
		if text, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); string(text) != "+cpu" {
			t.Errorf("subtree_control of %s is %q", dir, text)
		}
	}
	for name, text := range map[string]string{"cpu.max": "", "cpu.stat": "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\n"} {
		testkit.WriteFile(t, filepath.Join(group, name), text)
	}
	c.quota = testkit.Need(os.OpenFile(filepath.Join(group, "cpu.max"), os.O_WRONLY, 0))(t)
	c.usage = testkit.Need(os.Open(filepath.Join(group, "cpu.stat")))(t)
	defer func() { _, _ = c.quota.Close(), c.usage.Close() }()
	if used, err := c.Step(10*time.Second, 0.375); err != nil || used != 1234567*time.Microsecond {
		t.Errorf("usage %v %v", used, err)
	}
	if text, _ := os.ReadFile(filepath.Join(group, "cpu.max")); string(text) != "7500 20000" {
		t.Errorf("cpu.max %q", text)
	}
	testkit.WriteFile(t, filepath.Join(group, "cpu.stat"), "nr_periods 0\n")
	if _, err := c.Step(time.Second, 0.375); err == nil {
		t.Error("usage found where there is none")
	}
}

// The weight of a run's nodes is a multiple of the kernel's default, and stands where
// the host's other work competes with them.
func TestWeigh(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version    int
		file, want string
	}{{1, "cpu.shares", "51200"}, {2, "cpu.weight", "5000"}} {
		run := t.TempDir()
		testkit.Check(t, os.WriteFile(filepath.Join(run, c.file), nil, 0o644))
		g := &Cgroup{version: c.version, parents: []string{run}}
		testkit.Check(t, g.Weigh(50))
		if text, _ := os.ReadFile(filepath.Join(run, c.file)); string(text) != c.want {
			t.Errorf("%s is %q, want %q", c.file, text, c.want)
		}
		g.parents[0] = filepath.Join(run, "absent")
		if err := g.Weigh(50); err == nil {
			t.Error("no error where there is no group")
		}
	}
}

// A missing CPU controller is reported.
func TestNoCgroup(t *testing.T) {
	t.Parallel()
	if _, _, err := hierarchies(t.TempDir()); !errors.Is(err, errNoCgroup) {
		t.Errorf("error %v", err)
	}
	mount := t.TempDir()
	testkit.WriteFile(t, filepath.Join(mount, "cgroup.controllers"), "hugetlb\n")
	if _, _, err := hierarchies(mount); !errors.Is(err, errNoCgroup) {
		t.Errorf("error %v", err)
	}
}

// The period grows until the smallest share is as much as the kernel deals out.
func TestPeriodForSmallShares(t *testing.T) {
	t.Parallel()
	for _, least := range []float64{1, 0.375, 0.088, 0.011} {
		p := periodFor(least)
		if quota := time.Duration(least * float64(p)); quota < time.Millisecond || p < period || p > periodMax {
			t.Errorf("share %v: quota %v in %v", least, quota, p)
		}
	}
	if periodFor(0) != periodMax {
		t.Errorf("no share: period %v", periodFor(0))
	}
}

// Descendants of a process are found.
func TestDescendants(t *testing.T) {
	t.Parallel()
	root := busy(t).Process.Pid
	var all []int
	for deadline := time.Now().Add(10 * time.Second); len(all) < 2 && time.Now().Before(deadline); {
		all = Descendants([]int{root})
	}
	if len(all) != 2 || all[0] != root {
		t.Fatalf("descendants of %d: %v", root, all)
	}
	if gone := Children(1 << 22); len(gone) != 0 {
		t.Errorf("children of no process: %v", gone)
	}
}

// No stat line breaks the parser; a command name may hold anything.
func FuzzParseStat(f *testing.F) {
	f.Add("12 (a) b) S 3 12 12 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1 0 777 9 9")
	f.Add("")
	f.Add(")")
	f.Add("1 (x) ")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseStat(text)
	})
}

// The fields are those of proc(5).
func TestParseStat(t *testing.T) {
	t.Parallel()
	st, ok := parseStat("12 (a) b) S 3 12 12 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1 0 777 9 9")
	if !ok || st != (stat{state: 'S', start: 777}) {
		t.Errorf("%+v %v", st, ok)
	}
}

// Long files of /proc are read whole.
func TestReadLongFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "children")
	want := bytes.Repeat([]byte("12345 "), 3000)
	testkit.WriteFile(t, path, want)
	if got, err := read(path); err != nil || got != string(want) {
		t.Errorf("read %d of %d bytes, %v", len(got), len(want), err)
	}
}
