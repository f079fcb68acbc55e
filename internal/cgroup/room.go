package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
)

const (
	// leafName is the cgroup that the process moves itself to where its own is delegated: a cgroup with processes may
	// not pass controllers on.
	leafName = "headroom"
	// baseName begins the cgroup that holds the groups where nothing is delegated.
	baseName = "headroom-tasks-"
)

// Options are those of Open.
type Options struct {
	// Delegated says that this process is the main one of a unit with Delegate=yes: all of its cgroup is its own.
	Delegated bool
	// Record is the file that names the cgroups for the next Open after a kill -9; unused if they are delegated.
	Record string
}

// Room makes the groups of one process. A nil Room makes groups that hold nothing together.
type Room struct {
	o      Options
	clones bool // clone3 is permitted

	mu    sync.Mutex
	none  error    // why the newest group has no cgroup
	dir   string   // holds the groups; empty without cgroups
	own   string   // this process's cgroup
	made  []string // for the record
	file  *os.File // the record, nil for none
	live  map[string]*Group
	count int
}

// Open ends what an earlier process left in the cgroups of the record, and returns a room, which works without cgroups
// too. An error names what could not be ended.
func Open(o Options) (*Room, error) {
	r := &Room{o: o, live: make(map[string]*Group)}
	// The seccomp filters of systemd refuse clone3. A call without arguments is never carried out.
	_, _, refused := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	r.clones = refused == unix.EINVAL
	left := r.lock()
	if left == nil {
		left = r.clean()
	}
	if err := r.settle(); err != nil {
		r.dir = ""
		r.without(err)
	}
	return r, left
}

// Clean ends what a process left in the cgroups of its record.
func Clean(record string) error {
	r := &Room{o: Options{Record: record}}
	if err := r.lock(); err != nil {
		return err
	}
	return r.Close()
}

// lock reads the record and keeps other processes from it until Close, or until the kernel ends this one: what is in the
// cgroups of a living process is not left over.
func (r *Room) lock() error {
	if r.o.Record == "" || r.o.Delegated {
		return nil
	}
	f, err := os.OpenFile(r.o.Record, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err := errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)); err != nil {
		return errors.Join(fmt.Errorf("%s, which another process may use: %w", r.o.Record, err), f.Close())
	}
	r.file, r.made = f, strings.Split(string(text), "\n")
	return nil
}

// without lets this process adopt orphans: a group has no cgroup.
func (r *Room) without(err error) {
	r.none = errors.Join(err, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// Can returns what can be done with its groups, and why they have no cgroups.
func (r *Room) Can() *headroomv1.TaskControls {
	if r == nil {
		return &headroomv1.TaskControls{Trouble: "not asked for"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.none != nil {
		return &headroomv1.TaskControls{Trouble: strings.ToValidUTF8(r.none.Error(), "?")}
	}
	has := func(file string) bool { return unix.Access(filepath.Join(r.dir, file), unix.F_OK) == nil }
	return &headroomv1.TaskControls{Kill: has("cgroup.kill"), Freeze: has("cgroup.freeze"), CpuTime: has("cpu.stat"), Memory: true}
}

// place returns this process's cgroup.
func place() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return Find(string(mounts), string(own))
}

// settle makes the place of the groups.
func (r *Room) settle() error {
	own, err := place()
	if err != nil {
		return err
	}
	if r.o.Delegated {
		err = r.move(strings.TrimSuffix(own, "/"+leafName))
	} else {
		err = r.add(own)
	}
	if err == nil {
		_ = put(r.dir, "cgroup.subtree_control", "+memory") // else the memory of its processes is added
	}
	return err
}

// add makes a cgroup for the groups below this process's.
func (r *Room) add(own string) error {
	if !r.clones {
		return fmt.Errorf("clone3 is not permitted: %w", errors.ErrUnsupported)
	}
	if err := unix.Access(filepath.Join(own, "cgroup.procs"), unix.W_OK); err != nil { // the kernel asks for it too
		return fmt.Errorf("start processes below cgroup %s: %w", own, err)
	}
	r.own, r.dir = own, filepath.Join(own, baseName+rand.Text()[:8])
	r.made = append(r.made, r.dir)
	return errors.Join(r.record(), os.Mkdir(r.dir, 0o755))
}

// move moves this process to its leaf. That is only done in the cgroup of a unit: all others may be shared.
func (r *Room) move(unit string) error {
	if !strings.HasSuffix(unit, ".service") {
		return fmt.Errorf("cgroup %s is not that of a service: %w", unit, errors.ErrUnsupported)
	}
	leaf := filepath.Join(unit, leafName)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := put(leaf, "cgroup.procs", "0"); err != nil {
		return err
	}
	r.own, r.dir = leaf, unit
	r.sweep()
	return nil
}

// New returns a group without a process, with a cgroup if one can be made.
func (r *Room) New() *Group {
	if r == nil {
		return &Group{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	g := &Group{room: r, name: "task-" + strconv.Itoa(r.count), mark: "HEADROOM_ATTEMPT=" + rand.Text()}
	r.live[g.name] = g
	if r.dir == "" {
		return g
	}
	r.none = nil
	if own, err := place(); !r.o.Delegated && err == nil && own != r.own { // what bounds this process bounds its tasks
		r.none = r.settle()
	}
	dir := filepath.Join(r.dir, g.name)
	if err := errors.Join(r.none, os.Mkdir(dir, 0o755)); err != nil {
		r.without(err)
		return g
	}
	g.dir = dir
	return g
}

// sweep kills what is in no live group, and removes the cgroups of ended ones. What does not end at once is found
// again by the next call.
func (r *Room) sweep() {
	if r.dir == "" {
		return
	}
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		if dir := filepath.Join(r.dir, e.Name()); e.IsDir() && dir != r.own && r.live[e.Name()] == nil {
			kill(dir)
			_ = remove(dir)
		}
	}
	for _, g := range r.live {
		if g.dir == "" { // its processes are beside this one
			return
		}
	}
	if r.o.Delegated { // then no other process belongs here
		for _, pid := range pidsOf([]string{r.dir, r.own}) {
			if pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// Close removes what the room has made. Its groups have ended.
func (r *Room) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep()
	err := r.clean()
	if r.file != nil {
		err = errors.Join(err, r.file.Close())
	}
	return err
}

// clean ends and removes the cgroups of the record. Those that could not be ended stay in it.
func (r *Room) clean() (err error) {
	r.made = slices.DeleteFunc(r.made, func(dir string) bool {
		if !strings.HasPrefix(filepath.Base(dir), baseName) { // such names are random: no other cgroup has this one
			return true
		}
		kill(dir)
		e := errors.Join(await(dir), remove(dir))
		err = errors.Join(err, e)
		return e == nil
	})
	return errors.Join(err, r.record())
}

// record writes the record. After a power cut, which may tear it, no cgroup is left.
func (r *Room) record() error {
	if r.file == nil {
		return nil
	}
	if err := r.file.Truncate(0); err != nil {
		return err
	}
	_, err := r.file.WriteAt([]byte(strings.Join(r.made, "\n")), 0)
	return err
}
