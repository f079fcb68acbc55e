package nspawn

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

	"headroom/internal/testkit"
)

const (
	// patience is how long anything may take on a loaded machine.
	patience = 60 * time.Second
	// glance is the time between two looks at something that is waited for.
	glance = 100 * time.Millisecond
	// lifetime ends a machine whose test was killed, in seconds.
	lifetime = "500"
	// shutdown is the signal that makes systemd power off (SIGRTMIN+3).
	shutdown = syscall.Signal(34 + 3)
)

// machine is one booted systemd: this host's /usr, with our programs and units laid
// over it, under an /etc of its own.
type machine struct {
	dir    string // holds root, usr (what is laid over /usr) and sys
	leader int    // process id of its systemd, as this host sees it
	log    bytes.Buffer
	env    []string // of systemd-nspawn, beside this process's
}

// boot starts a machine with the files that prepare put into its folder, and ends it
// with the test. Where that cannot be done the test does not run.
func boot(t *testing.T, prepare func(m *machine)) *machine {
	t.Helper()
	requireAll(t)
	m := &machine{dir: t.TempDir()}
	m.makeRoot(t)
	prepare(m)
	if err := os.MkdirAll("/run/systemd/nspawn", 0o755); err != nil {
		testkit.NotRun(t, err.Error())
	}
	cmd := exec.Command("timeout", "-k", "5", lifetime, "systemd-nspawn", "-q", "-D", m.path("root"),
		"-M", "headroom-"+strconv.Itoa(os.Getpid()),
		"--overlay-ro=/usr:"+m.path("usr")+":/usr",
		"--bind="+m.path("sys/class")+":/sys/class", "--bind="+m.path("sys/devices")+":/sys/devices",
		"--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--kill-signal=SIGRTMIN+3")
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	cmd.Env = append(os.Environ(), m.env...)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		testkit.NotRun(t, "systemd-nspawn: "+err.Error())
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() { m.end(t, cmd.Process, ended) })
	if !m.up(cmd.Process.Pid, ended) {
		m.end(t, cmd.Process, ended)
		testkit.NotRun(t, "systemd-nspawn does not boot here: "+m.log.String())
	}
	m.uncover(t)
	return m
}

// uncover takes this kernel's own sysfs away, which nspawn mounts over the emulated one.
func (m *machine) uncover(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"/sys/class", "/sys/devices"} {
		if _, err := m.try("test", "-e", dir+"/.emulated"); err != nil {
			m.do(t, "umount", dir)
		}
		m.do(t, "test", "-e", dir+"/.emulated")
	}
}

// requireAll leaves the test where something is missing that it stands on.
func requireAll(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.NotRun(t, "systemd-nspawn needs root")
	}
	for _, tool := range []string{"systemd-nspawn", "nsenter", "umount", "timeout", "dbus-daemon", "systemctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			testkit.NotRun(t, tool+" is not installed (lab/test/nspawn/packages.txt)")
		}
	}
	if link, err := os.Readlink("/bin"); err != nil || link != "usr/bin" {
		testkit.NotRun(t, "this system has a /bin beside /usr, the machine is made of /usr alone")
	}
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil {
		testkit.NotRun(t, "no systemd in /usr/lib")
	}
}

// up waits until systemd has started everything that it has to.
func (m *machine) up(pid int, ended <-chan struct{}) bool {
	for until := time.Now().Add(patience); time.Now().Before(until); {
		select {
		case <-ended:
			return false
		case <-time.After(glance):
		}
		if m.leader == 0 {
			m.leader = leaderBelow(pid)
			continue
		}
		switch out, _ := m.try("systemctl", "is-system-running"); out {
		case "running", "degraded":
			return true
		}
	}
	return false
}

// leaderBelow is the descendant that is process 1 of its own namespace, 0 when there
// is none yet.
func leaderBelow(pid int) int {
	parents := map[int]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	var ones []int
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if err != nil {
			continue
		}
		parents[p], _ = strconv.Atoi(statusField(string(status), "PPid"))
		if ns := strings.Fields(statusField(string(status), "NSpid")); len(ns) == 2 && ns[1] == "1" {
			ones = append(ones, p)
		}
	}
	for _, one := range ones {
		for p := one; p > 1; p = parents[p] {
			if p == pid {
				return one
			}
		}
	}
	return 0
}

