package vm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"headroom/internal/testkit"
)

const (
	// bootLimit bounds one run of the machine; it takes seconds where nothing else runs.
	bootLimit = 5 * time.Minute
	memoryMB  = "512"
)

// image is the folder with kernel and modules, built on the first run on a machine.
func image(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		testkit.NotRun(t, "the test machine is amd64")
	}
	for _, tool := range []string{"qemu-system-x86_64", "cpio", "xz", "make", "gcc", "apt-get"} {
		if _, err := exec.LookPath(tool); err != nil {
			testkit.NotRun(t, tool+" is missing; lab/test/vm/packages.txt lists the packages")
		}
	}
	for _, file := range []string{"/bin/busybox", "/usr/share/doc/linux-headers-amd64", "/usr/share/doc/libelf-dev"} {
		if _, err := os.Stat(file); err != nil {
			testkit.NotRun(t, file+" is missing; lab/test/vm/packages.txt lists the packages")
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "./image.sh", filepath.Join(cache, "headroom", "vm"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		testkit.NotRun(t, fmt.Sprintf("the machine's image cannot be built: %v: %s", err, strings.TrimSpace(problem.String())))
	}
	return strings.TrimSpace(string(out))
}

// build compiles for the machine: a program, or with "test" the tests of a package.
func build(t *testing.T, out string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), out)
	cmd := exec.CommandContext(t.Context(), "go", append(append([]string{}, args[0], "-o", path), args[1:]...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return path
}

// guestTests are the tests of guest/ as a program.
func guestTests(t *testing.T) string {
	t.Helper()
	return build(t, "guest.test", "test", "-c", "-tags", "guest", "./guest")
}

// boot packs files (as path:place) and a script into a machine, runs it to its end
// and returns what it printed.
func boot(t *testing.T, image, script string, files []string, devices ...string) string {
	t.Helper()
	dir := t.TempDir()
	run, initramfs := filepath.Join(dir, "run.sh"), filepath.Join(dir, "initramfs")
	testkit.WriteFile(t, run, script)
	pack := exec.CommandContext(t.Context(), "./initramfs.sh", append([]string{image, initramfs, "./init", run + ":run.sh"}, files...)...)
	if text, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("initramfs.sh: %v\n%s", err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	args := append([]string{
		"-machine", "q35,smm=off", "-accel", "tcg,thread=multi", "-cpu", "Skylake-Server", "-m", memoryMB, "-smp", "2",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none", "-serial", "stdio",
		"-kernel", filepath.Join(image, "vmlinux"), "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 quiet",
	}, devices...)
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the machine ended with %v (%v)\n%s", err, ctx.Err(), out)
	}
	return strings.ReplaceAll(string(out), "\r", "")
}

var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)

// judge turns what the tests inside printed into tests here, and demands that the
// machine reported how its script ended.
func judge(t *testing.T, out string) {
	t.Helper()
	t.Log("\n" + relevant(strings.NewReader(out)))
	ran := 0
	for line := range strings.Lines(out) {
		m := verdict.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		ran++
		t.Run(strings.TrimPrefix(m[2], "Test"), func(t *testing.T) {
			switch m[1] {
			case "FAIL":
				t.Error("failed inside the machine; its output is above")
			case "SKIP":
				testkit.NotRun(t, "skipped inside the machine")
			}
		})
	}
	if ran == 0 {
		t.Errorf("no test ran inside the machine")
	}
	if !strings.Contains(out, "RESULT=0\n") {
		t.Errorf("the machine's script did not end well")
	}
}

// relevant leaves out the emulator's messages about processor features that it lacks.
func relevant(r io.Reader) string {
	var b strings.Builder
	for s := bufio.NewScanner(r); s.Scan(); {
		if !strings.Contains(s.Text(), "TCG doesn't support") && !strings.Contains(s.Text(), "=== RUN") {
			b.WriteString(s.Text() + "\n")
		}
	}
	return b.String()
}

// The kernel's RAPL driver, its cpufreq core and its registers, as rapl, rapl/msr and
// dvfs meet them.
func TestKernelInterfaces(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: boots a machine")
	}
	img := image(t)
	judge(t, boot(t, img, "/guest.test -test.v -test.skip TestWallCap -test.timeout 200s\n", []string{guestTests(t) + ":guest.test"}))
}

// Version 2 of cgroups alone, with its memory controller, as internal/cgroup meets it.
func TestCgroupsOfVersion2(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: boots a machine")
	}
	tests := build(t, "cgroup.test", "test", "-c", "headroom/internal/cgroup")
	judge(t, boot(t, image(t), "echo +memory >/sys/fs/cgroup/cgroup.subtree_control\n/cgroup.test -test.v -test.timeout 200s\n", []string{tests + ":cgroup.test"}))
}
