// Claims: the shipped units are what systemd accepts without a word, with an exposure
// of at most 2.0 where they hold power, MSR access included; no service is root; a
// hung powerd is replaced before its lease ends; a stop is long enough to be finished;
// nothing keeps a crashed service from coming back.
package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		"headroom-master.service": "20", "headroom-worker.service": "25",
		// They run other people's programs.
		"headroom-task@.service": "25", "headroom-driver@.service": "25",
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
	units, err := filepath.Glob("headroom-*.s*")
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
		store(t, filepath.Join(dir, instance(u)), text)
	}
	if dropIns {
		store(t, filepath.Join(dir, "headroom-powerd.service.d", "msr.conf"), content(t, "headroom-powerd-msr.conf"))
		store(t, filepath.Join(dir, "headroom-scheduler.service.d", "spark.conf"), content(t, "headroom-scheduler-spark.conf"))
	}
	return dir
}

// instance is a unit with a name that can be looked at: a template has none.
func instance(unit string) string { return strings.Replace(unit, "@.", "@headroom-task.", 1) }

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
			cmd := exec.Command(tool, "security", "--no-pager", "--offline=true", "--threshold="+limit, filepath.Join(dir, instance(unit)))
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
	for _, unit := range append(services(t), "headroom-batch.slice", "headroom-task@.socket", "headroom-driver.socket") {
		cmd := exec.Command(tool, "verify", "--no-pager", "--man=no", filepath.Join(dir, instance(unit)))
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
		if user == "%i" { // a tenant's, or this one
			user = "headroom-task"
		}
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

// The disk is read-only for the scheduler but for its own folder and the jobs'. Hadoop's files are not among them.
func TestSchedulerWritesOnlyItsOwnFolders(t *testing.T) {
	t.Parallel()
	if got := values(parse(t, "headroom-scheduler.service"), "ReadWritePaths"); !slices.Equal(got, []string{"-/var/lib/headroom-jobs -/srv/headroom"}) {
		t.Errorf("the unit opens %v", got)
	}
}

// Drivers of Spark outlive a scheduler that is started again: the service manager must
// not end their supervisors with it. They are programs of Java, in units of their own.
func TestDriversOutliveTheSchedulerOnlyWithTheDropIn(t *testing.T) {
	t.Parallel()
	for unit, want := range map[string]string{"headroom-scheduler.service": "mixed", "headroom-scheduler-spark.conf": "process"} {
		if got := one(t, parse(t, unit), "KillMode"); got != want {
			t.Errorf("%s: KillMode=%s, want %s", unit, got, want)
		}
	}
	for _, unit := range []string{"headroom-driver@.service", "headroom-task@.service"} {
		if got := values(parse(t, unit), "MemoryDenyWriteExecute"); len(got) > 0 {
			t.Errorf("%s: Java does not start with MemoryDenyWriteExecute=%s", unit, got)
		}
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
		if strings.Contains(unit, "@") {
			continue // its socket starts it again
		}
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

// Tasks run where powerd may bound them, and nothing of ours does: a worker that is held
// up counts as lost.
func TestOnlyTasksRunInTheBatchSlice(t *testing.T) {
	t.Parallel()
	for _, unit := range services(t) {
		in := values(parse(t, unit), "Slice")
		if (len(in) > 0) != (unit == "headroom-task@.service") {
			t.Errorf("%s is in %v", unit, in)
		}
	}
}

// Whoever opens one of the sockets runs programs as another user: one program may, and the
// scheduler, which says what runs as whom on every node, asks the users of tasks too. What
// runs behind them is in no group of ours, and keys, sockets and state are out of its sight.
func TestOtherPeoplesProgramsAreApart(t *testing.T) {
	t.Parallel()
	for socket, want := range map[string][]string{"headroom-task@.socket": {"headroom-worker", "headroom-scheduler", "0660"}, "headroom-driver.socket": {"headroom-scheduler", "headroom-scheduler", "0600"}} {
		all := parse(t, socket)
		if got := []string{one(t, all, "SocketUser"), one(t, all, "SocketGroup"), one(t, all, "SocketMode")}; !slices.Equal(got, want) {
			t.Errorf("%s is open to %v, want %v", socket, got, want)
		}
	}
	users := content(t, "headroom.sysusers.conf")
	if regexp.MustCompile(`(?m)^m \S+ headroom-scheduler$`).MatchString(users) {
		t.Error("somebody else is in the group headroom-scheduler")
	}
	for unit, user := range map[string]string{"headroom-task@.service": "headroom-task", "headroom-driver@.service": "headroom-driver"} {
		if strings.Contains(users, "m "+user+" ") {
			t.Errorf("%s is in a group of ours", user)
		}
		all := parse(t, unit)
		if len(values(all, "SupplementaryGroups")) > 0 {
			t.Errorf("%s has further groups", unit)
		}
		closed := strings.Fields(strings.Join(values(all, "InaccessiblePaths"), " "))
		for _, path := range []string{"-/etc/headroom", "-/var/lib/headroom", "-/run/headroom-task", "-/run/headroom-driver.sock", "-/run/headroom-powerd", "-/run/headroom-scheduler"} {
			if !slices.Contains(closed, path) {
				t.Errorf("%s: %s is not closed", unit, path)
			}
		}
	}
	if one(t, parse(t, "headroom-task@.service"), "PrivateNetwork") != "yes" {
		t.Error("tasks reach the ports of this machine")
	}
	// No program of ours changes its user, so none may.
	for _, unit := range services(t) {
		for _, s := range parse(t, unit) {
			if strings.Contains(s.value, "SETUID") || strings.Contains(s.value, "@setuid") {
				t.Errorf("%s: %s=%s", unit, s.key, s.value)
			}
		}
	}
}

// Keys are in a folder for each program that root and its group alone enter.
func TestKeysAreForTheirProgram(t *testing.T) {
	t.Parallel()
	lines := content(t, "headroom.tmpfiles.conf")
	for _, program := range []string{"powerd", "coordinator", "scheduler", "worker"} {
		if want := "d /etc/headroom/" + program + " 2750 root headroom-" + program + " -"; !strings.Contains(lines, want) {
			t.Errorf("%q is missing", want)
		}
		if got := one(t, parse(t, "headroom-"+program+".service"), "Group"); got != "headroom-"+program {
			t.Errorf("%s runs in group %s: files that it makes are for others", program, got)
		}
	}
	users := content(t, "headroom.sysusers.conf")
	for line := range strings.Lines(users) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "m" && !slices.Contains([]string{"headroom", "headroom-gossip", "headroom-task"}, f[2]) {
			t.Errorf("%s enters the folder of another program: %s", f[1], line)
		}
	}
}
