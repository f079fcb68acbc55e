package cgroup

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"headroom/internal/durable"
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

// Abilities are what can be done with all processes of a group at once.
type Abilities struct {
	Kill, Freeze, CPU, Memory bool
}

// Room makes the groups of one process. A nil Room makes groups that hold nothing together.
type Room struct {
	// Can is what its groups can do; nothing without cgroups.
	Can Abilities

	o      Options
	clones bool     // clone3 is permitted
	dir    string   // holds the groups; empty without cgroups
	own    string   // this process's cgroup
	made   []string // for the record

	mu    sync.Mutex
	live  map[string]*Group
	count int
}

// Open ends what an earlier process left in the cgroups of the record, and returns a room. If Can is empty, the error is
// the reason why its groups have no cgroups; the room works without. Otherwise it names what could not be ended.
func Open(o Options) (*Room, error) {
	r := &Room{o: o, live: make(map[string]*Group)}
	// The seccomp filters of systemd refuse clone3. A call without arguments is never carried out.
	_, _, refused := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	r.clones = refused == unix.EINVAL
	if text, err := os.ReadFile(o.Record); err == nil {
		r.made = strings.Split(string(text), "\n")
	}
	left := r.clean()
	err := r.settle()
	if err == nil {
		err = r.probe()
	}
	if err != nil {
		r.dir = ""
		err = errors.Join(err, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	}
	return r, errors.Join(err, left)
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

// probe finds out what the groups can do.
func (r *Room) probe() error {
	dir := filepath.Join(r.dir, "probe")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	has := func(file string) bool { return unix.Access(filepath.Join(dir, file), unix.F_OK) == nil }
	r.Can = Abilities{Kill: has("cgroup.kill"), Freeze: has("cgroup.freeze"), CPU: has("cpu.stat"), Memory: true}
	return os.Remove(dir)
}

// New returns a group without a process.
func (r *Room) New() (*Group, error) {
	if r == nil {
		return &Group{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	g := &Group{room: r, name: "task-" + strconv.Itoa(r.count), mark: "HEADROOM_ATTEMPT=" + rand.Text()}
	if r.dir != "" {
		if own, err := place(); !r.o.Delegated && err == nil && own != r.own { // what bounds this process bounds its tasks
			if err := r.settle(); err != nil {
				return nil, err
			}
		}
		g.dir = filepath.Join(r.dir, g.name)
		if err := os.Mkdir(g.dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the cgroup of a task: %w", err)
		}
	}
	r.live[g.name] = g
	return g, nil
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
	return r.clean()
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

func (r *Room) record() error {
	if r.o.Record == "" || r.o.Delegated {
		return nil
	}
	return durable.Replace(durable.OS{}, r.o.Record, []byte(strings.Join(r.made, "\n")), 0o600) // no cgroup survives a power cut
}
