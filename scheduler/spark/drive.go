package spark

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cgroup"
	"headroom/scheduler/sparkapp"
)

const (
	// exitSize is what exit.json takes of the disk, put aside before the driver starts: the
	// disk may be full when it ends.
	exitSize = 4 << 10
	// lockFd is the descriptor of the lock that the engine hands down.
	lockFd = 3
	// markTries and markPause bound the search for what the driver has left.
	markTries = 100
	markPause = 50 * time.Millisecond
	// outputWait is how long a process that has left the driver's group may keep its output open.
	outputWait = time.Second
)

// Drive is the supervisor of the run in this folder: it starts the driver, waits for it,
// and writes down how it ended. SIGTERM ends the driver: by SIGTERM, and after the time
// that the run's order names by SIGKILL. It returns once nothing of the driver is left on
// this machine; the driver does not outlive it either. An error says that nothing was started.
func Drive(folder string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT) // a terminal's are not for a driver
	unix.CloseOnExec(lockFd)                      // the driver must not hold the lock
	var o order
	if err := readJSON(filepath.Join(folder, runFile), &o); err != nil {
		return err
	}
	if len(o.Argv) == 0 {
		return fmt.Errorf("spark: %s names no program", filepath.Join(folder, runFile))
	}
	end, err := reserveExit(folder)
	if err != nil {
		return err
	}
	x := supervise(folder, o, told)
	return end(x)
}

// reserveExit puts room for exit.json aside and returns what fills it.
func reserveExit(folder string) (write func(exit) error, err error) {
	part := filepath.Join(folder, exitPart)
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spark: reserve space for the exit status: %w", err)
	}
	blank := slices.Repeat([]byte{' '}, exitSize)
	if _, err := f.Write(blank); err != nil {
		return nil, fmt.Errorf("spark: reserve space for the exit status: %w", errors.Join(err, f.Close(), os.Remove(part)))
	}
	if err := f.Sync(); err != nil {
		return nil, fmt.Errorf("spark: reserve space for the exit status: %w", errors.Join(err, f.Close(), os.Remove(part)))
	}
	return func(x exit) error {
		data, err := json.Marshal(x)
		if err != nil || len(data) > exitSize {
			return errors.Join(err, f.Close(), fmt.Errorf("spark: an exit status of %d bytes", len(data)))
		}
		_, err = f.WriteAt(data, 0)
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(part, filepath.Join(folder, exitFile))
		}
		if err == nil {
			err = syncDir(folder)
		}
		return err
	}, nil
}

func syncDir(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// supervise runs the driver to its end. The calling goroutine keeps its thread: the
// kernel kills the driver when the thread that started it ends.
func supervise(folder string, o order, told <-chan os.Signal) exit {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, outputs, err := o.driver(folder)
	defer func() {
		for _, f := range outputs {
			_ = f.Close()
		}
	}()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = noteDriver(folder, cmd.Process.Pid)
	}
	if err != nil {
		if cmd != nil && cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}
		return exit{Code: -1, Error: sparkapp.Clip("the driver was not started: " + err.Error()), At: time.Now()}
	}
	killed := make(chan bool)
	over := make(chan struct{})
	go func() { killed <- o.endOn(told, over, cmd.Process.Pid) }()
	await(cmd.Process.Pid)
	close(over)
	x := exit{Killed: <-killed, At: time.Now()}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ESRCH: no process is left
	_ = cmd.Wait()
	x.Code, x.Signal = status(cmd.ProcessState)
	for range markTries {
		if cgroup.EndMarked(o.Mark) == 0 {
			break
		}
		time.Sleep(markPause)
	}
	return x
}

// driver returns the driver's process before its start, and the outputs to close after its end.
func (o order) driver(folder string) (*exec.Cmd, []io.Closer, error) {
	cmd := exec.Command(o.Argv[0], o.Argv[1:]...) //nolint:noctx // it lives until it ends or is told to; the job's owner names it
	cmd.Env = slices.Concat(os.Environ(), o.Env, []string{o.Mark})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = outputWait
	var outputs []io.Closer
	for name, to := range map[string]*io.Writer{stdoutFile: &cmd.Stdout, stderrFile: &cmd.Stderr} {
		out, err := newOutput(folder, name)
		if err != nil {
			return nil, outputs, err
		}
		outputs, *to = append(outputs, out), out
	}
	return cmd, outputs, nil
}

func noteDriver(folder string, pid int) error {
	self, err := started(os.Getpid())
	if err != nil {
		return err
	}
	child, err := started(pid)
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(folder, driverFile), driver{self, child, time.Now()})
}

// endOn ends the driver when it is told to, and reports whether it was. The driver's id is
// nobody else's before over is closed.
func (o order) endOn(told <-chan os.Signal, over <-chan struct{}, pid int) bool {
	select {
	case <-over:
		return false
	case <-told:
	}
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	select {
	case <-over:
	case <-time.After(o.KillAfter):
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		<-over
	}
	return true
}

// await waits until the process has ended and leaves its id taken.
func await(pid int) {
	var info unix.Siginfo
	for {
		if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func status(state *os.ProcessState) (code, signal int) {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), int(w.Signal())
	}
	return state.ExitCode(), 0
}
