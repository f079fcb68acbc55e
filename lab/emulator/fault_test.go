// Claims: a node's tree can be mounted, faults can be injected while it runs, its
// BMC's limit acts, and a node that is killed leaves nothing that stops the next.
package emulator_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"headroom/internal/config"
	"headroom/internal/testkit"
	"headroom/lab/emulator/treefs"
)

// needFUSE skips a test where no tree can be mounted.
func needFUSE(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.NotRun(t, "mounting a tree needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		testkit.NotRun(t, "no /dev/fuse")
	}
}

// fault injects a fault and returns the exit code and the output.
func (m *machine) fault(t *testing.T, words ...string) (int, string) {
	t.Helper()
	cmd := powerlab(t, append([]string{"node", "fault", m.name, "--dir", m.dir, "--"}, words...)...)
	text, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(text)
}

// inject is fault that must work.
func (m *machine) inject(t *testing.T, words ...string) {
	t.Helper()
	if code, text := m.fault(t, words...); code != 0 || text != "" {
		t.Fatalf("fault %v: exit code %d, %s", words, code, text)
	}
}

func (m *machine) file(name string) (string, error) {
	text, err := os.ReadFile(m.path("root", name))
	return strings.TrimSpace(string(text)), err
}

// A node behind a mount meets faults that only error numbers can show; its mount
// goes with it.
func TestMountedNode(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker", "--tree", "fuse", "--shape", "xeon-2s")
	if v := m.view(t); v.Tree != "fuse" {
		t.Errorf("tree %q", v.Tree)
	}
	if _, err := m.file(zone + "energy_uj"); err != nil {
		t.Error(err)
	}
	m.inject(t, "fail-read", "package-0")
	if _, err := m.file(zone + "energy_uj"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a failing counter: %v", err)
	}
	m.inject(t, "offline-cpu", "1")
	if got, err := m.file("sys/devices/system/cpu/offline"); got != "1" || err != nil {
		t.Errorf("offline %q, %v", got, err)
	}
	m.inject(t, "clear")
	if _, err := m.file(zone + "energy_uj"); err != nil {
		t.Error(err)
	}
	id, err := m.file("etc/machine-id")
	if err != nil || len(id) != 32 {
		t.Errorf("machine id %q, %v", id, err)
	}
	m.stop(t)
	if on, err := treefs.Mounted(m.path("root")); on || err != nil {
		t.Errorf("the mount survives its node: %v, %v", on, err)
	}
	again := start(t, m.dir, "n01", "--no-powerd", "--no-worker")
	if now, err := again.file("etc/machine-id"); now != id || err != nil {
		t.Errorf("machine id %q as plain files, %q mounted, %v", now, id, err)
	}
}

