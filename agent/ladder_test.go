// Claims: the node stands on the best rung that takes what is written, says which
// and why, is charged what full load draws where software holds the cap, and puts
// everything back that any rung wrote; with any capability missing it works as far
// as it can and never writes 0 W.
package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/capping"
	"headroom/lease"
	"headroom/rapl"
	"headroom/rapl/sysfs"
	"headroom/units"
)

const ceilingFile = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"

// Lesson 8: P10 and P4: without package limits frequency holds the cap, and the node
// is charged what full load draws under the highest ceiling that reads back.
func TestFrequencyHoldsTheCapWithoutRAPL(t *testing.T) {
	t.Parallel()
	l, c := newLab(t), newCoordinator(t)
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	original := l.number(ceilingFile)
	c.granted = 120 * units.Watt
	r := run(t, l.config(c.addr))
	waitFor(t, "the lease is acknowledged", c.acknowledged)
	hello := c.lastHello()
	if !hello.GetControlled() || hello.GetRung() != rungCPUFreq {
		t.Errorf("hello %v, want controlled on the cpufreq rung", hello)
	}
	low := l.number(ceilingFile)
	if low >= original {
		t.Errorf("ceiling %d kHz under a cap of 120 W, it was %d", low, original)
	}
	waitFor(t, "a setting whose full load fits the cap is charged the cap", func() bool {
		h := c.last().GetHolding()
		return h.EffectiveUw != nil && h.GetEffectiveUw() == 120_000_000
	})
	if h := l.held(); h.CapW < 120 || len(h.Limits) != 0 {
		t.Errorf("held.json %+v, want the cap and no package limits", h)
	}
	c.grant(t, 220*units.Watt)
	waitFor(t, "the raise is carried out", func() bool { return l.number(ceilingFile) > low })
	l.write(ceilingFile, "3600000")
	waitFor(t, "another writer's ceiling is told as what full load draws", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, b := range c.beats {
			if b.GetHolding().GetEffectiveUw() > 220_000_000 && hasItem(b, "limit-drift") {
				return true
			}
		}
		return false
	})
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if got := l.number(ceilingFile); got != original {
		t.Errorf("ceiling %d kHz after the release, want %d", got, original)
	}
}

// The kernel carries ceilings out by a worker, so that what was written reads back late:
// putting back waits for it, with the agent and without, and holding does.
func TestLateCeilingsGoBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]func(*node) originals.Outcome{
		"with the agent": func(n *node) originals.Outcome { return n.release.putBack() },
		"without the agent": func(n *node) originals.Outcome {
			return originals.PutBack(n.files, n.records.Journal, n.records.Trail, originals.FilesOnly)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := mountedLab(t, "arm-cppc")
			originals := l.ceilings(t)
			n := loopless(t, l.config("127.0.0.1:1"))
			if n.control.writeErr != nil || n.control.rung() != rungCPUFreq || equal(l.ceilings(t), originals) {
				t.Fatalf("rung %s, %v, ceilings %v", n.control.rung(), n.control.writeErr, l.ceilings(t))
			}
			if out := back(n); out.Failed != 0 || len(out.Kept) != 0 || len(out.Restored) != len(originals) {
				t.Errorf("%+v", out)
			}
			if now := l.ceilings(t); !equal(now, originals) {
				t.Errorf("ceilings %v, want %v", now, originals)
			}
		})
	}
}

// Lesson 8: many machines have their limits locked by firmware, and a kernel that
// takes such a write without an error. Seen at the first write, the next rung holds.
func TestLockedLimitsStepDown(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.controls()
	n := lockedNode(t, l.config("127.0.0.1:1"))
	if n.control.rung() != rungCPUFreq || n.control.mode != holding || !shown(n, "bios-lock") {
		t.Errorf("rung %s, mode %v, items %v", n.control.rung(), n.control.mode, n.health.List())
	}
	rows := n.report.ladderRows()
	if rows[0].State != capping.RungLocked || rows[0].Text == "" || rows[1].State != capping.RungUsed {
		t.Errorf("ladder %+v", rows)
	}
	if !equal(l.controls(), before) {
		t.Errorf("controls %v, want %v", l.controls(), before)
	}
	for _, c := range n.records.Journal.Controls {
		if c.Kind != originals.Frequency {
			t.Errorf("the journal keeps %s of the rung that was given up", c.Label)
		}
	}
}

// lockedNode has started on a machine whose firmware has locked the package limits.
func lockedNode(t *testing.T, cfg config.Config) *node {
	t.Helper()
	file, err := statedir.Lock(cfg.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
	n.lock = file
	n.openTree = func(root *os.Root) (*rapl.Tree, error) {
		open := func(path string, write bool) (sysfs.File, error) {
			f, err := sysfs.Disk(root)(path, write)
			return deaf{f}, err
		}
		return rapl.OpenZones(open, []rapl.Dir{{Path: "sys/class/powercap/intel-rapl:0", Control: rapl.ControlMSR}})
	}
	if err := n.boot(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.close() })
	return n
}

// deaf drops writes, as firmware that has locked its limits does.
type deaf struct{ sysfs.File }

