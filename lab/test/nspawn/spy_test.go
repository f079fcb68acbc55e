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
// processes. It prints what it could get, and who it is.
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

// runner is a connection to the socket of a user's tasks, as the worker has it.
type runner struct{ net.Conn }

func (c runner) send(m proto.Message) error {
	body, err := proto.Marshal(m)
	if err == nil {
		_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	return err
}

func (c runner) receive() (*headroomv1.TaskResult, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(c, int64(binary.BigEndian.Uint32(head[:]))))
	if err != nil {
		return nil, err
	}
	var r headroomv1.TaskResult
	return &r, proto.Unmarshal(body, &r)
}

// handOver hands a task to a user's socket: USER OUTPUT PROGRAM [ARG...].
func handOver(args []string, controlled bool) (runner, error) {
	c, err := net.DialTimeout("unix", "/run/headroom-task/"+args[0]+".sock", patience)
	if err != nil {
		return runner{}, err
	}
	return runner{c}, runner{c}.send(&headroomv1.Task{
		Ref: &headroomv1.TaskRef{Job: "j", Phase: "map", Attempt: 1}, Argv: args[2:], Output: args[1], Dir: "/", Controlled: controlled,
	})
}

// handTask hands a task over and prints how it ended.
func handTask(args []string, out io.Writer) error {
	c, err := handOver(args, false)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	r, err := c.receive()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "exit", r.GetExitCode(), r.GetError())
	return err
}

// orderTask hands a busy task over, prints what its runner can do, freezes it and lets it continue, and goes away.
func orderTask(args []string, out io.Writer) error {
	c, err := handOver(args, true)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	r, err := c.receive()
	if err != nil {
		return err
	}
	controls := r.GetState().GetControls()
	_, _ = fmt.Fprintln(out, "controls", controls.GetKill(), controls.GetFreeze(), controls.GetCpuTime(), controls.GetMemory(), controls.GetTrouble())
	var last *headroomv1.TaskUse
	until := func(order string, ok func(u *headroomv1.TaskUse) bool) error {
		for range patience / glance {
			if err := c.send(&headroomv1.TaskOrder{Order: order}); err != nil {
				return err
			}
			if r, err = c.receive(); err != nil {
				return err
			}
			if last = r.GetState().GetUse(); ok(last) {
				_, err := fmt.Fprintln(out, order)
				return err
			}
			time.Sleep(glance)
		}
		return fmt.Errorf("%s: %v", order, r)
	}
	used := func(u *headroomv1.TaskUse) bool { return u.GetCpuSeconds() > 0.2 && u.GetMemoryBytes() > 0 }
	if err := errors.Join(until("use", used), until("freeze", (*headroomv1.TaskUse).GetFrozen)); err != nil {
		return err
	}
	stopped := last.GetCpuSeconds()
	return until("thaw", func(u *headroomv1.TaskUse) bool { return !u.GetFrozen() && u.GetCpuSeconds() > stopped })
}

// got are the lines of a spy about what it could get.
func got(said string) []string {
	return slices.DeleteFunc(strings.Split(said, "\n"), func(line string) bool { return !strings.HasPrefix(line, spied) })
}

// uidOf is the user ID that a spy prints; -1 when it prints none.
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
