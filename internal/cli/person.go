package cli

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"golang.org/x/sys/unix"
)

// Actor returns the user who runs the command, for audit logs: the user's name, or
// "uid 1000" where it has none.
func Actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return strings.ToValidUTF8(u.Username, "?")
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	if w, ok := stream.(io.Writer); ok {
		stream = Raw(w)
	}
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
