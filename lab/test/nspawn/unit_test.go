// Claims: the shipped unit runs powerd under a real systemd with one capability and no
// root; it is active only once a safe cap is held; a powerd that hangs or is killed
// comes back by itself, adopts what its predecessor saved and holds the fail-safe cap;
// nothing outside its own files is writable for it; a stop leaves the machine as the
// promises require. Slices are bounded through a real systemd, until the next boot only,
// and never one that holds a service of ours.
package nspawn

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

const (
	unit   = "headroom-powerd.service"
	deploy = "../../../deploy/systemd"
	state  = "root/var/lib/headroom/powerd/"
	// aloneConfig is a node that no coordinator is configured for.
	aloneConfig = `node: n01
domain: rack/r1
enforce: true
power: {rated: 250W, floor: 70W, max: 220W, fail_safe: 95W, other: 22W, supply_efficiency: 0.92}
`
	// lonelyConfig is one whose coordinator does not answer.
	lonelyConfig = aloneConfig + "coordinators: [\"127.0.0.1:9\"]\n"
)

// installed is a machine with powerd, its units, users and folders installed as a
// package would, and an emulated processor.
func installed(t *testing.T) *machine {
	t.Helper()
	return boot(t, func(m *machine) {
		m.makeTree(t)
		m.build(t)
		m.install(t)
		m.write(t, "root/etc/headroom/powerd.yaml", aloneConfig, 0o640)
		if !m.notifies(t) {
			m.write(t, "root/etc/systemd/system/"+unit+".d/no-notify.conf", "[Service]\nType=exec\nWatchdogSec=0\n", 0o644)
		}
		m.write(t, "root/etc/systemd/system/sandboxed.service", sandboxed(t), 0o644)
		m.write(t, "root/etc/systemd/system/probe.service", "[Service]\nType=notify\nEnvironment="+probeEnv+"=notify\nExecStart="+probe+
			"\nWatchdogSec=5\nTimeoutStartSec=120\nTimeoutAbortSec=1\nRestart=on-failure\nRestartSec=100ms\n", 0o644)
		for _, name := range []string{"thermald", "my-coordinator"} {
			m.write(t, "root/etc/systemd/system/"+name+".service", "[Service]\nType=exec\nExecStart=/bin/sleep 1000\nSlice="+sliceOf(name)+"\n", 0o644)
		}
	})
}

// install puts the units, users and folders there as a package would, and the probe.
func (m *machine) install(t *testing.T) {
	t.Helper()
	units, err := filepath.Glob(deploy + "/headroom-*.s*")
	if err != nil || len(units) == 0 {
		t.Fatal("no units in "+deploy, err)
	}
	for _, u := range units {
		m.copy(t, u, "usr/lib/systemd/system/"+filepath.Base(u), 0o644)
	}
	m.copy(t, deploy+"/headroom.sysusers.conf", "usr/lib/sysusers.d/headroom.conf", 0o644)
	m.copy(t, deploy+"/headroom.tmpfiles.conf", "usr/lib/tmpfiles.d/headroom.conf", 0o644)
	m.copy(t, testkit.Need(os.Executable())(t), "usr/bin/headroom-probe", 0o755)
}

// sandboxed is powerd's unit with the probe of slices in powerd's place.
func sandboxed(t *testing.T) string {
	t.Helper()
	data := testkit.Need(os.ReadFile(deploy + "/" + unit))(t)
	out := ""
	for line := range strings.Lines(string(data)) {
		switch key, _, _ := strings.Cut(line, "="); key {
		case "Type":
			line = "Type=oneshot\nEnvironment=" + probeEnv + "=slices\n"
		case "ExecStart":
			line = "ExecStart=" + probe + "\n"
		case "Restart", "WatchdogSec", "NotifyAccess":
			line = ""
		}
		out += line
	}
	return out
}

func sliceOf(name string) string {
	if name == "my-coordinator" {
		return "batch-inner.slice" // in batch.slice
	}
	return "system.slice"
}

