// Claims: Close ends what a group started and what that started, whatever session and
// parent it has by now, and nothing else; so does the guard when the process that holds
// the group is killed.
package cluster

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// family starts, in the background and in a session of its own, a process that outlives
// its parent; its process id is the only line of the file $1.
const family = `setsid sh -c 'echo $$ >"$0.next"; mv "$0.next" "$0"; exec sleep 600' "$1" </dev/null >/dev/null 2>&1 &`

// patience bounds every wait of these tests.
const patience = 30 * time.Second

// pidIn waits for a file with a process id.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	eventually(t, path+" is not there", func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

func eventually(t *testing.T, not string, done func() bool) {
	t.Helper()
	late, tick := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-late:
			t.Fatal(not)
		case <-tick.C:
		}
	}
}

// lives reports whether a process runs; one that has ended and waits to be reaped does not.
func lives(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestCloseEndsTheFamilyAndNothingElse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, err := NewGroup(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewGroup(filepath.Join(dir, "others"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	stranger, err := other.Start("stranger", nil, "/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	child, err := g.Start("child", nil, "/bin/sh", "-c", family, "child", filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	orphan := pidIn(t, filepath.Join(dir, "pid"))
	<-child.Done()
	if !lives(orphan) {
		t.Fatal("the orphan has ended by itself")
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if lives(orphan) {
		t.Error("the orphan lives on")
	}
	if !lives(stranger.Pid()) {
		t.Error("another group's process was ended")
	}
}

// TestHoldGroup is no test but the process that TestGuardEndsTheFamily kills.
func TestHoldGroup(t *testing.T) {
	dir := os.Getenv("HEADROOM_TEST_HOLD")
	if dir == "" {
		return // `go test` itself: the other test runs it
	}
	g, err := NewGroup(filepath.Join(dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Start("child", nil, "/bin/sh", "-c", family, "child", filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until it is killed
}

func TestGuardEndsTheFamily(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHoldGroup$")
	holder.Env = append(os.Environ(), "HEADROOM_TEST_HOLD="+dir)
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	orphan := pidIn(t, filepath.Join(dir, "pid"))
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // "signal: killed"
	eventually(t, "the orphan lives on", func() bool { return !lives(orphan) })
}
