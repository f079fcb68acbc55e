package local

// Every second a worker reports what it can do with its tasks and what running ones use; it says once why it cannot.

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/testkit"
)

func TestAliveSaysWhatTasksUse(t *testing.T) {
	t.Parallel()
	held(t)
	dir := t.TempDir()
	w := testkit.Need(New(Config{Node: "n01", Slots: 2, Dir: dir, Hold: true, Logger: slog.New(slog.DiscardHandler)}))(t)
	k := task(t, "sh", "-c", escapes+"while :; do :; done")
	k.Ref.Proof = "p"
	w.start(t.Context(), k)
	pid := started(t, k)
	for deadline := time.Now().Add(30 * time.Second); ; <-time.After(5 * time.Millisecond) {
		m := w.alive()
		if len(m.GetRunning()) == 1 && m.GetRunning()[0].GetCpuSeconds() > 0 && m.GetRunning()[0].GetRef().GetProof() == "p" && m.GetControls().GetKill() {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %v", m)
		}
	}
	w.stopAll()
	gone(t, pid)
	testkit.Check(t, w.room.Close())
	if left := testkit.Need(os.ReadFile(filepath.Join(dir, RecordFile)))(t); len(left) > 0 {
		t.Errorf("left in the record: %s", left)
	}
}

func TestAbilitiesAreThoseOfEveryUser(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := testkit.Need(New(Config{
		Node: "n01", Slots: 1, Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Users: Users{Sockets: "/nowhere", BySubmitter: map[string]string{"submitter/ann": "ann", "submitter/bob": "bob"}},
	}))(t)
	if got := w.alive().GetControls(); got != nil {
		t.Errorf("before anything is known: %v", got)
	}
	all := &headroomv1.TaskControls{Kill: true, Freeze: true, CpuTime: true, Memory: true}
	w.note(all)
	if got := w.alive().GetControls(); !got.GetKill() || !got.GetFreeze() || !got.GetCpuTime() || !got.GetMemory() {
		t.Errorf("one user: %v", got)
	}
	w.note(&headroomv1.TaskControls{Trouble: "no room"})
	w.note(all)
	for range 3 {
		if got := w.alive().GetControls(); got.GetKill() || got.GetTrouble() != "no room" {
			t.Errorf("two users: %v", got)
		}
	}
	if n := strings.Count(log.String(), "tasks have no cgroup"); n != 1 || !strings.Contains(log.String(), "no room") {
		t.Errorf("logged %d times: %s", n, &log)
	}
}

// A task that was stopped and hangs in its file system is reported as stopped, and its slot is free; of those there are
// as many as slots, so that no job can fill the machine with them.
func TestStoppedTaskThatHangs(t *testing.T) {
	t.Parallel()
	w := testkit.Need(New(Config{Node: "n01", Slots: 1, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}))(t)
	w.stuckAfter = time.Millisecond
	stopped, stop := context.WithCancel(t.Context())
	stop()
	first, second := make(chan *headroomv1.TaskResult), make(chan *headroomv1.TaskResult)
	if r := w.await(stopped, &headroomv1.Task{}, first); r.GetError() != Stopped {
		t.Errorf("%v", r)
	}
	own := &headroomv1.TaskResult{Error: "its own"}
	time.AfterFunc(50*time.Millisecond, func() { second <- own })
	if r := w.await(stopped, &headroomv1.Task{}, second); r != own {
		t.Errorf("a second one hangs and is reported: %v", r)
	}
	first <- own // it has ended at last
	testkit.Eventually(t, 10*time.Second, "the first has ended", func() bool { return w.stuck.Load() == 0 })
}
