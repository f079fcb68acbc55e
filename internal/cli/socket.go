package cli

import (
	"errors"
	"io/fs"
	"os"
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
