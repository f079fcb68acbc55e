package local

// Every second a worker reports what it can do with its tasks and what running ones use; it says once why it cannot.

import (
	"bytes"
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
