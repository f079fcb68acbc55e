// Claims: a notification is exactly one datagram with what was said; a text cannot
// smuggle in another assignment; a manager that does not read never delays a beat; no
// manager, or a bad environment, means silence and never a failure to run.
package systemd_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/systemd"
)

// listen is a manager's socket and the environment that names it.
func listen(t *testing.T, env map[string]string) (*net.UnixConn, func(string) string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, func(key string) string {
		if key == "NOTIFY_SOCKET" {
			return path
		}
		return env[key]
	}
}

func heard(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func open(t *testing.T, getenv func(string) string) *systemd.Notify {
	t.Helper()
	n, err := systemd.OpenNotify(getenv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func TestNotifySaysWhatItIsTold(t *testing.T) {
	t.Parallel()
	c, env := listen(t, map[string]string{"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid())})
	n := open(t, env)
	if !n.Listening() || n.Watchdog() != 5*time.Second {
		t.Errorf("listening %v, watchdog %v", n.Listening(), n.Watchdog())
	}
	for _, c2 := range []struct {
		say  func() error
		want string
	}{
		{func() error { return n.Ready("holds 95.0 W") }, "READY=1\nSTATUS=holds 95.0 W"},
		{func() error { return n.Status("holds 120.0 W") }, "STATUS=holds 120.0 W"},
		{n.Beat, "WATCHDOG=1"},
		{func() error { return n.Extend(5 * time.Second) }, "EXTEND_TIMEOUT_USEC=5000000"},
		{func() error { return n.Stopping("asks for its release") }, "STOPPING=1\nSTATUS=asks for its release"},
	} {
		if err := c2.say(); err != nil {
			t.Fatal(err)
		}
		if got := heard(t, c); got != c2.want {
			t.Errorf("said %q, want %q", got, c2.want)
		}
	}
	if err := n.Reloading(); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, c); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("said %q", got)
	}
}

func TestStatusIsOneLine(t *testing.T) {
	t.Parallel()
	c, env := listen(t, nil)
	n := open(t, env)
	if err := n.Status("a\nREADY=1\r\x00" + strings.Repeat("ü", 1000)); err != nil {
		t.Fatal(err)
	}
	got := heard(t, c)
	if strings.ContainsAny(got, "\n\r\x00") || len(got) > 500 || !strings.HasPrefix(got, "STATUS=a READY=1") {
		t.Errorf("said %q", got)
	}
}

// A manager that is stopped lets its socket fill up.
func TestBeatNeverWaits(t *testing.T) {
	t.Parallel()
	_, env := listen(t, nil)
	n := open(t, env)
	done := make(chan error)
	go func() {
		var err error
		for range 100_000 {
			if err = n.Beat(); err != nil {
				break
			}
		}
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("a full socket: %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Error("a beat waits for the manager")
	}
}

func TestBeatAllocatesNothing(t *testing.T) {
	c, env := listen(t, nil)
	n := open(t, env)
	buf := make([]byte, 64)
	if got := testing.AllocsPerRun(100, func() { _, _ = n.Beat(), must(c.Read(buf)) }); got > 0 {
		t.Errorf("%v allocations a beat", got)
	}
}

func must(_ int, err error) error { return err }

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	var none *systemd.Notify
	silent, err := systemd.OpenNotify(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*systemd.Notify{none, silent} {
		if err := errors.Join(n.Ready(""), n.Status(""), n.Beat(), n.Stopping(""), n.Reloading(), n.Extend(1), n.Close()); err != nil {
			t.Error(err)
		}
		if n.Listening() || n.Watchdog() != 0 {
			t.Error("listening")
		}
	}
}

func TestBadEnvironment(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"relative":   {"NOTIFY_SOCKET": "run/x"},
		"vsock":      {"NOTIFY_SOCKET": "vsock:2:1234"},
		"bare at":    {"NOTIFY_SOCKET": "@"},
		"no number":  {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "soon"},
		"negative":   {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "-5"},
		"zero":       {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "0"},
		"overflow":   {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "99999999999999999999"},
		"no service": {"NOTIFY_SOCKET": filepath.Join(t.TempDir(), "nobody")},
	} {
		n, err := systemd.OpenNotify(func(key string) string { return env[key] })
		if (err == nil) != (name == "no service") || n == nil {
			t.Errorf("%s: %v", name, err)
		}
		if n.Watchdog() != 0 {
			t.Errorf("%s: watchdog %v", name, n.Watchdog())
		}
		_ = n.Close()
	}
}

// Another process's watchdog is not ours to feed.
func TestWatchdogOfAnotherProcess(t *testing.T) {
	t.Parallel()
	_, env := listen(t, map[string]string{"WATCHDOG_USEC": "5000000", "WATCHDOG_PID": "1"})
	if n := open(t, env); n.Watchdog() != 0 {
		t.Errorf("watchdog %v", n.Watchdog())
	}
}
