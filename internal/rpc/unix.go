package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"headroom/internal/cli"
)

// maxSocketPath is what fits into sockaddr_un.sun_path with its final zero.
const maxSocketPath = 107

// UnixURL is the base URL for a client of NewUnixClient; its host is never
// looked up.
const UnixURL = "http://unix"

// NewUnixClient is an HTTP client whose every call goes to the unix socket at
// path; use it with UnixURL.
func NewUnixClient(path string) *http.Client {
	d := &net.Dialer{Timeout: dialWait}
	return newClient(func(ctx context.Context, _, _ string) (net.Conn, error) {
		short, done, err := shorten(path)
		if err != nil {
			return nil, err
		}
		defer done()
		return d.DialContext(ctx, "unix", short)
	})
}

// ListenUnix opens a unix socket at path that only this user can reach. A socket
// that a dead process left is replaced; one that somebody answers on is not. The
// socket is removed when the listener is closed.
func ListenUnix(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := listenUnix(path)
	if err != nil {
		return nil, &cli.Error{
			Code: "listen", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot listen on %s: %s", path, cause(err)),
			Hint: "its folder must exist and be writable by this user",
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("rpc: listen %s: %w", path, err), l.Close())
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	short, done, err := shorten(path)
	if err != nil {
		return nil, err
	}
	defer done()
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "unix", short)
	if err != nil {
		return nil, err
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // it would remove the short name
	}
	return &unixListener{Listener: l, path: path}, nil
}

// unixListener removes its socket under the name it was asked for.
type unixListener struct {
	net.Listener
	path string
	once sync.Once
}

// Close closes the listener and removes the socket.
func (l *unixListener) Close() error {
	err := l.Listener.Close()
	l.once.Do(func() { _ = os.Remove(l.path) })
	return err
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&os.ModeSocket == 0 {
		return &cli.Error{Code: "listen", Exit: cli.ExitFailed, Message: path + " exists and is not a socket", Hint: "remove it or choose another path"}
	}
	if answers(path) {
		return &cli.Error{Code: "listen", Exit: cli.ExitConflict, Message: "another process answers on " + path, Hint: "stop it first; only one may use a state directory"}
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("rpc: replace socket %s: %w", path, err)
	}
	return nil
}

func answers(path string) bool {
	short, done, err := shorten(path)
	if err != nil {
		return false
	}
	defer done()
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(context.Background(), "unix", short)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// shorten is a name for path that fits into a socket address: long paths go
// through a descriptor of their folder. done gives it back.
func shorten(path string) (short string, done func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	fd, err := syscall.Open(filepath.Dir(path), syscall.O_DIRECTORY|syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, filepath.Base(path)), func() { _ = syscall.Close(fd) }, nil
}