// statusField is one field of /proc/PID/status.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// end powers the machine off, or kills it when it does not listen.
func (m *machine) end(t *testing.T, p *os.Process, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
		return
	default:
	}
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, shutdown)
	}
	select {
	case <-ended:
		return
	case <-time.After(patience / 4):
	}
	if m.leader != 0 {
		_ = syscall.Kill(m.leader, syscall.SIGKILL) // ends everything in its namespace
	}
	_ = p.Signal(syscall.SIGTERM) // timeout hands it on, and kills 5 s later
	<-ended
	t.Log("the machine had to be killed")
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// try runs a command inside and returns its output, trimmed.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(m.leader), "-a", "--"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin", "LANG=C.UTF-8"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), err
}

// do is try for what must work.
func (m *machine) do(t *testing.T, args ...string) string {
	t.Helper()
	return testkit.Need(m.try(args...))(t)
}

// show is one property of a unit.
func (m *machine) show(t *testing.T, unit, property string) string {
	t.Helper()
	return m.do(t, "systemctl", "show", "-P", property, unit)
}

// eventually waits until something is true.
func (m *machine) eventually(t *testing.T, unit, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(glance) {
		if ok() {
			return
		}
	}
	said, _ := m.try("journalctl", "-u", unit, "--no-pager", "-n", "60", "-o", "short-monotonic")
	t.Fatalf("not within %v: %s\n%s", patience, what, said)
}

// makeRoot makes the machine's folder: links into /usr, and the least /etc that
// systemd and dbus start with. Its units are those of /usr; this host's own
// configuration stays outside.
func (m *machine) makeRoot(t *testing.T) {
	t.Helper()
	for _, dir := range []string{
		"root/usr", "root/etc/systemd/system", "root/var/lib", "root/var/log/journal", "root/tmp", "root/run", "root/proc",
		"root/sys", "root/dev", "root/root", "root/opt", "root/var/lib/polkit-1", "root/etc/polkit-1/rules.d", "usr/bin", "usr/lib/systemd/system", "usr/lib/sysusers.d", "usr/lib/tmpfiles.d", "sys/class", "sys/devices",
	} {
		testkit.Check(t, os.MkdirAll(m.path(dir), 0o755))
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		link, err := os.Readlink("/" + name)
		if err == nil {
			err = os.Symlink(link, m.path("root/"+name))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nmessagebus:x:100:100::/:/bin/false\n" +
			"polkitd:x:" + polkitUser() + ":65534::/:/bin/false\n",
		"group":         "root:x:0:\nnogroup:x:65534:\nmessagebus:x:100:\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
		"hostname":      "node\n",
		"fstab":         "",
		// A machine id of its own: without one systemd would enable every unit in /usr.
		"machine-id": "7f3a90c15d2e4b68a1c0f2d39e5b7a64\n",
	} {
		m.write(t, "root/etc/"+name, text, 0o644)
	}
	for _, name := range []string{"ld.so.cache", "os-release"} {
		if data, err := os.ReadFile("/etc/" + name); err == nil {
			m.write(t, "root/etc/"+name, string(data), 0o644)
		}
	}
	testkit.Check(t, os.Symlink("/lib/systemd/system/basic.target", m.path("root/etc/systemd/system/default.target")))
}

// polkitUser is the id that owns polkit's own folder in /usr on this host: inside it
// must be the same.
func polkitUser() string {
	if st, err := os.Stat("/usr/share/polkit-1/rules.d"); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 {
			return strconv.FormatUint(uint64(sys.Uid), 10)
		}
	}
	return "101"
}

// write makes a file below the machine's folder, its folders too.
func (m *machine) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	testkit.Check(t, os.MkdirAll(filepath.Dir(m.path(name)), 0o755))
	testkit.Check(t, os.WriteFile(m.path(name), []byte(text), mode))
}

// copy copies a file from this host into the machine's folder.
func (m *machine) copy(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data := testkit.Need(os.ReadFile(from))(t)
	m.write(t, to, string(data), mode)
}