// build builds the real powerd.
func (m *machine) build(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", m.path("usr/bin/powerd"), "headroom/cmd/powerd")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// notifies reports whether this powerd talks to the service manager at all.
func (m *machine) notifies(t *testing.T) bool {
	t.Helper()
	data := testkit.Need(os.ReadFile(m.path("usr/bin/powerd")))(t)
	return bytes.Contains(data, []byte("NOTIFY_SOCKET"))
}

// One machine for all claims: they are checked in order.
func TestUnderSystemd(t *testing.T) {
	t.Parallel()
	m := installed(t)
	// No step stands on the success of the one before but for a running powerd.
	t.Run("ready", func(t *testing.T) { testReady(t, m) })
	t.Run("hardened", func(t *testing.T) { testHardened(t, m) })
	t.Run("reloaded", func(t *testing.T) { testReloaded(t, m) })
	t.Run("killed", func(t *testing.T) { testKilled(t, m) })
	t.Run("hung", func(t *testing.T) { testHung(t, m) })
	t.Run("stopped alone", func(t *testing.T) { testStoppedAlone(t, m) })
	t.Run("stopped without a leader", func(t *testing.T) { testStoppedLonely(t, m) })
	t.Run("removed", func(t *testing.T) { testRemoved(t, m) })
	t.Run("notify", func(t *testing.T) { testNotify(t, m) })
	t.Run("slices", func(t *testing.T) { testSlices(t, m) })
}

// Active means that the fail-safe cap is held already.
func testReady(t *testing.T, m *machine) {
	m.do(t, "systemctl", "start", unit) // returns once it is active
	if long, _ := m.limits(); m.notifies(t) && (long <= 0 || long >= longOriginal) {
		t.Errorf("active while the limit is %d uW", long)
	}
	m.capped(t)
}

// capped waits until the fail-safe cap is held, with the originals saved.
func (m *machine) capped(t *testing.T) {
	t.Helper()
	m.eventually(t, unit, "the fail-safe cap is held", func() bool {
		long, short := m.limits()
		// 95 W at the wall leave about 65 W to the package.
		return long > 40_000_000 && long < 80_000_000 && short > 0 && short < 90_000_000
	})
	if _, err := os.Stat(m.path(state + "journal.json")); err != nil {
		t.Errorf("no originals saved: %v", err)
	}
}

// A reload reaches powerd through its sandbox and does not end it, with gossip or without.
func testReloaded(t *testing.T, m *machine) {
	pid := m.show(t, unit, "MainPID")
	m.do(t, "systemctl", "reload", unit)
	m.capped(t)
	if now := m.show(t, unit, "MainPID"); now != pid || m.show(t, unit, "ActiveState") != "active" {
		t.Errorf("after a reload: process %s, it was %s", now, pid)
	}
}

// Capabilities, seccomp and mounts are in force, not only written down.
func testHardened(t *testing.T, m *machine) {
	pid := m.show(t, unit, "MainPID")
	status := m.do(t, "cat", "/proc/"+pid+"/status")
	const overrideOnly = "0000000000000002" // CAP_DAC_OVERRIDE is bit 1
	for field, want := range map[string]string{
		"CapPrm": overrideOnly, "CapEff": overrideOnly, "CapBnd": overrideOnly, "CapAmb": overrideOnly, "NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got := statusField(status, field); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
	if uid := strings.Fields(statusField(status, "Uid")); len(uid) == 0 || uid[0] == "0" {
		t.Errorf("runs as user %v, want one of its own", uid)
	}
	within := func(args ...string) (string, error) {
		return m.try(append([]string{"nsenter", "-t", pid, "-m", "--"}, args...)...)
	}
	for _, closed := range []string{"/etc/x", "/usr/x", "/var/lib/x", "/opt/x", "/sys/devices/x", "/sys/devices/system/cpu/x", "/sys/fs/cgroup/x", "/proc/sys/kernel/panic"} {
		if out, err := within("touch", closed); err == nil {
			t.Errorf("%s is writable: %s", closed, out)
		}
	}
	for _, open := range []string{"/sys/devices/virtual/powercap/intel-rapl/enabled", "/sys/devices/system/cpu/cpufreq/boost", "/var/lib/headroom/powerd"} {
		if _, err := within("touch", open); err != nil {
			t.Errorf("not writable: %v", err)
		}
	}
	if out, err := within("cat", "/etc/shadow"); err == nil && out != "" {
		t.Error("/etc/shadow is readable")
	}
	if out, err := within("ls", "/dev/mem"); err == nil {
		t.Errorf("there is %s", out)
	}
}

// kill -9: the next powerd writes the fail-safe cap, whatever the limit is by then.
// That it adopted what its predecessor saved shows at its stop.
func testKilled(t *testing.T, m *machine) {
	pid := m.show(t, unit, "MainPID")
	m.do(t, "systemctl", "kill", "-s", "STOP", unit)
	// As firmware does that resets the limit; a stopped powerd cannot take it back itself.
	m.write(t, zone+"constraint_0_power_limit_uw", strconv.Itoa(longOriginal)+"\n", 0o644)
	m.do(t, "systemctl", "kill", "-s", "KILL", unit)
	m.restarted(t, pid)
	m.capped(t)
}

// A powerd that hangs is replaced by the watchdog.
func testHung(t *testing.T, m *machine) {
	if !m.notifies(t) {
		testkit.NotRun(t, "this powerd does not talk to the service manager, so nobody watches it")
	}
	pid := m.show(t, unit, "MainPID")
	m.do(t, "systemctl", "kill", "-s", "STOP", unit)
	m.restarted(t, pid)
	m.capped(t)
}

// restarted waits until another process is active.
func (m *machine) restarted(t *testing.T, pid string) {
	t.Helper()
	m.eventually(t, unit, "another powerd is active", func() bool {
		now := m.show(t, unit, "MainPID")
		return now != pid && now != "0" && m.show(t, unit, "ActiveState") == "active"
	})
}

// stopped stops powerd and demands that it went by itself, not by SIGKILL.
func (m *machine) stopped(t *testing.T) {
	t.Helper()
	m.do(t, "systemctl", "stop", unit)
	if got := m.show(t, unit, "ActiveState") + " " + m.show(t, unit, "Result"); got != "inactive success" {
		t.Errorf("after the stop the unit is %s", got)
	}
}

// Without coordinators a stop puts the originals back: those that the first powerd
// found, two processes ago.
func testStoppedAlone(t *testing.T, m *machine) {
	m.stopped(t)
	if long, short := m.limits(); long != longOriginal || short != shortOriginal {
		t.Errorf("after the stop the limits are %d and %d uW, found were %d and %d", long, short, longOriginal, shortOriginal)
	}
}

// With coordinators that do not answer a stop leaves the fail-safe cap; the operator
// has the last word.
func testStoppedLonely(t *testing.T, m *machine) {
	m.write(t, "root/etc/headroom/powerd.yaml", lonelyConfig, 0o640)
	m.do(t, "systemctl", "start", unit)
	m.capped(t)
	m.stopped(t)
	m.capped(t)
	m.do(t, "powerd", "limit", "restore", "--yes", "--force")
	if long, short := m.limits(); long != longOriginal || short != shortOriginal {
		t.Errorf("after a forced restore the limits are %d and %d uW", long, short)
	}
}

// The package's script stops powerd before it is removed, and prints that the fail-safe cap
// stays written.
func testRemoved(t *testing.T, m *machine) {
	m.write(t, "root/etc/headroom/powerd.yaml", lonelyConfig, 0o640)
	m.copy(t, "../../../deploy/nfpm/powerd.prerm", "root/opt/prerm", 0o755)
	m.do(t, "systemctl", "start", unit)
	m.capped(t)
	m.do(t, "sh", "/opt/prerm", "upgrade", "0.2.0")
	if got := m.show(t, unit, "ActiveState"); got != "active" {
		t.Errorf("an upgrade leaves the unit %s", got)
	}
	said := m.do(t, "sh", "/opt/prerm", "remove")
	if got := m.show(t, unit, "ActiveState"); got != "inactive" || !strings.Contains(said, "stay at the fail-safe cap") {
		t.Errorf("removal leaves the unit %s and says %q", got, said)
	}
	m.capped(t)
	m.do(t, "powerd", "limit", "restore", "--yes", "--force")
}

// Only READY makes a unit active, and only beats keep it so.
func testNotify(t *testing.T, m *machine) {
	const unit = "probe.service"
	m.do(t, "systemctl", "start", "--no-block", unit)
	m.eventually(t, unit, "the first status is shown", func() bool { return m.show(t, unit, "StatusText") == "waits for the gate" })
	if got := m.show(t, unit, "ActiveState"); got != "activating" {
		t.Errorf("before READY the unit is %s", got)
	}
	m.do(t, "touch", gate)
	m.eventually(t, unit, "the unit is active", func() bool { return m.show(t, unit, "ActiveState") == "active" })
	if got := m.show(t, unit, "StatusText"); got != "beats within 5s READY=0" {
		t.Errorf("the status is %q: a line break went through", got)
	}
	pid := m.show(t, unit, "MainPID")
	m.do(t, "systemctl", "kill", "-s", "STOP", unit)
	m.eventually(t, unit, "the watchdog replaced a stopped process", func() bool {
		now := m.show(t, unit, "MainPID")
		return now != pid && now != "0"
	})
	m.do(t, "systemctl", "stop", unit)
}

// testSlices drives a real systemd over the bus, then over its own socket.
func testSlices(t *testing.T, m *machine) {
	asked := func(what string, as ...string) string {
		return m.do(t, append(as, "env", probeEnv+"="+what, probe)...)
	}
	m.do(t, "systemctl", "start", "thermald.service", "dbus.service")
	m.eventually(t, "dbus.service", "systemd has joined the bus", func() bool {
		_, err := m.try("busctl", "status", "org.freedesktop.systemd1")
		return err == nil
	})
	if got := asked("rivals"); !strings.HasPrefix(got, "thermald.service active running") {
		t.Errorf("rivals: %q", got)
	}
	if got := asked("denied", asPowerd()...); !strings.HasPrefix(got, "denied: true") {
		t.Errorf("without a polkit rule: %q", got)
	}
	t.Run("permitted", func(t *testing.T) { testPermitted(t, m) })
	want := "found unlimited, bounded 1.50 CPUs, put back unlimited, runtime files 1, lasting files 0\nover another writer: true"
	for _, way := range []string{"bus", "own socket"} {
		if way == "own socket" {
			m.do(t, "systemctl", "stop", "dbus.socket", "dbus.service")
		}
		if got := asked("slices"); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant: %s", way, got, want)
		}
	}
	m.do(t, "systemctl", "start", "my-coordinator.service")
	if got := asked("refused"); !strings.HasPrefix(got, "0 ") || !strings.Contains(got, "my-coordinator.service runs in it") {
		t.Errorf("a slice with a coordinator: %q", got)
	}
}

// asPowerd makes a command run as powerd's user.
func asPowerd() []string {
	return []string{"setpriv", "--reuid=headroom-powerd", "--regid=headroom-powerd", "--clear-groups"}
}

// The shipped polkit rule lets powerd's user bound slices, and nothing else.
func testPermitted(t *testing.T, m *machine) {
	if _, err := os.Stat("/usr/lib/polkit-1/polkitd"); err != nil {
		testkit.NotRun(t, "polkitd is not installed (lab/test/nspawn/packages.txt)")
	}
	m.copy(t, deploy+"/headroom-powerd.rules", "root/etc/polkit-1/rules.d/headroom-powerd.rules", 0o644)
	m.do(t, "systemctl", "restart", "polkit.service")
	as := append(asPowerd(), "env", probeEnv+"=slices", probe)
	if got := m.do(t, as...); !strings.Contains(got, "bounded 1.50 CPUs, put back unlimited") {
		t.Error(got)
	}
	// The same with everything that the unit takes away.
	m.do(t, "systemctl", "start", "sandboxed.service")
	for _, other := range [][]string{
		{"systemctl", "--no-ask-password", "stop", "thermald.service"},
		{"systemctl", "--no-ask-password", "set-property", "--runtime", "thermald.service", "CPUQuota=50%"},
	} {
		if out, err := m.try(append(asPowerd(), other...)...); err == nil {
			t.Errorf("%v was permitted: %s", other, out)
		}
	}
}
