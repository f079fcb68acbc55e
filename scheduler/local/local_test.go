package local

// A task's output appears whole or not at all; a task ends with its group when it
// is told to; what it said last is the cause of its failure.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cgroup"
	"headroom/internal/testkit"
	"headroom/scheduler/jobdir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func task(t *testing.T, argv ...string) *headroomv1.Task {
	t.Helper()
	dir := t.TempDir()
	return &headroomv1.Task{Ref: &headroomv1.TaskRef{Job: "j", Phase: "map", Attempt: 7}, Argv: argv, Output: filepath.Join(dir, "map-00000"), Dir: dir}
}

// roomOf is a room with cgroups, nil where the machine permits none.
func roomOf(t *testing.T) *cgroup.Room {
	t.Helper()
	room := testkit.Need(cgroup.Open(cgroup.Options{}))(t)
	if room.Can().GetTrouble() != "" {
		return nil
	}
	t.Cleanup(func() { testkit.Check(t, room.Close()) })
	return room
}

// held is a room that must have cgroups.
func held(t *testing.T) *cgroup.Room {
	t.Helper()
	room := roomOf(t)
	if room == nil {
		testkit.NotRun(t, "no cgroup can be made here")
	}
	return room
}

// files are the names left in the output's folder.
func files(t *testing.T, k *headroomv1.Task) string {
	t.Helper()
	entries := testkit.Need(os.ReadDir(filepath.Dir(k.GetOutput())))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		argv               []string
		exit               int32
		cause, output, log string
	}{
		"success":        {[]string{"sh", "-c", "echo $X; echo note >&2"}, 0, "", "y\n", "note\n"},
		"failure":        {[]string{"sh", "-c", "echo half; echo no space left >&2; exit 3"}, 3, "exit status 3: no space left", "", "no space left\n"},
		"no program":     {[]string{"/nowhere/at/all"}, -1, "no such file", "", ""},
		"nothing to run": {nil, -1, "no program", "", ""},
		"killed":         {[]string{"sh", "-c", "kill -9 $$"}, -1, "signal: killed", "", ""},
		"writes itself":  {[]string{"sh", "-c", "echo not this; echo this > $0", "OUTPUT"}, 0, "", "this\n", ""},
		"removes it":     {[]string{"sh", "-c", "rm $0", "OUTPUT"}, -1, "wrote no output", "", ""},
		"leaves a child": {[]string{"sh", "-c", "sleep 600 & echo x"}, 0, "", "x\n", ""},
		"odd bytes":      {[]string{"sh", "-c", `printf '\377' >&2; exit 1`}, 1, "exit status 1: ?", "", "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := task(t, c.argv...)
			for i, a := range k.GetArgv() {
				if a == "OUTPUT" {
					k.Argv[i] = Partial(k.GetOutput(), 7)
				}
			}
			r := run(context.Background(), roomOf(t).New(), k, append(os.Environ(), "X=y"))
			if r.GetExitCode() != c.exit || (c.cause == "") != (r.GetError() == "") || !strings.Contains(r.GetError(), c.cause) {
				t.Errorf("ended with %d, %q; want %d, %q", r.GetExitCode(), r.GetError(), c.exit, c.cause)
			}
			data, _ := os.ReadFile(k.GetOutput())
			var want []string
			if c.log != "" { // an attempt that writes nothing leaves no log
				want = append(want, "log-map-00000-00000007")
			}
			if c.cause == "" {
				want = append(want, "map-00000")
			}
			if got := files(t, k); string(data) != c.output || got != strings.Join(want, " ") {
				t.Errorf("output %q, want %q; files %q, want %q", data, c.output, got, want)
			}
			if log, _ := os.ReadFile(jobdir.LogName(k.GetOutput(), 7)); string(log) != c.log {
				t.Errorf("log %q, want %q", log, c.log)
			}
		})
	}
}

