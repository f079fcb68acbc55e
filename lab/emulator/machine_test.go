package emulator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/config"
	"headroom/internal/testkit"
	"headroom/lab/emulator"
)

// patience bounds every wait for a real process; a busy host is slow.
const patience = 60 * time.Second

// machine is a `powerlab node` that runs as a process of its own.
type machine struct {
	dir, name string
	cmd       *exec.Cmd
	out       *bytes.Buffer
	ended     chan error
}

func powerlab(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self := testkit.Need(os.Executable())(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asPowerlab+"=1")
	return cmd
}

// start boots node name in dir and waits until it reports that it is ready.
func start(t *testing.T, dir, name string, args ...string) *machine {
	t.Helper()
	m := &machine{dir: dir, name: name, out: &bytes.Buffer{}, ended: make(chan error, 1)}
	m.cmd = powerlab(t, append([]string{"node", name, "--dir", dir, "--nodes", "4"}, args...)...)
	stdout := testkit.Need(m.cmd.StdoutPipe())(t)
	m.cmd.Stderr = m.out
	testkit.Check(t, m.cmd.Start())
	ready := make(chan string, 1)
	go func() {
		first := make([]byte, 4096)
		n, _ := stdout.Read(first)
		ready <- string(first[:n])
		_, _ = io.Copy(io.Discard, stdout)
		m.ended <- m.cmd.Wait()
	}()
	t.Cleanup(func() { m.stop(t) })
	select {
	case text := <-ready:
		if !strings.HasPrefix(text, "node "+name+" is ready\n") {
			m.stop(t)
			t.Fatalf("node did not start: %q\n%s", text, m.out)
		}
		t.Log(text)
	case <-time.After(patience):
		t.Fatal("node did not become ready")
	}
	return m
}

// stop sends SIGTERM and waits for the end; a second call is nothing.
func (m *machine) stop(t *testing.T) {
	t.Helper()
	if m.ended == nil {
		return
	}
	_ = m.cmd.Process.Signal(unix.SIGTERM)
	select {
	case err := <-m.ended:
		if err != nil {
			t.Errorf("node ended with %v\n%s", err, m.out)
		}
	case <-time.After(patience):
		_ = m.cmd.Process.Kill()
		t.Errorf("node did not stop\n%s", m.out)
	}
	m.ended = nil
}

func (m *machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.dir, m.name}, parts...)...)
}

// exec runs a program on the node.
func (m *machine) exec(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	return powerlab(t, append([]string{"node", "exec", m.name, "--dir", m.dir, "--"}, argv...)...)
}

func (m *machine) view(t *testing.T) emulator.View {
	t.Helper()
	var v emulator.View
	text, err := os.ReadFile(m.path("run", "plant.json"))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(text), ") Z ")
}

func pidFrom(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

// bin makes stand-ins for powerd and scheduler: one sleeps, the other starts a
// task that is busy.
func bin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"powerd":    "#!/bin/sh\necho powerd \"$@\"\necho $(cat /proc/self/timerslack_ns) $GOMAXPROCS\nexec sleep 600\n",
		"scheduler": "#!/bin/sh\necho scheduler \"$@\"\nsh -c 'echo $$ > task.pid; ulimit -t 60; while :; do :; done' &\nwait\n",
	} {
		testkit.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	return dir
}

// exec runs a program on the node with the caller's environment, folder, files
// and exit code, and passes signals on.
func TestExec(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker")
	cmd := m.exec(t, "sh", "-c", `cat; echo "$GREETING in $PWD, parent $PPID" >&2; exit 7`)
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, "GREETING=hello")
	cmd.Stdin = strings.NewReader("from stdin")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	want := fmt.Sprintf("hello in %s, parent %d\n", cmd.Dir, m.cmd.Process.Pid)
	if cmd.ProcessState.ExitCode() != 7 || stdout.String() != "from stdin" || !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("exit code %d, stdout %q, stderr %q, want %q", cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), want)
	}

	trap := m.exec(t, "sh", "-c", `trap 'exit 42' USR1; echo ready; for i in $(seq 1200); do sleep 0.05; done`)
	out := testkit.Need(trap.StdoutPipe())(t)
	testkit.Check(t, trap.Start())
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, trap.Process.Signal(unix.SIGUSR1))
	_ = trap.Wait()
	if code := trap.ProcessState.ExitCode(); code != 42 {
		t.Errorf("signalled program ended with %d", code)
	}

	gone := m.exec(t, "no-such-program")
	if text, err := gone.CombinedOutput(); err == nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("a program that is not there: %v, %q", err, text)
	}
}

