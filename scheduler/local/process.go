package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cgroup"
	"headroom/scheduler/jobdir"
)

const (
	// tailMax is how much of standard error is kept as the cause of a failure.
	tailMax = 2 << 10
	// logMax is how much of standard error an attempt's log keeps of the beginning, beside the last tailMax bytes.
	logMax = 64 << 10
	// pipeWait is how long a process that left its group may keep standard error open.
	pipeWait = time.Second
	// exitNotStarted is the exit code of a task that never ran, or was killed.
	exitNotStarted = -1
)

// Stopped is the error of a task that was killed by the scheduler or because the worker ended. It is no failure of the
// task.
const Stopped = "stopped"

// NoSlot is the error of a task that was not started because all slots of its worker are used. It is no failure of the
// task.
const NoSlot = "no free slot"

var errStopped = errors.New(Stopped)

// Failure returns the cause in words, and "" for a successful task.
func Failure(r *headroomv1.TaskResult) string {
	switch {
	case r.GetError() != "":
		return r.GetError()
	case r.GetExitCode() != 0:
		return fmt.Sprintf("exit status %d", r.GetExitCode())
	default:
		return ""
	}
}

// Partial returns the name of an unfinished output: in the folder of the final one, so that the rename is atomic, and
// different for each attempt, so that two attempts never write into one file.
func Partial(output string, attempt uint32) string {
	return filepath.Join(filepath.Dir(output), fmt.Sprintf(".%s.%08x.part", filepath.Base(output), attempt))
}

// RunTask runs one task to its end in this process, without a worker, and returns its result. The task's own
// environment is added to env.
func RunTask(ctx context.Context, t *headroomv1.Task, env []string) *headroomv1.TaskResult {
	return run(ctx, (*cgroup.Room)(nil).New(), t, append(slices.Clone(env), t.GetEnv()...))
}

// run runs one task to its end and returns its result. When ctx ends the task is killed with all of its group. The
// calling goroutine is locked to its thread: the kernel kills the task when the thread that started it ends, so the
// thread must not end before.
func run(ctx context.Context, g *cgroup.Group, t *headroomv1.Task, env []string) *headroomv1.TaskResult {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	p := &process{group: g, task: t, env: env, partial: Partial(t.GetOutput(), t.GetRef().GetAttempt())}
	if t.GetOutput() != "" {
		p.stderr.path = jobdir.LogName(t.GetOutput(), t.GetRef().GetAttempt())
	}
	err := p.run(ctx)
	p.stderr.close()
	if err != nil {
		err = errors.Join(err, jobdir.IgnoreMissing(os.Remove(p.partial)))
	}
	r := &headroomv1.TaskResult{Ref: t.GetRef(), Seconds: time.Since(began).Seconds(), ExitCode: exitNotStarted, Answer: p.answer.data}
	if state := p.state(); state != nil {
		r.ExitCode = int32(state.ExitCode())
		r.CpuSeconds = (state.UserTime() + state.SystemTime()).Seconds()
	}
	if p.used != nil {
		r.CpuSeconds = p.used.GetCpuSeconds()
	}
	switch {
	case errors.Is(err, errStopped):
		r.Error, r.ExitCode = Stopped, exitNotStarted
	case err != nil:
		r.Error = strings.ToValidUTF8(err.Error(), "?")
		if r.GetExitCode() == 0 { // it succeeded, but its output could not be stored
			r.ExitCode = exitNotStarted
		}
	}
	return r
}

// process is one task as a process of this machine.
type process struct {
	group   *cgroup.Group
	used    *headroomv1.TaskUse // at its end, nil while unknown
	task    *headroomv1.Task
	env     []string
	partial string
	cmd     *exec.Cmd
	stderr  journal
	answer  answer // of a task without an output file

	mu     sync.Mutex
	reaped bool // the process id may be reused
	killed bool
}

func (p *process) state() *os.ProcessState {
	if p.cmd == nil {
		return nil
	}
	return p.cmd.ProcessState
}

