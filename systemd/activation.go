package systemd

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// firstSocket is the first descriptor that the service manager hands down
// (sd_listen_fds(3), SD_LISTEN_FDS_START).
const firstSocket = 3

// Listener is the one socket that the service manager has started this process for. pid
// is this process's own. Programs that this process starts do not inherit the socket.
func Listener(getenv func(string) string, pid int) (net.Listener, error) {
	file, err := handedDown(getenv, pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the listener has its own
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("systemd: listen on the handed-down socket: %w", err)
	}
	return l, nil
}

// Conn is the one connection that the service manager has started this process for
// (Accept=yes).
func Conn(getenv func(string) string, pid int) (net.Conn, error) {
	file, err := handedDown(getenv, pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("systemd: handed-down connection: %w", err)
	}
	return c, nil
}

func handedDown(getenv func(string) string, pid int) (*os.File, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(pid) || getenv("LISTEN_FDS") != "1" {
		return nil, ErrNoSocket
	}
	unix.CloseOnExec(firstSocket)
	return os.NewFile(firstSocket, "socket"), nil
}
