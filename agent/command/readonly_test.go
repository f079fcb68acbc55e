// Claims: a check opens what powerd run opens, so it finds that a machine can be read and not
// written although its files look writable, as in a container.
package command

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"headroom/internal/testkit"
)

// readOnly mounts dir read-only, for the calling test alone: its thread ends with it.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread has a mount namespace of its own
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount(dir, dir, "", unix.MS_BIND, "")
	}
	if err == nil {
		err = unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
	}
	if err != nil {
		testkit.NotRun(t, "mounting needs root: "+err.Error())
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // on the same thread
}

func TestCheckOfAReadOnlyMachine(t *testing.T) {
	t.Parallel()
	policy := "sys/devices/system/cpu/cpufreq/policy0/"
	freq := map[string]string{
		policy + "scaling_driver": "acpi-cpufreq", policy + "cpuinfo_min_freq": "1000000", policy + "cpuinfo_max_freq": "2000000", policy + "scaling_min_freq": "1000000",
		policy + "scaling_max_freq": "2000000", policy + "scaling_governor": "schedutil", policy + "affected_cpus": "0", policy + "scaling_available_governors": "schedutil",
	}
	limits := zoneFiles(powercap+"intel-rapl:0", "package-0", limitFiles())
	counter := zoneFiles(powercap+"intel-rapl:0", "package-0", nil)
	for _, c := range []struct {
		name  string
		files map[string]string
		what  string
	}{
		{"limits", merge(limits, freq), "package-0 is not writable: sys is mounted read-only"},
		{"frequencies", merge(counter, freq), "policy0 is not writable: sys is mounted read-only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, c.files)
			look := func() (permission, ladder finding) {
				o, err := openOwn(root)
				if err != nil {
					t.Fatal(err)
				}
				defer o.close() //nolint:errcheck // only read
				s := site{root: root}
				return checkPermission(s, o), checkLadder(s, o)
			}
			if permission, ladder := look(); permission.State != checkOK || ladder.State != checkOK {
				t.Errorf("%+v, %+v", permission, ladder)
			}
			readOnly(t, filepath.Join(root, "sys"))
			permission, ladder := look()
			if permission.State != checkFail || !strings.Contains(permission.Text, c.what) || !strings.Contains(permission.Hint, "container") {
				t.Errorf("permission: %+v", permission)
			}
			if ladder.State == checkOK || !strings.HasPrefix(ladder.Text, "no control can enforce a cap") {
				t.Errorf("ladder: %+v", ladder)
			}
		})
	}
}
