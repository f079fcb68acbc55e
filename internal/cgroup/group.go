package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	headroomv1 "headroom/api/headroom/v1"
)

const (
	// endTries and endPause bound the wait for killed processes. One that waits for a disk or a file server ends later.
	endTries = 200
	endPause = 10 * time.Millisecond
)

// ErrAlive is returned by End if the kernel has not ended all killed processes yet.
var ErrAlive = errors.New("killed processes have not ended")

// Group is a program with all that it starts.
type Group struct {
	room       *Room
	name, mark string
	dir        string // empty without a cgroup
	pid        int    // of its first process
}

// Start starts a command in the group, its first and only one. One is started at a time, and nothing is swept then.
func (g *Group) Start(cmd *exec.Cmd) (err error) {
	if g.room == nil {
		return cmd.Start()
	}
	g.room.mu.Lock()
	defer g.room.mu.Unlock()
	switch {
	case g.dir == "":
		cmd.Env = append(cmd.Environ(), g.mark)
	case g.room.clones:
		folder, err := os.Open(g.dir)
		if err != nil {
			return err
		}
		defer func() { _ = folder.Close() }()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	default: // the child begins where this process is
		if err := put(g.dir, "cgroup.procs", "0"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, put(g.room.own, "cgroup.procs", "0")) }()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.pid = cmd.Process.Pid
	return nil
}

// Kill kills all processes of the group. It does not wait for their end.
func (g *Group) Kill() {
	switch {
	case g.room == nil:
	case g.dir == "":
		g.room.mu.Lock()
		g.killFound()
		g.room.mu.Unlock()
	default:
		kill(g.dir)
	}
}

// Freeze stops all processes of the group, or lets them continue.
func (g *Group) Freeze(on bool) error {
	if g.dir == "" {
		return fmt.Errorf("freeze a task: %w", ErrNone)
	}
	return put(g.dir, "cgroup.freeze", map[bool]string{true: "1", false: "0"}[on])
}

// Use returns what the group uses, nil while that is unknown.
func (g *Group) Use() *headroomv1.TaskUse {
	used, err := ParseUsage(read(g.dir, "cpu.stat"))
	if g.dir == "" || err != nil {
		return nil
	}
	memory, err := strconv.ParseUint(strings.TrimSpace(read(g.dir, "memory.current")), 10, 64)
	if err != nil { // version 1 has the controller
		memory = resident(pidsOf(below(g.dir)))
	}
	return &headroomv1.TaskUse{CpuSeconds: used.Seconds(), MemoryBytes: memory, Frozen: event(g.dir, "frozen")}
}

// End kills what is left of the group, waits until it has ended, and removes its cgroup. Its command was waited for.
func (g *Group) End() (u *headroomv1.TaskUse, err error) {
	r := g.room
	switch {
	case r == nil:
		return nil, nil //nolint:nilnil // nothing is known, and nothing is wrong
	case g.dir == "":
		err = g.endFound()
	default:
		kill(g.dir)
		err = await(g.dir)
		u = g.Use()
		err = errors.Join(err, remove(g.dir))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, g.name)
	r.sweep()
	return u, err
}

// kill kills all processes of a cgroup and of those below it.
func kill(dir string) {
	if put(dir, "cgroup.kill", "1") == nil {
		return
	}
	for _, pid := range pidsOf(below(dir)) { // Linux before 5.14; await repeats it
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// await waits until a cgroup has no process.
func await(dir string) error {
	for range endTries {
		if !event(dir, "populated") {
			return nil
		}
		time.Sleep(endPause)
		kill(dir)
	}
	return fmt.Errorf("%d processes of %s: %w", len(pidsOf(below(dir))), dir, ErrAlive)
}

// remove removes a cgroup and those that its processes made below it.
func remove(dir string) error {
	for _, d := range slices.Backward(below(dir)) {
		if err := os.Remove(d); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// below returns a cgroup and those below it, outer ones first.
func below(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return nil // one that is gone meanwhile has no process
	})
	return all
}

// pidsOf returns the processes of cgroups. One that cannot be seen from here is 0 there.
func pidsOf(dirs []string) (pids []int) {
	for _, d := range dirs {
		for field := range strings.FieldsSeq(read(d, "cgroup.procs")) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// event returns a value of cgroup.events; that of a cgroup that is gone is false.
func event(dir, name string) bool { return strings.Contains(read(dir, "cgroup.events"), name+" 1") }

// read returns a control file, empty if it is not there.
func read(dir, file string) string {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	return string(text)
}

// put writes a control file, which is there already.
func put(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
