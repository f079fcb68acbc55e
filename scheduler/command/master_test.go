package command

// Claims: a master that is killed in the middle of a job costs nothing: the standby goes on, tasks that run are not begun again, and
// each output is there once. Masters are refused without certificates, and with what no master is.

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/internal/testkit"
	"headroom/scheduler/distributor"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	l := testkit.Need(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() //nolint:errcheck // only to find a free port
	return l.Addr().String()
}

func TestMasterIsKilled(t *testing.T) {
	t.Parallel()
	c := &cluster{t: t, dir: t.TempDir()}
	c.log = filepath.Join(c.dir, "log")
	first, second := freeAddress(t), freeAddress(t)
	start := func(name, own, peer string) *proc {
		return c.start("master", "--dev", "--name", name, "--group", "r1", "--listen", own, "--peer", peer, "--reserved", "1")
	}
	m1 := start("m1", first, second)
	start("m2", second, first)
	c.start("worker", "--dev", "--node", "n01", "--scheduler", first+","+second, "--slots", "5", "--dir", filepath.Join(c.dir, "n01"))
	d := testkit.Need(distributor.New(distributor.Config{
		Name: "d1", Incarnation: 1, Groups: []distributor.Group{{Name: "r1", Masters: []string{first, second}}},
		Peers: rpc.PlainPeers(), LostAfter: patience, Logger: slog.New(slog.DiscardHandler),
	}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- d.Run(ctx) }()
	defer func() {
		cancel()
		testkit.Check(t, <-over)
	}()
	const many = 30
	out := filepath.Join(c.dir, "out")
	testkit.Check(t, os.Mkdir(out, 0o700))
	f := testkit.Need(d.Submit(t.Context(), distributor.Job{Tasks: many, High: true, Task: func(index, attempt int) *headroomv1.Task {
		return &headroomv1.Task{
			Ref:  &headroomv1.TaskRef{Job: "j", Phase: "map", Index: uint32(index), Attempt: uint32(attempt)},
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo begun >> begun-%02d; test -e go || { touch at-$$; while ! test -e go; do sleep 0.02; done; }; echo %d", index, index)},
			Dir:  out, Output: filepath.Join(out, fmt.Sprintf("map-%02d", index)),
		}
	}}))(t)
	count := func(pattern string) int {
		names, _ := filepath.Glob(filepath.Join(out, pattern)) // the pattern is right
		return len(names)
	}
	testkit.Eventually(t, patience, "five tasks run", func() bool { return count("at-*") == 5 })
	running := testkit.Need(filepath.Glob(filepath.Join(out, "begun-*")))(t)
	m1.end(syscall.SIGKILL)
	testkit.Eventually(t, patience, "the standby is active", func() bool {
		data := testkit.Need(os.ReadFile(c.log))(t)
		return strings.Count(string(data), "master is active") == 2
	})
	testkit.WriteFile(t, filepath.Join(out, "go"), "")
	seen := map[int]int{}
	for r := range f.Results() {
		seen[r.Index]++
		if r.GetError() != "" || r.GetExitCode() != 0 {
			t.Errorf("task %d: %v", r.Index, r.TaskResult)
		}
	}
	for i := range many {
		if data := string(testkit.Need(os.ReadFile(filepath.Join(out, fmt.Sprintf("map-%02d", i))))(t)); seen[i] != 1 || data != fmt.Sprintln(i) {
			t.Errorf("task %d: %d results, output %q", i, seen[i], data)
		}
	}
	for _, name := range running {
		if data := testkit.Need(os.ReadFile(name))(t); string(data) != "begun\n" {
			t.Errorf("%s: a task that ran when the master was killed was begun again", name)
		}
	}
	if count(".*.part") > 0 {
		t.Error("partial outputs stay")
	}
}

func TestMasterFlags(t *testing.T) {
	t.Parallel()
	good := []string{"--dev", "--name", "m1", "--group", "r1", "--listen", "127.0.0.1:0"}
	for want, more := range map[string][]string{
		"--w \"0\"":                     {"--w", "0"},
		"neither a number of slots":     {"--reserved", "some"},
		"less than 100 %":               {"--reserved", "100%"},
		"--name \"\"":                   {"--name", ""},
		"--group is empty":              {"--group", ""},
		"10.0.0.1:7420 is no loopback":  {"--peer", "10.0.0.1:7420"},
		"needs a certificate":           {"--dev=false"},
		"log level \"loud\" is unknown": {"--log-level", "loud"},
		"\"nowhere\" is not an address": {"--metrics", "nowhere"},
	} {
		exit, _, stderr := testkit.Run(t, New(), "", append(append([]string{"master"}, good...), more...)...)
		if exit != cli.ExitUsage || !strings.Contains(stderr, want) || !strings.Contains(stderr, "hint: ") {
			t.Errorf("%v: exit %d, %s; want %q", more, exit, stderr, want)
		}
	}
}
