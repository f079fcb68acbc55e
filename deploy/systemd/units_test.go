// Claims: the shipped units are what systemd accepts without a word, with an exposure
// of at most 2.0 where they hold power, MSR access included; no service is root; a
// hung powerd is replaced before its lease ends; a stop is long enough to be finished;
// nothing keeps a crashed service from coming back.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// exposureMax is ten times the highest exposure, as systemd-analyze takes it.
func exposureMax() map[string]string {
	return map[string]string{
		"headroom-powerd.service": "20", "headroom-coordinator.service": "20", "headroom-scheduler.service": "20",
		"headroom-worker.service": "25", // runs other people's programs
	}
}

// setting is one line of a unit file.
type setting struct{ section, key, value string }

func parse(t *testing.T, path string) []setting {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []setting
	section := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = line
		case !ok:
			t.Errorf("%s: %q is no setting", path, line)
		default:
			all = append(all, setting{section, key, value})
		}
	}
	return all
}

// values are all values of a key, in their order.
func values(all []setting, key string) []string {
	var out []string
	for _, s := range all {
		if s.key == key {
			out = append(out, s.value)
		}
	}
	return out
}

func one(t *testing.T, all []setting, key string) string {
	t.Helper()
	v := values(all, key)
	if len(v) != 1 {
		t.Fatalf("%s is there %d times", key, len(v))
	}
	return v[0]
}