// A program whose `exec` is killed is hung up, and the node goes on.
func TestExecHangsUp(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("not run: hang-ups are ignored here (nohup), and so by every program that a node starts")
	}
	m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker")
	note := filepath.Join(t.TempDir(), "pid")
	cmd := m.exec(t, "sh", "-c", "echo $$ > "+note+"; exec sleep 600")
	testkit.Check(t, cmd.Start())
	testkit.Eventually(t, patience, "program starts", func() bool { return pidFrom(note) > 0 })
	testkit.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	testkit.Eventually(t, patience, "program ends", func() bool { return !alive(pidFrom(note)) })
}

// A busy program is slowed to the node's share and shows as power, by either throttle.
func TestBusyProgramIsPower(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"auto", "signals"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker", "--throttle", kind)
			idle := m.view(t)
			cmd := m.exec(t, "sh", "-c", "ulimit -t 60; while :; do :; done")
			testkit.Check(t, cmd.Start())
			testkit.Eventually(t, patience, "power rises", func() bool { return m.view(t).WallW > idle.WallW+20 })
			m.stop(t)
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
				t.Errorf("program of a stopped node ended with %d", code)
			}
		})
	}
}

// powerd and worker are kept running; their end, even by kill -9, is the start of
// the next; tasks are slowed; nothing survives the node's stop.
func TestServicesAreKept(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), "n01", "--bin", bin(t), "--scheduler", "127.0.0.1:1", "--restart-delay", "50ms")
	powerd := pidFrom(m.path("run", "powerd.pid"))
	if !alive(powerd) {
		t.Fatalf("powerd (process %d) does not run", powerd)
	}
	testkit.Check(t, unix.Kill(powerd, unix.SIGKILL))
	testkit.Eventually(t, patience, "powerd is started again", func() bool {
		pid := pidFrom(m.path("run", "powerd.pid"))
		return pid != 0 && pid != powerd && alive(pid)
	})
	testkit.Eventually(t, patience, "the worker's task is power", func() bool { return m.view(t).Utilisation > 0.2 })
	text, err := os.ReadFile(m.path("worker.log"))
	want := fmt.Sprintf("scheduler worker --dev --node n01 --scheduler 127.0.0.1:1 --slots 4 --dir %s\n", m.path("work"))
	if err != nil || string(text) != want {
		t.Errorf("worker was started as %q, %v, want %q", text, err, want)
	}
	pids := []int{pidFrom(m.path("run", "powerd.pid")), pidFrom(m.path("run", "worker.pid")), pidFrom(m.path("task.pid"))}
	m.stop(t)
	for _, pid := range pids {
		if pid == 0 || alive(pid) {
			t.Errorf("process %d of %v survives the node", pid, pids)
		}
	}
	for _, name := range []string{"powerd.pid", "worker.pid", "node.sock", "held.json"} {
		if _, err := os.Stat(m.path("run", name)); err == nil {
			t.Errorf("run/%s survives the node", name)
		}
	}
}

