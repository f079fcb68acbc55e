package walk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// root is the repository's folder.
const root = "../../.."

// binaries is the folder of the programs; TestMain removes it.
func binaries() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("headroom-walk-%d", os.Getpid()))
}

// build makes the programs as `make build` makes them, once for all tests.
var build = sync.OnceValue(func() error {
	c := exec.Command("make", "-B", "--no-print-directory", "build", "BIN="+binaries())
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(binaries()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// A network is the machines of one page: shells in namespaces that end with the test.
type network struct {
	folder string
	queues map[string]*os.File
	sent   int
	absent int // commands about what the cluster does not have
}

// isolated returns unshare's arguments for a page, or marks the test as not run where this machine does not permit them.
func isolated(tb testing.TB) []string {
	tb.Helper()
	args := []string{"--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--map-root-user")
	}
	for _, program := range []string{"unshare", "ip", "bash", "setpriv", "hostname"} {
		if _, err := exec.LookPath(program); err != nil {
			testkit.NotRun(tb, program+" is not installed")
		}
	}
	if out, err := exec.CommandContext(tb.Context(), "unshare", append(args, "mount", "-t", "tmpfs", "none", "/mnt")...).CombinedOutput(); err != nil {
		testkit.NotRun(tb, fmt.Sprintf("needs namespaces: %v, %s", err, out))
	}
	return args
}

// start makes the machines of a page. Their shells begin in folder, or each in a home of its own.
func start(tb testing.TB, folder string, machines []string) *network {
	tb.Helper()
	args := isolated(tb)
	n := &network{folder: tb.TempDir(), queues: map[string]*os.File{}}
	testkit.Check(tb, os.CopyFS(n.folder, os.DirFS("testdata")))
	programs := filepath.Join(n.folder, "bin")
	testkit.Check(tb, build())
	for _, program := range testkit.Need(os.ReadDir(binaries()))(tb) {
		testkit.Check(tb, os.Symlink(filepath.Join(binaries(), program.Name()), filepath.Join(programs, program.Name())))
	}
	for _, stand := range []string{"scp", "systemctl"} {
		testkit.Check(tb, os.Chmod(filepath.Join(programs, stand), 0o755))
	}
	testkit.Check(tb, os.Chmod(n.folder, 0o755))
	for _, m := range machines {
		queue := filepath.Join(n.folder, m+".queue")
		testkit.Check(tb, syscall.Mkfifo(queue, 0o600))
		n.queues[m] = testkit.Need(os.OpenFile(queue, os.O_RDWR, 0))(tb)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, "unshare", append(append(args, "sh", filepath.Join(n.folder, "setup.sh"), n.folder, testkit.Need(filepath.Abs(root))(tb)), machines...)...)
	c.Env = append(environment(tb), "WALK_FOLDER="+folder)
	log := testkit.Need(os.Create(filepath.Join(n.folder, "log")))(tb)
	c.Stdout, c.Stderr = log, log
	testkit.Check(tb, c.Start())
	tb.Cleanup(func() {
		cancel()
		_ = c.Wait() // it was killed
		if text, err := os.ReadFile(log.Name()); err == nil && len(text) > 0 && tb.Failed() {
			tb.Logf("namespaces: %s", text)
		}
		for _, q := range n.queues {
			_ = q.Close()
		}
		_ = log.Close()
	})
	for _, m := range machines {
		testkit.Eventually(tb, time.Minute, "machine "+m, func() bool {
			_, err := os.Stat(filepath.Join(n.folder, m+".up"))
			return err == nil
		})
	}
	return n
}

// environment is this process's without what the programs would read from it, and with Go's folders, for HOME changes.
func environment(tb testing.TB) []string {
	tb.Helper()
	var kept []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HEADROOM_") && !strings.HasPrefix(v, "TMPDIR=") {
			kept = append(kept, v)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} {
		out := testkit.Need(exec.CommandContext(tb.Context(), "go", "env", name).Output())(tb)
		kept = append(kept, name+"="+strings.TrimSpace(string(out)))
	}
	return kept
}

// A failure is a command that ended with another exit code than 0.
type failure struct{ code, line int }

// An outcome is what a step did.
type outcome struct {
	output   string
	failures []failure
	ended    bool
}

// run carries commands out on a machine and waits for them. With settles it waits until what they started in the
// background has nothing more to print.
func (n *network) run(tb testing.TB, machine, commands string, settles bool, most time.Duration) outcome {
	tb.Helper()
	n.sent++
	name := fmt.Sprintf("%03d.sh", n.sent)
	file, inside := filepath.Join(n.folder, name), "/mnt/walk/"+name
	testkit.WriteFile(tb, file, commands+"\n:\n")
	if settles {
		testkit.WriteFile(tb, file+".settles", "")
	}
	_, err := fmt.Fprintln(n.queues[machine], inside)
	testkit.Check(tb, err)
	ended := testkit.Within(most, func() bool {
		_, err := os.Stat(file + ".rc")
		return err == nil
	})
	output, _ := os.ReadFile(file + ".out")    // absent where the machine did not start
	failed, _ := os.ReadFile(file + ".failed") // absent where nothing failed
	result := outcome{output: string(output), ended: ended}
	for line := range strings.Lines(string(failed)) {
		code, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		result.failures = append(result.failures, failure{testkit.Need(strconv.Atoi(code))(tb), testkit.Need(strconv.Atoi(at))(tb)})
	}
	return result
}