// A log keeps the beginning and the end of what an attempt writes, and never more than its bound.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	k := task(t, "sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x >&2; printf the-end >&2; exit 1")
	_ = run(context.Background(), roomOf(t).New(), k, os.Environ())
	log := testkit.Need(os.ReadFile(jobdir.LogName(k.GetOutput(), 7)))(t)
	omitted := fmt.Sprintf("\n[%d bytes omitted]\n", 100000+len("the-end")-logMax-tailMax)
	if !bytes.HasPrefix(log, bytes.Repeat([]byte("x"), logMax)) || !strings.Contains(string(log), omitted) || !bytes.HasSuffix(log, []byte("xthe-end")) || len(log) != logMax+len(omitted)+tailMax {
		t.Errorf("a log of %d bytes, its end %q", len(log), log[max(0, len(log)-100):])
	}
}

func TestKillTakesTheGroup(t *testing.T) {
	t.Parallel()
	k := task(t, "sh", "-c", "sleep 600 & echo $! > pid.tmp; mv pid.tmp pid; wait")
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan *headroomv1.TaskResult, 1)
	go func() { over <- run(ctx, roomOf(t).New(), k, os.Environ()) }()
	var child int
	deadline := time.After(20 * time.Second)
	for child == 0 {
		if data, err := os.ReadFile(filepath.Join(k.GetDir(), "pid")); err == nil {
			if _, err := fmt.Sscan(string(data), &child); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-deadline:
			t.Fatal("the task did not start")
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if r := <-over; r.GetError() != "stopped" || r.GetExitCode() != -1 {
		t.Errorf("ended with %v", r)
	}
	for syscall.Kill(child, 0) == nil && !zombie(child) {
		select {
		case <-deadline:
			t.Fatal("the task's child lives on")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

const escapes = "setsid -f sh -c 'echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 600' </dev/null >/dev/null 2>&1; while ! [ -e pid ]; do :; done; "

// A process that a task has put into a session of its own ends with the attempt, whether it succeeds, fails or is killed.
func TestNothingOutlivesAnAttempt(t *testing.T) {
	t.Parallel()
	room := held(t)
	for name, end := range map[string]string{"success": "echo x", "failure": "exit 1", "killed": "kill -9 $$", "cancelled": "touch up; exec sleep 600"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := task(t, "sh", "-c", escapes+end)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(filepath.Join(k.GetDir(), "up")); err == nil {
						cancel()
					}
					<-time.After(5 * time.Millisecond)
				}
			}()
			r := run(ctx, room.New(), k, os.Environ())
			if pid := started(t, k); syscall.Kill(pid, 0) == nil && !zombie(pid) {
				t.Errorf("process %d outlives the attempt, which ended with %v", pid, r)
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// CPU time counts wherever it was used.
func TestCPUTimeOfAllProcesses(t *testing.T) {
	t.Parallel()
	k := task(t, "sh", "-c", "setsid -f sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; touch done'; while ! [ -e done ]; do sleep 0.01; done")
	if r := run(context.Background(), held(t).New(), k, os.Environ()); r.GetError() != "" || r.GetCpuSeconds() < 0.05 {
		t.Errorf("ended with %v", r)
	}
}

// zombie reports whether a process has ended and only waits to be collected.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(data), ") Z ")
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var kept tail
		var all string
		for range rapid.IntRange(0, 10).Draw(t, "writes") {
			p := strings.Repeat(rapid.StringN(0, 4, 16).Draw(t, "text"), rapid.IntRange(0, 400).Draw(t, "times"))
			if n, err := kept.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
			all += p
		}
		if want := all[max(0, len(all)-tailMax):]; kept.String() != want {
			t.Fatalf("kept %q, want %q", kept.String(), want)
		}
	})
}

// Of attempts that all succeed the first one's output stays, whole; nothing unfinished is left.
func TestOutputIsCommittedOnce(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(from, to string) error{"rename": moveTo, "link": linkTo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			to := filepath.Join(dir, "map-00000")
			won := make(chan int, 20)
			var all sync.WaitGroup
			for i := range cap(won) {
				from := filepath.Join(dir, fmt.Sprint(i))
				testkit.WriteFile(t, from, fmt.Sprint(i))
				all.Go(func() {
					switch err := move(from, to); {
					case err == nil:
						won <- i
					case !errors.Is(err, os.ErrExist):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if len(won) != 1 {
				t.Fatalf("%d were first", len(won))
			}
			if got, want := string(testkit.Need(os.ReadFile(to))(t)), fmt.Sprint(<-won); got != want {
				t.Errorf("holds %s, and %s was first", got, want)
			}
		})
	}
}

// Copies of a task run at the same time, each into a name of its own; late ones change nothing.
func TestCopiesOfOneTask(t *testing.T) {
	t.Parallel()
	first := task(t, "sh", "-c", "echo copy $N; exec 1>&-; sleep 0.0$N")
	ends := make(chan *headroomv1.TaskResult, 4)
	for i := range cap(ends) {
		k := proto.CloneOf(first)
		k.Ref.Attempt = uint32(100 + i)
		go func() {
			ends <- run(context.Background(), roomOf(t).New(), k, append(os.Environ(), fmt.Sprintf("N=%d", i)))
		}()
	}
	for range cap(ends) {
		if r := <-ends; r.GetError() != "" {
			t.Errorf("ended with %v", r)
		}
	}
	data := string(testkit.Need(os.ReadFile(first.GetOutput()))(t))
	if !strings.HasPrefix(data, "copy ") || len(data) != len("copy 0\n") || files(t, first) != "map-00000" {
		t.Fatalf("output %q, files %q", data, files(t, first))
	}
	late := proto.CloneOf(first)
	late.Ref.Attempt = 200
	if r := run(context.Background(), roomOf(t).New(), late, append(os.Environ(), "N=9")); r.GetError() != "" || r.GetExitCode() != 0 {
		t.Errorf("a late copy ended with %v", r)
	}
	if again := string(testkit.Need(os.ReadFile(first.GetOutput()))(t)); again != data || files(t, first) != "map-00000" {
		t.Errorf("a late copy changed %q to %q; files %q", data, again, files(t, first))
	}
}

// What is no file under the output's name is not taken for an output, and not replaced.
func TestSomethingInTheWay(t *testing.T) {
	t.Parallel()
	k := task(t, "echo", "x")
	testkit.Check(t, os.Symlink("/nowhere", k.GetOutput()))
	if r := run(context.Background(), roomOf(t).New(), k, os.Environ()); !strings.Contains(r.GetError(), "exists and is not a file") || files(t, k) != "map-00000" {
		t.Errorf("ended with %v; files %q", r, files(t, k))
	}
}

// An output that cannot be written, as on a full disk, fails the task with its cause and leaves nothing but its log.
func TestOutputDoesNotFit(t *testing.T) {
	t.Parallel()
	k := task(t, "sh", "-c", "trap '' XFSZ; ulimit -f 1; exec dd if=/dev/zero bs=4096 count=4")
	if r := run(context.Background(), roomOf(t).New(), k, os.Environ()); !strings.Contains(r.GetError(), "File too large") || files(t, k) != "log-map-00000-00000007" {
		t.Errorf("ended with %v; files %q", r, files(t, k))
	}
}

// A worker obeys no scheduler in whose place it has seen another. Masters name no epoch.
func TestWorkerRefusesReplacedScheduler(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	for _, k := range []struct {
		epoch uint64
		ok    bool
	}{{0, true}, {5, true}, {5, true}, {6, true}, {5, false}, {0, true}, {7, true}} {
		if err := w.admit(k.epoch); (err == nil) != k.ok {
			t.Errorf("epoch %d: %v", k.epoch, err)
		}
	}
}
