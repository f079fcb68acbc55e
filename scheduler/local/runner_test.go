package local

// Tasks behind a socket: same results and outputs as without; killed when their worker
// asks for it or is gone; a submitter without a user gets no task.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

// served is the socket of a runner that ends with the test.
func served(t *testing.T) string {
	t.Helper()
	dir := testkit.Need(os.MkdirTemp("", "runner"))(t) //nolint:usetesting // the path of a socket has at most 107 bytes
	socket := filepath.Join(dir, "s.sock")
	l := testkit.Need(net.Listen("unix", socket))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- Serve(ctx, l, roomOf(t), slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return socket
}

func TestDelegatedTask(t *testing.T) {
	t.Parallel()
	socket := served(t)
	good := task(t, "sh", "-c", "echo $X")
	good.Env = []string{"X=y"}
	r := delegate(context.Background(), socket, good, func(*headroomv1.TaskState) {})
	data, _ := os.ReadFile(good.GetOutput())
	if r.GetExitCode() != 0 || r.GetError() != "" || string(data) != "y\n" || r.GetRef() != good.GetRef() || r.GetSeconds() <= 0 {
		t.Errorf("ended with %v, output %q", r, data)
	}
	bad := task(t, "sh", "-c", "echo no luck >&2; exit 3")
	if r := delegate(context.Background(), socket, bad, func(*headroomv1.TaskState) {}); r.GetExitCode() != 3 || !strings.Contains(r.GetError(), "no luck") || files(t, bad) != "log-map-00000-00000007" {
		t.Errorf("ended with %v, files %q", r, files(t, bad))
	}
	if r := delegate(context.Background(), "/nowhere/alice.sock", bad, func(*headroomv1.TaskState) {}); r.GetExitCode() != -1 || !strings.Contains(r.GetError(), "headroom-task@alice.socket") {
		t.Errorf("without a runner: %v", r)
	}
}

// started waits until the task's process has written its id.
func started(t *testing.T, k *headroomv1.Task) (pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if pid = readPid(filepath.Join(k.GetDir(), "pid")); pid > 0 {
			return pid
		}
	}
	t.Fatal("the task did not start")
	return 0
}

func readPid(path string) (pid int) {
	data, _ := os.ReadFile(path)
	for _, c := range strings.TrimSpace(string(data)) {
		pid = pid*10 + int(c-'0')
	}
	return pid
}

func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); syscall.Kill(pid, 0) == nil && !zombie(pid); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the task lives on")
		}
	}
}

const writesPid = "echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600"

// The answer to a kill comes when the task has ended, not before.
func TestDelegatedTaskIsKilled(t *testing.T) {
	t.Parallel()
	socket := served(t)
	k := task(t, "sh", "-c", writesPid)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan *headroomv1.TaskResult, 1)
	go func() { over <- delegate(ctx, socket, k, func(*headroomv1.TaskState) {}) }()
	pid := started(t, k)
	cancel()
	if r := <-over; r.GetError() != Stopped || r.GetExitCode() != exitNotStarted {
		t.Errorf("ended with %v", r)
	}
	if syscall.Kill(pid, 0) == nil && !zombie(pid) {
		t.Error("the task outlives the answer")
	}
}

// A worker that was killed says nothing; its connections close.
func TestTaskEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	c := testkit.Need(net.Dial("unix", served(t)))(t)
	k := task(t, "sh", "-c", writesPid)
	testkit.Check(t, writeFrame(c, k))
	pid := started(t, k)
	testkit.Check(t, c.Close())
	gone(t, pid)
}

