package nspawn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	headroomv1 "headroom/api/headroom/v1"
)

// spied begins each line about something that a spy could get at.
const spied = "GOT "

// spy tries to get at everything that a file lists, a line each: "file PATH",
// "folder PATH", "socket PATH" or "tcp ADDRESS", and at the environments of other users'
// processes. It says what it could get, and who it is.
func spy(list string, out io.Writer) error {
	data, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		kind, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		if reach(kind, what) == nil {
			_, _ = fmt.Fprintln(out, spied+kind, what)
		}
	}
	if n := environments(); n > 0 {
		_, _ = fmt.Fprintln(out, spied+"environments of others")
	}
	groups, _ := os.Getgroups()
	_, err = fmt.Fprintln(out, "uid", os.Getuid(), "groups", groups)
	return err
}

func reach(kind, what string) error {
	switch kind {
	case "file":
		f, err := os.Open(what)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			err = errors.Join(err, f.Close())
		}
		return err
	case "folder":
		_, err := os.ReadDir(what)
		return err
	case "socket", "tcp":
		if kind == "socket" {
			kind = "unix"
		}
		c, err := net.DialTimeout(kind, what, patience)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	return fmt.Errorf("no target %q", kind)
}

// environments counts the readable environments of other users' processes.
func environments() (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		info, err := os.Stat(filepath.Dir(path))
		if err != nil {
			continue
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if data, err := os.ReadFile(path); ok && int(st.Uid) != os.Getuid() && err == nil && len(data) > 0 {
			n++
		}
	}
	return n
}

// handTask hands a task to a user's socket, as the worker does, and says how it ended:
// USER OUTPUT PROGRAM [ARG...].
func handTask(args []string, out io.Writer) error {
	c, err := net.DialTimeout("unix", "/run/headroom-task/"+args[0]+".sock", patience)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	body, err := proto.Marshal(&headroomv1.Task{Ref: &headroomv1.TaskRef{Job: "j", Phase: "map", Attempt: 1}, Argv: args[2:], Output: args[1], Dir: "/"})
	if err != nil {
		return err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	if body, err = io.ReadAll(io.LimitReader(c, int64(binary.BigEndian.Uint32(head[:])))); err != nil {
		return err
	}
	var r headroomv1.TaskResult
	if err := proto.Unmarshal(body, &r); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "exit", r.GetExitCode(), r.GetError())
	return err
}

// got are the lines of a spy about what it could get.
func got(said string) []string {
	return slices.DeleteFunc(strings.Split(said, "\n"), func(line string) bool { return !strings.HasPrefix(line, spied) })
}

// uidOf is who a spy says it is; -1 when it does not.
func uidOf(said string) int {
	for line := range strings.Lines(said) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "uid" {
			if n, err := strconv.Atoi(f[1]); err == nil {
				return n
			}
		}
	}
	return -1
}