func (d deaf) Pwrite(text []byte) (int, error) { return len(text), nil }

func shown(n *node, code string) bool { _, ok := n.health.Get(code); return ok }

// Lesson 8: each capability missing in turn, a bare virtual machine among them: the
// node starts, says what holds its cap or why nothing does, and never writes 0 W.
func TestEachCapabilityMissing(t *testing.T) {
	t.Parallel()
	const (
		powercap = "sys/class/powercap"
		cpufreq  = "sys/devices/system/cpu/cpufreq"
		zone     = powercap + "/intel-rapl:0"
	)
	for name, c := range map[string]struct {
		gone []string
		rung string
	}{
		"nothing":       {nil, rungRAPL},
		"RAPL":          {[]string{powercap}, rungCPUFreq},
		"cpufreq":       {[]string{cpufreq}, rungRAPL},
		"both":          {[]string{powercap, cpufreq}, rungNone},
		"long limit":    {[]string{zone + "/constraint_0_power_limit_uw"}, rungCPUFreq},
		"short limit":   {[]string{zone + "/constraint_1_power_limit_uw", zone + "/constraint_1_name"}, rungRAPL},
		"windows":       {[]string{zone + "/constraint_0_time_window_us"}, rungRAPL},
		"switch":        {[]string{zone + "/enabled"}, rungRAPL},
		"counter":       {[]string{zone + "/energy_uj"}, rungRAPL},
		"range":         {[]string{zone + "/max_energy_range_uj"}, rungRAPL},
		"limits at all": {[]string{zone + "/constraint_0_name", zone + "/constraint_1_name"}, rungCPUFreq},
		"zone's name":   {[]string{zone + "/name"}, rungCPUFreq},
		"one ceiling":   {[]string{powercap, ceilingFile}, rungNone},
		"thermal":       {[]string{"sys/class/hwmon", "sys/class/thermal"}, rungRAPL},
		"procfs":        {[]string{"proc/stat"}, rungRAPL},
		"bare VM":       {[]string{powercap, cpufreq, "sys/class/hwmon", "sys/class/thermal", "proc/stat"}, rungNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.remove(c.gone...)
			before := l.writable(t)
			r := run(t, l.config())
			s := l.status(t)
			if s.GetRung() != c.rung || len(s.GetLadder()) != 4 {
				t.Errorf("rung %q, want %q: %v", s.GetRung(), c.rung, s.GetLadder())
			}
			for _, rung := range s.GetLadder() {
				if rung.GetState() != "used" && rung.GetState() != "ready" && rung.GetText() == "" {
					t.Errorf("rung %s is %s and does not say why", rung.GetRung(), rung.GetState())
				}
			}
			if c.rung == rungNone && !hasStatusItem(s, noRungCode) {
				t.Errorf("health %v: an uncontrolled node must say so", s.GetHealth())
			}
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			l.checkNoZero(t)
			if after := l.writable(t); !equal(after, before) {
				t.Errorf("left behind %v, found %v", after, before)
			}
		})
	}
}

// writable are the values of whatever any rung may write, as far as it is there.
func (l *lab) writable(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	root := filepath.Join(l.dir, "root")
	for _, pattern := range []string{
		"sys/class/powercap/intel-rapl:0/constraint_*_power_limit_uw", "sys/class/powercap/intel-rapl:0/constraint_*_time_window_us",
		"sys/class/powercap/intel-rapl:0/enabled", "sys/devices/system/cpu/cpufreq/policy*/scaling_m??_freq",
	} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			path, err := filepath.Rel(root, f)
			if err != nil {
				t.Fatal(err)
			}
			all[path] = l.number(path)
		}
	}
	return all
}

// Mutated trees: whatever stands in the files, the node starts or refuses in
// words; nothing panics and nothing writes 0 W.
func TestMutatedTrees(t *testing.T) {
	t.Parallel()
	const zone = "sys/class/powercap/intel-rapl:0/"
	files := []string{
		zone + "name", zone + "energy_uj", zone + "max_energy_range_uj", zone + "enabled", zone + "constraint_0_name",
		zone + "constraint_0_power_limit_uw", zone + "constraint_0_max_power_uw", zone + "constraint_0_time_window_us",
		zone + "constraint_1_power_limit_uw", ceilingFile, filepath.Dir(ceilingFile) + "/cpuinfo_max_freq",
		filepath.Dir(ceilingFile) + "/scaling_min_freq", "proc/stat",
	}
	for _, text := range []string{"", "0", "-1", "abc", "18446744073709551616", "99999999999999", "1e6", strings.Repeat("9", 5000)} {
		t.Run("text "+text[:min(len(text), 20)], func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			for _, f := range files {
				if _, err := os.Stat(filepath.Join(l.dir, "root", f)); err != nil {
					continue
				}
				path := filepath.Join(l.dir, "root", f)
				good, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				_ = os.Chmod(path, 0o600)
				l.write(f, text)
				cfg := l.config()
				n, err := start(cfg, testLog(t), statedir.OS{Dir: cfg.StateDir})
				if err == nil {
					n.records.Start()
					for range 3 {
						n.turn(instant())
					}
					n.report.publish(instant())
					if n.records.Journal != nil && n.control.mode == holding {
						n.release.putBack()
					}
					n.records.Stop()
					if err := n.close(); err != nil {
						t.Logf("%s: %v", f, err)
					}
				}
				if err := os.WriteFile(path, good, 0o600); err != nil && !errors.Is(err, unix.ENOENT) {
					t.Fatal(err)
				}
				l.checkNoZero(t)
			}
		})
	}
}

