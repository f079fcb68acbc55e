package emulator

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/lab/emulator/throttle"
)

// role is what a direct child of `powerlab node` is.
type role int

const (
	// roleAgent is powerd: neither it nor what is below it is slowed.
	roleAgent role = iota
	// roleWorker is the scheduler's worker: it is not slowed, what it starts is.
	roleWorker
	// roleProgram was started by `powerlab node exec`: slowed as a whole.
	roleProgram
)

// agentSlack is the timer slack that powerd's unit gives it.
const agentSlack = time.Millisecond

// family tracks the node's processes: the children that were started here, and
// the orphans that came to us as the node's init. All starts go through one
// thread, so that the kernel ends the children if this process is killed.
type family struct {
	changed chan struct{} // a program was started: look at once
	starts  chan func()
	done    sync.WaitGroup

	mu       sync.Mutex // held over fork and registration, and over a scan
	children map[int]role
}

func newFamily() *family {
	f := &family{changed: make(chan struct{}, 1), starts: make(chan func()), children: make(map[int]role)}
	f.done.Go(func() {
		// PR_SET_PDEATHSIG counts the death of the thread that forked.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for start := range f.starts {
			start()
		}
	})
	return f
}

func (f *family) close() {
	close(f.starts)
	f.done.Wait()
}

// start starts cmd as a child of the given role that does not outlive us.
func (f *family) start(cmd *exec.Cmd, as role) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	result := make(chan error)
	f.starts <- func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if as == roleAgent {
			// The child inherits it from the thread that forks.
			_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(agentSlack.Nanoseconds()), 0, 0, 0)
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: back to the thread's own
		}
		err := cmd.Start()
		if err == nil {
			f.children[cmd.Process.Pid] = as
		}
		result <- err
	}
	if err := <-result; err != nil {
		return fmt.Errorf("emulator: start %s: %w", cmd.Path, err)
	}
	if as == roleProgram {
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
	return nil
}

// wait waits for a child that start started and forgets it.
func (f *family) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.children, cmd.Process.Pid)
	return err
}

// live are the direct children that run, by role; ended orphans are reaped, and others count as
// programs.
func (f *family) live() map[int]role {
	f.mu.Lock()
	defer f.mu.Unlock()
	live := make(map[int]role)
	for _, pid := range throttle.Children(os.Getpid()) {
		if as, started := f.children[pid]; started {
			live[pid] = as
		} else if !reaped(pid) {
			live[pid] = roleProgram
		}
	}
	return live
}

// scan returns the processes whose whole families must be slowed.
func (f *family) scan() []int {
	var roots []int
	for pid, as := range f.live() {
		switch as {
		case roleAgent:
		case roleProgram:
			roots = append(roots, pid)
		case roleWorker:
			roots = append(roots, throttle.Children(pid)...)
		}
	}
	return roots
}

// reaped takes an orphan's exit status if it has ended.
func reaped(pid int) bool {
	got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid || err != nil
}

// end kills every process that is left below us, and theirs, until none is;
// it returns how many it could not end within 5 s.
func (f *family) end() int {
	left := f.live()
	for range 250 {
		for _, pid := range throttle.Descendants(slices.Collect(maps.Keys(left))) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
		left = f.live()
	}
	return len(left)
}
