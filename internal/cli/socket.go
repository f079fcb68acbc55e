package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
)

// SocketExists returns an error of exit code 3 where there is no unix socket at path.
func SocketExists(path string) error {
	_, err := os.Stat(path)
	if err == nil {
		return nil
	}
	cause := err
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		cause = e.Err
	}
	return &Error{
		Code: "unreachable", Exit: ExitUnreachable, Err: err, Message: "cannot reach " + path + ": " + cause.Error(),
		Hint: "check that the server is running and that --socket names its socket, or use --addr",
	}
}

// HasPort returns a usage error if an address has no port; flag names where it was given, port is the usual one.
func HasPort(flag, addr, port string) error {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return nil
	}
	e := Usage("%s %q: the port is missing", flag, addr)
	e.Hint = "did you mean " + net.JoinHostPort(strings.Trim(addr, "[]"), port) + "?"
	return e
}