// checkNoZero demands that no limit of 0 W stands in the tree.
func (l *lab) checkNoZero(t *testing.T) {
	t.Helper()
	limits, err := filepath.Glob(filepath.Join(l.dir, "root/sys/class/powercap/intel-rapl:0/constraint_*_power_limit_uw"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range limits {
		if data, err := os.ReadFile(f); err == nil && strings.TrimSpace(strings.SplitN(string(data), "\n", 2)[0]) == "0" {
			t.Errorf("%s holds 0 W", f)
		}
	}
}

// status waits for the agent's first answer.
func (l *lab) status(t *testing.T) *headroomv1.GetAgentStatusResponse {
	t.Helper()
	var s *headroomv1.GetAgentStatusResponse
	waitFor(t, "the agent answers", func() bool {
		res, err := l.client().GetAgentStatus(t.Context(), connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
		if err == nil {
			s = res.Msg
		}
		return err == nil
	})
	return s
}

func hasStatusItem(s *headroomv1.GetAgentStatusResponse, code string) bool {
	for _, i := range s.GetHealth() {
		if i.GetCode() == code {
			return true
		}
	}
	return false
}

// A package that comes while powerd runs is not limited: the node says so and is
// charged its rated watts. One that goes takes nothing else with it.
func TestPackagesComeAndGo(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	n := loopless(t, l.config("127.0.0.1:1"))
	second := filepath.Join(l.dir, "root/sys/class/powercap/intel-rapl:1")
	if err := os.CopyFS(second, os.DirFS(l.zone(""))); err != nil {
		t.Fatal(err)
	}
	l.write("sys/class/powercap/intel-rapl:1/name", "package-1")
	n.hotplug.look(n.seconds)
	n.turn(instant())
	if h := n.holdingNow(); h.GetEffectiveUw() != int64(n.cfg.Power.Rated) || !shown(n, "new-package") {
		t.Errorf("holding %v, items %v", h, n.health.List())
	}
	n.machine.Strange = nil
	l.remove("sys/class/powercap", "sys/devices/virtual/powercap")
	n.hotplug.look(n.seconds)
	n.machine.LookedAt -= period // as if a period had gone by
	n.turn(instant())
	if n.meter.Sample.Package.Known {
		t.Errorf("sample %+v of a machine without packages", n.meter.Sample)
	}
}

// Lesson 9: the same limits stand behind two doors, and the lower one wins. Firmware
// that bounds a package through memory-mapped registers is named.
func TestLowerTwinIsNamed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	twin := filepath.Join(l.dir, "root/sys/class/powercap/intel-rapl-mmio:0")
	if err := os.CopyFS(twin, os.DirFS(l.zone(""))); err != nil {
		t.Fatal(err)
	}
	n := loopless(t, l.config("127.0.0.1:1"))
	l.write("sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw", "20000000")
	n.turn(instant())
	n.hotplug.look(n.seconds)
	if i, _ := n.health.Get("twin-limit"); !strings.Contains(i.Text, "20.0 W") || !strings.Contains(i.Text, "mmio") {
		t.Errorf("item %+v, want the twin named", i)
	}
	l.write("sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw", "200000000")
	n.hotplug.look(n.seconds)
	if shown(n, "twin-limit") {
		t.Error("the item does not clear itself")
	}
}

// Lesson 3: the same counter stands behind each die. Two sockets that count alike are
// counted twice, two dies of one socket that show one counter once.
func TestOnlyDiesRepeatACounter(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]units.Power{"package-1": 200 * units.Watt, "package-0-die-1": 100 * units.Watt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			dirs := []string{"package-0", name}
			if name != "package-1" {
				dirs[0] = "package-0-die-0"
			}
			set := func(uj int) {
				for i, zone := range dirs {
					dir := filepath.Join(root, "sys/class/powercap/intel-rapl:"+strconv.Itoa(i))
					for file, text := range map[string]string{"name": zone, "energy_uj": strconv.Itoa(uj), "max_energy_range_uj": "65532610987"} {
						if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o600)); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			set(0)
			tree, err := os.OpenRoot(root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tree.Close() }()
			m, err := machine.Open(filesOf(t, tree), &config.Config{Root: root}, rapl.Open, false)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			var last capping.Sample
			for i := range 80 {
				set(i * 100_000) // 100 W at one look a millisecond
				at := time.Second + time.Duration(i)*time.Millisecond
				last = m.Look(lease.Instant{Boot: at, Awake: at})
			}
			if last.Package.Power != want {
				t.Errorf("%v, want %v", last.Package.Power, want)
			}
		})
	}
}