// powerd gets from the emulated node what its unit gives it, and no other process does:
// so it costs here what it costs there.
func TestPowerdIsStartedAsByItsUnit(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), "n01", "--bin", bin(t), "--no-worker")
	unit := testkit.Need(os.ReadFile("../../deploy/systemd/headroom-powerd.service"))(t)
	for _, line := range []string{"Environment=GOMAXPROCS=1", "TimerSlackNSec=1ms"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("powerd's unit has no %s", line)
		}
	}
	testkit.Eventually(t, patience, "powerd's stand-in tells", func() bool {
		text, err := os.ReadFile(m.path("powerd.log"))
		return err == nil && strings.HasSuffix(string(text), "\n1000000 1\n")
	})
	const slackFile = "/proc/self/timerslack_ns"
	own := testkit.Need(os.ReadFile(slackFile))(t)
	if other, err := m.exec(t, "cat", slackFile).CombinedOutput(); err != nil || string(other) != string(own) {
		t.Errorf("another program's timer slack is %q, %v, want %q", other, err, own)
	}
}

// A node that is killed takes powerd and worker with it, and its next start ends
// the tasks that it left behind.
func TestKilledNodeIsSweptAtTheNextStart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"auto", "signals"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			args := []string{"--bin", bin(t), "--scheduler", "127.0.0.1:1", "--throttle", kind}
			m := start(t, dir, "n01", args...)
			testkit.Eventually(t, patience, "the worker's task is slowed", func() bool { return m.view(t).Utilisation > 0.2 })
			pids := []int{pidFrom(m.path("run", "powerd.pid")), pidFrom(m.path("run", "worker.pid")), pidFrom(m.path("task.pid"))}
			testkit.Check(t, m.cmd.Process.Kill())
			if err := <-m.ended; err == nil {
				t.Error("a killed node ended well")
			}
			m.ended = nil
			testkit.Eventually(t, patience, "powerd and worker end with their node", func() bool { return !alive(pids[0]) && !alive(pids[1]) })
			testkit.Check(t, os.Remove(m.path("task.pid")))
			again := start(t, dir, "n01", append(args, "--no-worker")...)
			testkit.Eventually(t, patience, "the old task is ended", func() bool { return !alive(pids[2]) })
			again.stop(t)
		})
	}
}

// Two processes cannot run one node; the refusal is two lines and exit code 5.
func TestSecondNodeIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t, t.TempDir(), "n01", "--no-powerd", "--no-worker")
	second := powerlab(t, "node", "n01", "--dir", m.dir, "--no-powerd", "--no-worker")
	text, _ := second.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if second.ProcessState.ExitCode() != 5 || len(lines) != 2 ||
		!strings.Contains(lines[0], "already running as process "+strconv.Itoa(m.cmd.Process.Pid)) || !strings.HasPrefix(lines[1], "hint: ") {
		t.Errorf("exit code %d: %s", second.ProcessState.ExitCode(), text)
	}
	other := start(t, m.dir, "n02", "--no-powerd", "--no-worker")
	other.stop(t)
}

// Mistakes end in two lines and the documented exit code, and change nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		exit int
	}{
		"name":          {[]string{"node", "../n01"}, 2},
		"throttle":      {[]string{"node", "n01", "--throttle", "magic"}, 2},
		"nodes":         {[]string{"node", "n01", "--nodes", "0"}, 2},
		"weight":        {[]string{"node", "n01", "--weight", "101"}, 2},
		"no name":       {[]string{"node"}, 2},
		"not running":   {[]string{"node", "exec", "n01", "--", "true"}, 3},
		"nothing named": {[]string{"node", "exec", "n01"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "lab")
			args := append([]string{c.args[0]}, c.args[1:]...)
			if i := slices.Index(args, "--"); i >= 0 {
				args = slices.Insert(args, i, "--dir", dir)
			} else {
				args = append(args, "--dir", dir)
			}
			cmd := powerlab(t, args...)
			text, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != c.exit || strings.Count(string(text), "\n") > 2 {
				t.Errorf("exit code %d, want %d: %s", cmd.ProcessState.ExitCode(), c.exit, text)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the folder was made all the same")
			}
		})
	}
}

