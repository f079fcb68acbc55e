package spark

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"headroom/internal/testkit"
)

// driverUnit answers one connection after the other, as the unit of drivers does.
func driverUnit(t *testing.T) string {
	t.Helper()
	dir := testkit.Need(os.MkdirTemp("", "driver"))(t) //nolint:usetesting // the path of a socket has at most 107 bytes
	l := testkit.Need(net.Listen("unix", filepath.Join(dir, "s.sock")))(t)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := RunDriver(c, nil); err != nil {
				t.Log(err)
			}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-over
		_ = os.RemoveAll(dir)
	})
	return l.Addr().String()
}

// client is this test binary as StartDriver.
func client(t *testing.T, socket string, argv ...string) (*exec.Cmd, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	f := testkit.Need(os.Create(out))(t)
	defer func() { _ = f.Close() }()
	cmd := exec.Command(os.Args[0], append([]string{socket}, argv...)...)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleClient, tokenEnv+"=xyz", "NOTIFY_SOCKET=/nowhere")
	cmd.Stdout, cmd.Stderr = f, f
	testkit.Check(t, cmd.Start())
	return cmd, out
}

// A driver in another unit: its output, status and end are those of one beside the
// scheduler. It gets the run's token, and nothing of the scheduler's unit.
func TestDriverInAUnitOfItsOwn(t *testing.T) {
	t.Parallel()
	socket := driverUnit(t)
	cmd, out := client(t, socket, "sh", "-c", `echo "$HEADROOM_SPARK_TOKEN,$NOTIFY_SOCKET"; echo bad >&2; exit 7`)
	_ = cmd.Wait()
	if data, _ := os.ReadFile(out); cmd.ProcessState.ExitCode() != 7 || string(data) != "xyz,\nbad\n" {
		t.Errorf("ended with %v, output %q", cmd.ProcessState, data)
	}
	for name, c := range map[string]struct {
		sig  syscall.Signal
		want string
	}{"asked to end": {syscall.SIGTERM, "exit status 5"}, "killed": {syscall.SIGKILL, "signal: killed"}} {
		cmd, out := client(t, socket, "sh", "-c", `trap 'exit 5' TERM; echo $$; while :; do sleep 0.05; done`)
		pid := awaitLine(t, out)
		testkit.Check(t, cmd.Process.Signal(c.sig))
		_ = cmd.Wait()
		if got := cmd.ProcessState.String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
			if _, err := os.Stat("/proc/" + pid); err != nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the driver lives on", name)
			}
		}
	}
}

func awaitLine(t *testing.T, path string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if data, _ := os.ReadFile(path); strings.HasSuffix(string(data), "\n") {
			return strings.TrimSpace(string(data))
		}
	}
	t.Fatal("the driver did not start")
	return ""
}

func TestMissingDriverIsSaid(t *testing.T) {
	t.Parallel()
	if _, err := StartDriver(context.Background(), driverUnit(t), []string{"/nowhere/spark-submit"}, nil); err == nil || !strings.Contains(err.Error(), "not started") {
		t.Errorf("a missing program: %v", err)
	}
	if _, err := StartDriver(context.Background(), "/nowhere/s.sock", []string{"true"}, nil); err == nil || !strings.Contains(err.Error(), "headroom-driver.socket") {
		t.Errorf("no unit: %v", err)
	}
}

func TestWhatADriverIsTold(t *testing.T) {
	t.Parallel()
	got := forDriver([]string{"PATH=/bin", "SPARK_HOME=/s", "LD_PRELOAD=/x.so", "HEADROOM_RUN=1", "INVOCATION_ID=2", "JAVA_HOME=/j", "HOME=/var/lib/headroom/scheduler"})
	if want := []string{"PATH=/bin", "SPARK_HOME=/s", "HEADROOM_RUN=1", "JAVA_HOME=/j"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
