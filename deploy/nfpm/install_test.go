package nfpm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"headroom/internal/testkit"
)

// host is a folder that dpkg takes for a whole machine.
type host string

func (h host) path(name string) string { return filepath.Join(string(h), name) }

func (h host) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (h host) has(name string) bool {
	_, err := os.Lstat(h.path(name))
	return err == nil
}

// dpkg runs dpkg on the host, its scripts outside of it with DPKG_ROOT, and returns all
// that was said. systemd is not installed there as a package.
func (h host) dpkg(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("dpkg", append([]string{
		"--root=" + string(h), "--log=" + h.path("dpkg.log"), "--force-script-chrootless", "--force-depends", "--force-confold",
	}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func testInstalled(t *testing.T, dir string) {
	if os.Geteuid() != 0 {
		testkit.NotRun(t, "dpkg needs root to install, if only into a folder")
	}
	for _, tool := range []string{"dpkg", "systemd-sysusers", "systemd-tmpfiles", "systemctl", "systemd-analyze"} {
		need(t, tool)
	}
	h := host(t.TempDir())
	h.write(t, "var/lib/dpkg/status", "")
	for _, dir := range []string{"updates", "info"} {
		if err := os.Mkdir(h.path("var/lib/dpkg/"+dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write(t, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	h.write(t, "etc/group", "root:x:0:\n")
	// All at once: no two of them hold the same path.
	var debs []string
	for _, name := range names() {
		debs = append(debs, find(t, dir, name+"_*.deb"))
	}
	h.dpkg(t, append([]string{"--install"}, debs...)...)

	testMade(t, h)
	testUnitsAccepted(t, h)
	testUpgradeKeepsConfiguration(t, h, debs)
	testPurge(t, h, find(t, dir, "headroom-powerd_*.deb"))
}

// Users, groups and folders are there; nothing is enabled.
func testMade(t *testing.T, h host) {
	t.Helper()
	users := string(read(t, h.path("etc/passwd")))
	for _, user := range []string{"headroom-powerd", "headroom-coordinator", "headroom-scheduler", "headroom-master", "headroom-worker", "headroom-task", "headroom-driver"} {
		if !strings.Contains(users, "\n"+user+":") {
			t.Errorf("no user %s", user)
		}
	}
	info, err := os.Stat(h.path("etc/headroom"))
	if err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("/etc/headroom: %v, %v", info, err)
	}
	for _, program := range []string{"powerd", "coordinator", "scheduler", "worker"} {
		if info, err := os.Stat(h.path("etc/headroom/" + program)); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("folder of %s's keys: %v, %v", program, info, err)
		}
	}
	// Every machine that installs the package would be n01.
	if strings.Contains("\n"+string(read(t, h.path("etc/headroom/powerd.yaml"))), "\nnode:") {
		t.Error("the packaged powerd.yaml names a node")
	}
	for _, program := range []string{"headroom", "powerd", "coordinator", "scheduler", "powerlab"} {
		if to, err := filepath.EvalSymlinks(h.path("usr/bin/" + program)); err != nil || to != h.path("usr/lib/headroom/"+program) {
			t.Errorf("/usr/bin/%s leads to %s, %v", program, to, err)
		}
	}
	runbooks, err := filepath.Glob(h.path("usr/share/doc/headroom/runbooks/*.md"))
	if ours, globErr := filepath.Glob("../../docs/runbooks/*.md"); err != nil || globErr != nil || len(runbooks) != len(ours) {
		t.Errorf("%d runbooks are installed, %d written: %v, %v", len(runbooks), len(ours), err, globErr)
	}
	wanted, err := filepath.Glob(h.path("etc/systemd/system/*"))
	if err != nil || len(wanted) > 0 {
		t.Errorf("enabled by installing: %v, %v", wanted, err)
	}
}

// systemd finds every program and every unit that ours name, on the host with its own
// units beside ours.
func testUnitsAccepted(t *testing.T, h host) {
	t.Helper()
	units, err := filepath.Glob(h.path("usr/lib/systemd/system/headroom-*"))
	if err != nil || len(units) == 0 {
		t.Fatalf("units %v: %v", units, err)
	}
	if err := os.CopyFS(h.path("usr/lib/systemd/system"), os.DirFS("/usr/lib/systemd/system")); err != nil {
		testkit.NotRun(t, "this machine's own units cannot be copied: "+err.Error())
	}
	h.write(t, "bin/sh", "") // every host has one
	if err := os.Chmod(h.path("bin/sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		out, err := exec.Command("systemd-analyze", "--root="+string(h), "--man=no", "--no-pager", "verify", strings.Replace(filepath.Base(u), "@.", "@headroom-task.", 1)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "headroom-") {
			t.Errorf("%s: %v\n%s", filepath.Base(u), err, out)
		}
	}
}

func testUpgradeKeepsConfiguration(t *testing.T, h host, debs []string) {
	t.Helper()
	h.write(t, "etc/headroom/powerd.yaml", "node: n07\n")
	h.write(t, "var/lib/headroom/powerd/state.json", "{}")
	h.dpkg(t, append([]string{"--install"}, debs...)...)
	if got := string(read(t, h.path("etc/headroom/powerd.yaml"))); got != "node: n07\n" || !h.has("var/lib/headroom/powerd/state.json") {
		t.Errorf("after an upgrade powerd.yaml holds %q", got)
	}
}

// Removal names the originals that are left, and a purge keeps them. Without any, the
// purge leaves nothing.
func testPurge(t *testing.T, h host, deb string) {
	t.Helper()
	const journal = "var/lib/headroom/powerd/journal.json"
	h.write(t, journal, "{\n  \"version\": 1,\n  \"controls\": [\n    {\"path\": \"x\"}\n  ]\n}\n")
	for _, c := range []struct{ verb, says string }{{"--remove", "powerd limit restore --force"}, {"--purge", "is kept"}} {
		if out := h.dpkg(t, c.verb, "headroom-powerd"); !strings.Contains(out, c.says) || !h.has(journal) {
			t.Errorf("%s with originals left (kept: %v) says\n%s", c.verb, h.has(journal), out)
		}
	}
	h.dpkg(t, "--install", deb)
	h.dpkg(t, "--purge", "headroom", "headroom-coordinator", "headroom-hadoop", "headroom-spark", "headroom-tools")
	h.write(t, journal, "{\n  \"version\": 1,\n  \"controls\": []\n}\n")
	h.dpkg(t, "--purge", "headroom-powerd")
	for _, left := range []string{"var/lib/headroom", "var/lib/headroom-jobs", "etc/headroom", "usr/bin/powerd", "usr/lib/headroom", "usr/share/doc/headroom"} {
		if h.has(left) {
			t.Errorf("/%s is left after a purge", left)
		}
	}
}