// The configuration written for powerd is the documented one, on the safe side of
// the plant, and one that is there already stays.
func TestPowerdConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := start(t, dir, "n01", "--no-powerd", "--no-worker", "--join", "127.0.0.1:7402", "--join", "127.0.0.1:7403",
		"--key-file", filepath.Join(dir, "gossip key"), "--brake-key-file", filepath.Join(dir, "brake pub"), "--domain", "rack/r2")
	var got struct {
		Node, Domain, Root string
		StateDir           string `yaml:"state_dir"`
		Enforce            bool
		Power              map[string]any
		Weight             float64
		Coordinators       []string
		Gossip             struct {
			Bind    string
			Join    []string
			KeyFile string `yaml:"key_file"`
		}
		Brake struct {
			PublicKeyFile string `yaml:"public_key_file"`
		}
		LogLevel string `yaml:"log_level"`
	}
	testkit.Check(t, config.Load(m.path("powerd.yaml"), &got))
	if got.Node != "n01" || got.Domain != "rack/r2" || got.Root != m.path("root") || got.StateDir != m.path("state") || !got.Enforce {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(got.Gossip.Join, []string{"127.0.0.1:7402", "127.0.0.1:7403"}) || got.Gossip.KeyFile != filepath.Join(dir, "gossip key") {
		t.Errorf("gossip %+v", got.Gossip)
	}
	if got.Brake.PublicKeyFile != filepath.Join(dir, "brake pub") {
		t.Errorf("brake %+v", got.Brake)
	}
	if fmt.Sprint(got.Power) != "map[fail_safe:95W floor:70W max:241W other:22W rated:241W supply_efficiency:0.914]" {
		t.Errorf("power %v", got.Power)
	}
	m.stop(t)
	testkit.WriteFile(t, m.path("powerd.yaml"), "node: edited\n")
	start(t, dir, "n01", "--no-powerd", "--no-worker").stop(t)
	if text, _ := os.ReadFile(m.path("powerd.yaml")); string(text) != "node: edited\n" {
		t.Errorf("an edited configuration became %q", text)
	}
	alone := start(t, dir, "n02", "--no-powerd", "--no-worker")
	if text, err := os.ReadFile(alone.path("powerd.yaml")); err != nil || strings.Contains(string(text), "gossip") {
		t.Errorf("%v: gossip without a key, which powerd refuses:\n%s", err, text)
	}
}

// A node with a BMC gives powerd its address, which stays.
func TestBMCOfANode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--no-powerd", "--no-worker", "--bmc"}
	m := start(t, dir, "n01", args...)
	var got struct {
		Mode, Address, User string
		PasswordFile        string `yaml:"password_file"`
	}
	text := testkit.Need(os.ReadFile(m.path("powerd.yaml")))(t)
	_, section, found := strings.Cut(string(text), "\nipmi:\n")
	if !found {
		t.Fatalf("no ipmi section in %s", text)
	}
	section, _, _ = strings.Cut(section, "log_level")
	testkit.Check(t, config.Decode("ipmi", []byte(strings.ReplaceAll(section, "  ", "")), &got))
	info, err := os.Stat(got.PasswordFile)
	if err != nil || info.Mode().Perm() != 0o600 || got.Mode != "lan" || got.User == "" || !strings.HasPrefix(got.Address, "127.0.0.1:") {
		t.Errorf("%+v, %v", got, err)
	}
	m.stop(t)
	again := start(t, dir, "n01", args...)
	address, err := os.ReadFile(again.path("run", "bmc.address"))
	if err != nil || strings.TrimSpace(string(address)) != got.Address {
		t.Errorf("BMC at %q after a restart, %q before, %v", address, got.Address, err)
	}
}

// A folder whose name is longer than a socket address works all the same.
func TestLongFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long-", 25))
	m := start(t, dir, "n01", "--no-powerd", "--no-worker")
	if text, err := m.exec(t, "echo", "reached").CombinedOutput(); err != nil || string(text) != "reached\n" {
		t.Errorf("%q, %v", text, err)
	}
}