// A runner freezes, thaws and measures a task when its worker asks, and says what it cannot do.
func TestOrdersOverTheSocket(t *testing.T) {
	t.Parallel()
	held(t)
	c := testkit.Need(net.Dial("unix", served(t)))(t)
	defer func() { _ = c.Close() }()
	k := task(t, "sh", "-c", "echo $$ > pid.tmp; mv pid.tmp pid; while :; do :; done")
	k.Controlled = true
	testkit.Check(t, writeFrame(c, k))
	state := func() *headroomv1.TaskState {
		var r headroomv1.TaskResult
		testkit.Check(t, readFrame(c, &r))
		return r.GetState()
	}
	ask := func(order string) *headroomv1.TaskState {
		testkit.Check(t, writeFrame(c, &headroomv1.TaskOrder{Order: order}))
		return state()
	}
	if s := state(); !s.GetControls().GetKill() || !s.GetControls().GetCpuTime() || s.GetControls().GetTrouble() != "" {
		t.Errorf("at its start: %v", s)
	}
	pid := started(t, k)
	until := func(what, order string, ok func(*headroomv1.TaskUse) bool) *headroomv1.TaskUse {
		for deadline := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
			switch s := ask(order); {
			case s.GetTrouble() != "":
				t.Fatalf("%s: %s", order, s.GetTrouble())
			case ok(s.GetUse()):
				return s.GetUse()
			case time.Now().After(deadline):
				t.Fatalf("not within 30 s: %s: %v", what, s)
			}
		}
	}
	until("CPU time and memory", orderUse, func(u *headroomv1.TaskUse) bool { return u.GetCpuSeconds() > 0 && u.GetMemoryBytes() > 0 })
	frozen := until("frozen", orderFreeze, (*headroomv1.TaskUse).GetFrozen)
	until("it runs again", orderThaw, func(u *headroomv1.TaskUse) bool { return !u.GetFrozen() && u.GetCpuSeconds() > frozen.GetCpuSeconds() })
	if s := ask("dance"); !strings.Contains(s.GetTrouble(), "dance") {
		t.Errorf("an unknown order: %v", s)
	}
	until("frozen", orderFreeze, (*headroomv1.TaskUse).GetFrozen)
	testkit.Check(t, c.Close())
	gone(t, pid)
}

// The worker learns what a runner can do before and while it runs a task, and nothing from one that says too much.
func TestStatesOfARunner(t *testing.T) {
	t.Parallel()
	socket := served(t)
	var told []*headroomv1.TaskState
	note := func(s *headroomv1.TaskState) { told = append(told, s) }
	if _, err := exchange(t.Context(), socket, &headroomv1.Task{Controlled: true}, note); err != nil || len(told) != 1 || told[0].GetControls() == nil {
		t.Errorf("a question: %v, %v", told, err)
	}
	k := task(t, "sh", "-c", "exec sleep 1.5")
	k.Controlled = true
	if r := delegate(t.Context(), socket, k, note); r.GetError() != "" || len(told) < 3 || r.GetState() != nil {
		t.Errorf("a task: %v, %v", told, r)
	}
	l := testkit.Need(net.Listen("unix", filepath.Join(t.TempDir(), "s")))(t)
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		for err == nil {
			err = writeFrame(c, &headroomv1.TaskResult{State: &headroomv1.TaskState{Use: &headroomv1.TaskUse{CpuSeconds: 1e9}}})
		}
	}()
	told = nil
	if r := delegate(t.Context(), l.Addr().String(), k, note); !strings.Contains(r.GetError(), "not asked for") || told[0].GetUse() != nil {
		t.Errorf("a talkative runner: %v, %v", r, told)
	}
}

func TestFrameIsBounded(t *testing.T) {
	t.Parallel()
	if err := readBody(strings.NewReader("\xff\xff\xff\xff"), &headroomv1.Task{}); err == nil || !strings.Contains(err.Error(), "the maximum") {
		t.Errorf("4 GB of a task: %v", err)
	}
	if err := readBody(strings.NewReader("\x00\x00\x00\x09x"), &headroomv1.Task{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a task: %v", err)
	}
}

func TestUsers(t *testing.T) {
	t.Parallel()
	one := Users{Sockets: "/run/headroom-task"}
	if got, err := one.socket("submitter/ann"); err != nil || got != "/run/headroom-task/headroom-task.sock" {
		t.Errorf("one user for all: %q, %v", got, err)
	}
	two := Users{Sockets: "/run/headroom-task", BySubmitter: map[string]string{"submitter/ann": "ann"}}
	if got, err := two.socket("submitter/ann"); err != nil || got != "/run/headroom-task/ann.sock" {
		t.Errorf("ann: %q, %v", got, err)
	}
	if got, err := two.socket("submitter/bob"); !errors.Is(err, errNoUser) || !strings.Contains(err.Error(), "submitter/bob") {
		t.Errorf("bob: %q, %v", got, err)
	}
	for name, c := range map[string]struct {
		users Users
		ok    bool
	}{
		"nothing":     {Users{}, true},
		"mapped":      {two, true},
		"no folder":   {Users{BySubmitter: two.BySubmitter}, false},
		"relative":    {Users{Sockets: "x"}, false},
		"root":        {Users{Sockets: "/x", BySubmitter: map[string]string{"a": "root"}}, false},
		"a path":      {Users{Sockets: "/x", BySubmitter: map[string]string{"a": "../../b"}}, false},
		"nobody asks": {Users{Sockets: "/x", BySubmitter: map[string]string{"": "a"}}, false},
	} {
		if err := c.users.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