func duration(t *testing.T, all []setting, key string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(one(t, all, key))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func services(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("*.service")
	if err != nil || len(all) != len(exposureMax()) {
		t.Fatalf("services %v: %v", all, err)
	}
	return all
}

func analyze(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("systemd-analyze")
	if err != nil {
		testkit.NotRun(t, "systemd-analyze is not installed (package systemd)")
	}
	return path
}

// staged is a folder with all units whose programs exist, and the drop-ins, if they are
// asked for.
func staged(t *testing.T, dropIns bool) string {
	t.Helper()
	dir := t.TempDir()
	units, err := filepath.Glob("headroom-*.s[el][ri]*")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		text := content(t, u)
		for _, program := range []string{"powerd", "coordinator", "scheduler"} {
			text = strings.ReplaceAll(text, "ExecStart=/usr/bin/"+program+" ", "ExecStart="+self+" ")
		}
		store(t, filepath.Join(dir, u), text)
	}
	if dropIns {
		store(t, filepath.Join(dir, "headroom-powerd.service.d", "msr.conf"), content(t, "headroom-powerd-msr.conf"))
		store(t, filepath.Join(dir, "headroom-scheduler.service.d", "hadoop.conf"), content(t, "headroom-scheduler-hadoop.conf"))
		store(t, filepath.Join(dir, "headroom-scheduler.service.d", "spark.conf"), content(t, "headroom-scheduler-spark.conf"))
	}
	return dir
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func store(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestExposure(t *testing.T) {
	t.Parallel()
	tool := analyze(t)
	for _, dropIns := range []bool{false, true} {
		dir := staged(t, dropIns)
		for unit, limit := range exposureMax() {
			cmd := exec.Command(tool, "security", "--no-pager", "--offline=true", "--threshold="+limit, filepath.Join(dir, unit))
			cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s with drop-ins %v: above %s tenths: %v\n%s", unit, dropIns, limit, err, out)
			}
		}
	}
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	t.Parallel()
	tool := analyze(t)
	dir := staged(t, true)
	for _, unit := range append(services(t), "headroom-batch.slice") {
		cmd := exec.Command(tool, "verify", "--no-pager", "--man=no", filepath.Join(dir, unit))
		cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
		out, err := cmd.CombinedOutput()
		ours := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return !strings.Contains(line, "headroom-") })
		if err != nil || len(ours) > 0 {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}

// Every service has a user of its own, made by the shipped sysusers file, and none may
// gain privileges.
func TestNoServiceIsRoot(t *testing.T) {
	t.Parallel()
	users := content(t, "headroom.sysusers.conf")
	seen := map[string]bool{}
	for _, unit := range services(t) {
		all := parse(t, unit)
		user := one(t, all, "User")
		if seen[user] || !strings.Contains(users, "\nu "+user+" ") {
			t.Errorf("%s: user %q is shared or not made", unit, user)
		}
		seen[user] = true
		if one(t, all, "NoNewPrivileges") != "yes" || one(t, all, "ProtectSystem") != "strict" {
			t.Errorf("%s may gain privileges or write anywhere", unit)
		}
		want := ""
		if unit == "headroom-powerd.service" {
			want = "CAP_DAC_OVERRIDE"
		}
		if one(t, all, "CapabilityBoundingSet") != want || one(t, all, "AmbientCapabilities") != want {
			t.Errorf("%s: capabilities are not %q", unit, want)
		}
	}
}

// Raw access to the processor's registers is a choice of its own.
func TestRegistersOnlyInTheDropIn(t *testing.T) {
	t.Parallel()
	for _, unit := range services(t) {
		for _, s := range parse(t, unit) {
			if strings.Contains(s.value, "SYS_RAWIO") || strings.Contains(s.value, "msr") {
				t.Errorf("%s: %s=%s", unit, s.key, s.value)
			}
		}
	}
	if caps := values(parse(t, "headroom-powerd-msr.conf"), "AmbientCapabilities"); !slices.Equal(caps, []string{"CAP_DAC_OVERRIDE CAP_SYS_RAWIO"}) {
		t.Errorf("the drop-in gives %v", caps)
	}
}

// The disk is read-only for the scheduler but for its own folder; the drop-in opens the
// one folder that the allocation file stands in, and nothing else.
func TestAllocationFileOnlyInTheDropIn(t *testing.T) {
	t.Parallel()
	if got := values(parse(t, "headroom-scheduler.service"), "ReadWritePaths"); len(got) > 0 {
		t.Errorf("the unit opens %v", got)
	}
	all := parse(t, "headroom-scheduler-hadoop.conf")
	if got := values(all, "ReadWritePaths"); len(all) != 1 || !slices.Equal(got, []string{"/etc/hadoop/conf"}) {
		t.Errorf("the drop-in says %v", all)
	}
}

// Drivers of Spark outlive a scheduler that is started again: the service manager must
// not end them with it, and they are programs of Java.
func TestDriversOutliveTheSchedulerOnlyWithTheDropIn(t *testing.T) {
	t.Parallel()
	for unit, want := range map[string]string{"headroom-scheduler.service": "mixed", "headroom-scheduler-spark.conf": "process"} {
		if got := one(t, parse(t, unit), "KillMode"); got != want {
			t.Errorf("%s: KillMode=%s, want %s", unit, got, want)
		}
	}
	if got := one(t, parse(t, "headroom-scheduler-spark.conf"), "MemoryDenyWriteExecute"); got != "no" {
		t.Errorf("Java does not start with MemoryDenyWriteExecute=%s", got)
	}
}

// Design P2: a hung powerd is replaced, and the fail-safe cap written, before the
// lease that it held has ended.
func TestHungAgentIsReplacedWithinItsLease(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	all := parse(t, "headroom-powerd.service")
	late := duration(t, all, "WatchdogSec") + duration(t, all, "TimeoutAbortSec") + duration(t, all, "RestartSec")
	if late >= lease {
		t.Errorf("replaced after %v, the lease is %v", late, lease)
	}
	if one(t, all, "Type") != "notify" {
		t.Error("nobody waits until a safe cap is held")
	}
}

// Design P6: at stop powerd asks for its release for up to 5 s and then writes the
// fail-safe cap; the state directory may take 2 s more. It is not killed before.
func TestStopIsLongEnough(t *testing.T) {
	t.Parallel()
	all := parse(t, "headroom-powerd.service")
	if got := duration(t, all, "TimeoutStopSec"); got < 2*(5+2)*time.Second {
		t.Errorf("killed %v after the stop began", got)
	}
	if one(t, all, "KillSignal") != "SIGTERM" {
		t.Error("powerd stops on SIGTERM")
	}
}

// Lesson 15: a crash of a Go program ends with 2, like a mistake on the command line. No
// unit may take one for the other, and none gives up.
func TestCrashedServicesComeBack(t *testing.T) {
	t.Parallel()
	for _, unit := range services(t) {
		all := parse(t, unit)
		if v := values(all, "RestartPreventExitStatus"); len(v) > 0 {
			t.Errorf("%s does not come back after exit status %v", unit, v)
		}
		if one(t, all, "Restart") != "always" || one(t, all, "StartLimitIntervalSec") != "0" || duration(t, all, "RestartSec") < 500*time.Millisecond {
			t.Errorf("%s gives up, or restarts without a pause", unit)
		}
	}
}

// The kernel's trees that powerd writes are opened by name, all else stays closed.
func TestWritableTrees(t *testing.T) {
	t.Parallel()
	all := parse(t, "headroom-powerd.service")
	want := []string{
		"-/sys/devices/virtual/powercap", "-/sys/devices/system/cpu/cpufreq",
		"-/sys/devices/system/cpu/intel_pstate", "-/sys/devices/system/cpu/amd_pstate",
	}
	if got := values(all, "ReadWritePaths"); !slices.Equal(got, want) || one(t, all, "ProtectKernelTunables") != "yes" {
		t.Errorf("writable: %v", got)
	}
}

// The worker's tasks run where powerd may bound them, powerd and coordinator do not.
func TestOnlyTheWorkerRunsInTheBatchSlice(t *testing.T) {
	t.Parallel()
	for _, unit := range services(t) {
		in := values(parse(t, unit), "Slice")
		if (len(in) > 0) != (unit == "headroom-worker.service") {
			t.Errorf("%s is in %v", unit, in)
		}
	}
}