func (p *process) run(ctx context.Context) error {
	if p.task.GetOutput() == "" {
		err := p.execute(ctx, &p.answer)
		var left error
		p.used, left = p.group.End()
		return errors.Join(err, left)
	}
	out, err := os.Create(p.partial)
	if err != nil {
		_, left := p.group.End()
		return errors.Join(err, left)
	}
	if err := errors.Join(p.execute(ctx, out), out.Close()); err != nil {
		return err
	}
	return p.keep()
}

// execute starts the process and waits for it and all that it has started.
func (p *process) execute(ctx context.Context, out io.Writer) (err error) {
	defer func() {
		var left error
		if p.used, left = p.group.End(); err == nil {
			err = left // it may still write the output
		}
	}()
	argv := p.task.GetArgv()
	if len(argv) == 0 {
		return errors.New("the task has no program")
	}
	p.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	p.cmd.Cancel = p.kill
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = p.task.GetDir(), p.env, &p.stderr
	if !slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, p.partial) }) {
		p.cmd.Stdout = out // otherwise the program writes its output itself
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = pipeWait
	if err := p.group.Start(p.cmd); err != nil {
		return err
	}
	err = p.wait()
	if p.killed {
		return errStopped
	}
	if err != nil {
		return p.cause(err)
	}
	return nil
}

// wait waits until the process has ended, kills the rest of its group, and only then lets the system reuse the process
// id.
func (p *process) wait() error {
	var info unix.Siginfo
	for {
		if err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // ESRCH: no process is left
	p.group.Kill()
	p.reaped = true
	p.mu.Unlock()
	err := p.cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // a process that left the group only held standard error open
	}
	return err
}

// kill ends the process and all that it has started.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	p.killed = true
	p.group.Kill()
	return syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

// cause returns how the process failed, with the end of its output.
func (p *process) cause(err error) error {
	said := strings.TrimSpace(p.stderr.String())
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said)
}

// keep makes the output durable and gives it its final name, unless another attempt of the task was first: then that
// output counts, and this one is removed.
func (p *process) keep() error {
	file, err := os.OpenFile(p.partial, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the task wrote no output: %w", err)
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	err = moveTo(p.partial, p.task.GetOutput())
	if !errors.Is(err, os.ErrExist) {
		return err
	}
	if info, err := os.Lstat(p.task.GetOutput()); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("cannot write the task's output: %s exists and is not a file", p.task.GetOutput())
	}
	return os.Remove(p.partial)
}

// moveTo renames a file to a name that must not exist: of several callers, one succeeds. If the file system cannot do
// that in one step (NFS), a hard link does it.
func moveTo(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return linkTo(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// linkTo is moveTo in two steps. An interruption leaves only the unfinished name.
func linkTo(from, to string) error {
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// journal is the standard error of an attempt: its end is the cause of a failure, and all of it, up to a bound, goes to a file
// beside the output, which people read. An attempt that writes nothing has no file.
type journal struct {
	tail
	path    string // empty: no file
	file    *os.File
	written int // of it in the file
	total   int
}

// Write never fails: a task must not end because its log cannot be kept.
func (j *journal) Write(p []byte) (int, error) {
	if j.path != "" && j.file == nil && j.total == 0 {
		j.file, _ = os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	}
	j.total += len(p)
	if part := p[:min(len(p), logMax-j.written)]; j.file != nil && len(part) > 0 {
		n, _ := j.file.Write(part)
		j.written += n
	}
	return j.tail.Write(p)
}

// close adds the end of what did not fit.
func (j *journal) close() {
	if j.file == nil {
		return
	}
	if left := j.total - j.written; left > 0 {
		end := j.buf[len(j.buf)-min(left, len(j.buf)):]
		_, _ = fmt.Fprintf(j.file, "\n[%d bytes omitted]\n%s", left-len(end), end)
	}
	_ = j.file.Close()
}

// tail keeps the last bytes written to it.
type tail struct {
	buf []byte
}

// Write keeps the end of p and never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-tailMax):]...)
	if len(t.buf) > tailMax {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailMax:]...)
	}
	return len(p), nil
}

// String returns what was kept.
func (t *tail) String() string { return string(t.buf) }