// A node that is killed leaves a dead mount, even while its programs live on; the
// next start takes it down. Two owners are refused meanwhile.
func TestKilledMountIsTakenDown(t *testing.T) {
	t.Parallel()
	needFUSE(t)
	dir := t.TempDir()
	m := start(t, dir, "n01", "--bin", bin(t), "--scheduler", "127.0.0.1:1", "--tree", "fuse")
	t.Cleanup(func() { _ = treefs.Unmount(m.path("root")) })
	second := powerlab(t, "node", "n01", "--dir", dir, "--no-powerd", "--no-worker", "--tree", "fuse")
	if text, _ := second.CombinedOutput(); second.ProcessState.ExitCode() != 5 {
		t.Errorf("a second owner: exit code %d, %s", second.ProcessState.ExitCode(), text)
	}
	if _, err := m.file(zone + "energy_uj"); err != nil {
		t.Errorf("the first owner's tree after a second tried: %v", err)
	}
	testkit.Eventually(t, patience, "the worker's task runs", func() bool { return pidFrom(m.path("task.pid")) > 0 })
	t.Cleanup(func() { // a killed node leaves its programs behind
		for _, name := range []string{"run/powerd.pid", "run/worker.pid", "task.pid"} {
			if pid := pidFrom(m.path(name)); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	held := testkit.Need(os.Open(m.path("root", limit)))(t)
	defer func() { _ = held.Close() }()
	testkit.Check(t, m.cmd.Process.Kill())
	if err := <-m.ended; err == nil {
		t.Error("a killed node ended well")
	}
	m.ended = nil
	testkit.Eventually(t, patience, "the mount is dead", func() bool { _, err := m.file(limit); return errors.Is(err, syscall.ENOTCONN) })
	again := start(t, dir, "n01", "--no-powerd", "--no-worker", "--tree", "fuse")
	if _, err := again.file(limit); err != nil {
		t.Errorf("after the next start: %v", err)
	}
	again.stop(t)
	if on, err := treefs.Mounted(m.path("root")); on || err != nil {
		t.Errorf("mounted at the end: %v, %v", on, err)
	}
}

// Plain files show the faults that are values, and refuse the others in two lines.
func TestFaultsOfPlainFiles(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker")
	for _, words := range [][]string{{"fail-read"}, {"fail-write"}, {"permission"}, {"offline-cpu", "1"}, {"locked", "refuse"}} {
		code, text := m.fault(t, words...)
		if code != 6 || strings.Count(text, "\n") != 2 || !strings.Contains(text, "--tree fuse") {
			t.Errorf("%v: exit code %d, %s", words, code, text)
		}
	}
	for _, words := range [][]string{{"melt"}, {"drift"}, {"hot", "cold"}} {
		if code, text := m.fault(t, words...); code != 2 || strings.Count(text, "\n") != 2 {
			t.Errorf("%v: exit code %d, %s", words, code, text)
		}
	}
	if code, text := m.fault(t, "bmc", "hang"); code != 6 || !strings.Contains(text, "--bmc") {
		t.Errorf("bmc hang without a BMC: exit code %d, %s", code, text)
	}
	m.inject(t, "drift", "140W")
	testkit.Eventually(t, patience, "the other writer's limit shows", func() bool { got, _ := m.file(limit); return got == "140000000" })
	m.inject(t, "locked")
	f := testkit.Need(os.OpenFile(m.path("root", limit), os.O_WRONLY, 0))(t)
	if _, err := f.WriteString("90000000\n"); err != nil {
		t.Error(err)
	}
	_ = f.Close()
	testkit.Eventually(t, patience, "a locked limit comes back", func() bool { got, _ := m.file(limit); return got == "140000000" })
	m.inject(t, "hot", "95")
	testkit.Eventually(t, patience, "heat shows", func() bool {
		got, _ := m.file("sys/class/thermal/thermal_zone0/temp")
		return got == "95000" && m.view(t).TempC == 95
	})
	m.inject(t, "clear")
	testkit.Eventually(t, patience, "heat is gone", func() bool { return m.view(t).TempC < 95 })
}

// A node with a BMC gives powerd its address, and takes the BMC's faults.
func TestBMCOfANode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--no-powerd", "--no-worker", "--bmc"}
	m := start(t, dir, "n01", args...)
	var got struct {
		IPMI struct {
			Mode, Address, User string
			PasswordFile        string `yaml:"password_file"`
		}
	}
	text := testkit.Need(os.ReadFile(m.path("powerd.yaml")))(t)
	_, section, found := strings.Cut(string(text), "\nipmi:\n")
	if !found {
		t.Fatalf("no ipmi section in %s", text)
	}
	section, _, _ = strings.Cut(section, "log_level")
	testkit.Check(t, config.Decode("ipmi", []byte("ipmi:\n"+section), &got))
	info, err := os.Stat(got.IPMI.PasswordFile)
	if err != nil || info.Mode().Perm() != 0o600 || got.IPMI.Mode != "lan" || got.IPMI.User == "" || !strings.HasPrefix(got.IPMI.Address, "127.0.0.1:") {
		t.Errorf("%+v, %v", got.IPMI, err)
	}
	for _, fault := range []string{"lag", "freeze", "lie", "hang", "slow", "restart", "factor=0.9,slow=1s", "ok"} {
		m.inject(t, "bmc", fault)
	}
	if code, text := m.fault(t, "bmc", "explode"); code != 2 || strings.Count(text, "\n") != 2 {
		t.Errorf("exit code %d, %s", code, text)
	}
	m.stop(t)
	again := start(t, dir, "n01", args...)
	address, err := os.ReadFile(again.path("run", "bmc.address"))
	if err != nil || strings.TrimSpace(string(address)) != got.IPMI.Address {
		t.Errorf("BMC at %q after a restart, %q before, %v", address, got.IPMI.Address, err)
	}
}

// Machines of every shape start, and their configuration is there.
func TestShapesStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--shape", "epyc"}, {"--shape", "arm-cppc", "--cpufreq", "none"}, {"--shape", "bare-vm"}, {"--shape", "xeon-1s", "--sockets", "2"},
	} {
		name := strings.ReplaceAll(strings.TrimLeft(strings.Join(args, ""), "-"), "--", ".")
		m := start(t, dir, name, append(args, "--no-powerd", "--no-worker")...)
		if _, err := os.Stat(filepath.Join(m.dir, name, "powerd.yaml")); err != nil {
			t.Error(err)
		}
		m.stop(t)
	}
	for _, args := range [][]string{{"--shape", "abacus"}, {"--sockets", "9"}, {"--cpufreq", "magic"}, {"--tree", "oak"}} {
		cmd := powerlab(t, append([]string{"node", "n09", "--dir", dir}, args...)...)
		if text, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || strings.Count(string(text), "\n") > 2 {
			t.Errorf("%v: exit code %d, %s", args, cmd.ProcessState.ExitCode(), text)
		}
	}
}
