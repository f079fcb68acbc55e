package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrEnded is the error of a program that exited unexpectedly; the message has the end of its log.
var ErrEnded = errors.New("cluster: process exited unexpectedly")

// Mark is the environment variable that every process of a Group carries.
const Mark = "HEADROOM_GROUP"

// guard ends what carries the mark ($1) once its standard input ends, which the kernel
// sees to when the process that holds the other end is gone. Programs that clean up, such
// as an emulated node, get SIGTERM first.
const guard = `trap '' INT TERM HUP
read -r _
for try in 1 2 3 4 5 6 7 8 9 10; do
	signal=TERM
	[ "$try" -le 5 ] || signal=KILL
	marked=$(grep -lsF "$1" /proc/[0-9]*/environ)
	[ -n "$marked" ] || exit 0
	for file in $marked; do
		pid=${file#/proc/}
		kill -"$signal" "${pid%/environ}" 2>/dev/null
	done
	sleep 1
done`

// How Close looks for what is left.
const (
	endTries = 200
	endPause = 50 * time.Millisecond
	// endCalm is how many looks in a row must find nothing: a container that is just
	// being started has its mark a moment later.
	endCalm = 3
)

// Group is a set of processes that end together: what was started in it and what that
// has started, whatever its session or parent is by now. Its methods may be called from
// any goroutine.
type Group struct {
	mark  string // NAME=VALUE
	logs  string
	guard *exec.Cmd
	hold  io.Closer
	// close is endAll, once.
	close func() error

	mu       sync.Mutex
	programs []*Program
}

// Program is one process that was started in a Group.
type Program struct {
	// Name is the name of the process, Log the file of its output.
	Name, Log string

	cmd  *exec.Cmd
	done chan struct{}
}

// NewGroup makes a group whose programs write their output to files in the folder logs.
// It starts the guard, which Close ends.
func NewGroup(logs string) (*Group, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, fmt.Errorf("cluster: folder for the logs: %w", err)
	}
	g := &Group{mark: Mark + "=" + rand.Text(), logs: logs}
	g.close = sync.OnceValue(g.endAll)
	g.guard = exec.Command("/bin/sh", "-c", guard, "guard", g.mark) //nolint:noctx // it outlives every context; Close ends it
	g.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	hold, err := g.guard.StdinPipe()
	if err == nil {
		g.hold = hold
		err = g.guard.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: start the guard: %w", err)
	}
	return g, nil
}

// Start starts a program with this process's environment and env, its output appended
// to NAME.log. Names of programs that run at once must differ.
func (g *Group) Start(name string, env []string, argv ...string) (*Program, error) {
	p := &Program{Name: name, Log: filepath.Join(g.logs, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cluster: start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:noctx,gosec // it lives until it ends or the group is closed; whoever starts it names it
	p.cmd.Env = slices.Concat(os.Environ(), env, []string{g.mark})
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's interrupt is for us alone
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cluster: start %s: %w", name, err)
	}
	g.mu.Lock()
	g.programs = append(g.programs, p)
	g.mu.Unlock()
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program, which ctx ends too. A bad end is an error with the end of its log.
func (p *Program) Wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("cluster: %s: %w", p.Name, ctx.Err())
	}
	if p.cmd.ProcessState.Success() {
		return nil
	}
	return p.Ended()
}

// Pid is the program's process id.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Kill ends the program, not what it has started, by SIGKILL and waits for its end.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends the program SIGTERM and kills it when it has not ended after grace.
func (p *Program) Stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
	}
}

// Ended is the error of a program that should still run, or nil; it wraps ErrEnded and has
// the end of its log.
func (p *Program) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%w: %s: %v; its log %s ends: %s", ErrEnded, p.Name, p.cmd.ProcessState, p.Log, tail(p.Log))
	default:
		return nil
	}
}

// tailMost bounds what is quoted of a log.
const tailMost = 1500

// tail is the end of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-tailMost):])
}

// Close ends every process that carries the group's mark, and waits until none is left.
// A second call has no effect and returns the same.
func (g *Group) Close() error { return g.close() }

func (g *Group) endAll() error {
	left, calm := 0, 0
	for range endTries {
		left = g.Kill(func(Process) bool { return true })
		if calm++; left > 0 {
			calm = 0
		}
		if calm == endCalm {
			break
		}
		time.Sleep(endPause)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if left > 0 {
		return fmt.Errorf("cluster: %d processes with %s still running", left, g.mark)
	}
	for _, p := range g.programs {
		<-p.done
	}
	_ = g.hold.Close()
	if err := g.guard.Wait(); err != nil {
		return fmt.Errorf("cluster: the guard: %w", err)
	}
	return nil
}

// Process is the kernel's information about a process.
type Process struct {
	argv, env []string
}

// Has reports whether the process has this variable, NAME=VALUE, in its environment.
func (p Process) Has(variable string) bool { return slices.Contains(p.env, variable) }

// Is reports whether the process is the program at this path, called with arg.
func (p Process) Is(program, arg string) bool {
	return len(p.argv) > 0 && p.argv[0] == program && slices.Contains(p.argv, arg)
}

// Called reports whether the process was called with all of these words.
func (p Process) Called(words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(p.argv, w) })
}

// Kill sends SIGKILL to those of the group's processes that which picks, and returns how
// many there were.
func (g *Group) Kill(which func(Process) bool) int {
	return g.signal(which, syscall.SIGKILL)
}

// Count returns the number of the group's processes that the function selects.
func (g *Group) Count(which func(Process) bool) int { return g.signal(which, 0) }

func (g *Group) signal(which func(Process) bool, sig syscall.Signal) (found int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The handle is taken first: what is read next is of that process or of none.
		handle, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		p := Process{argv: words(e.Name(), "cmdline"), env: words(e.Name(), "environ")}
		if p.Has(g.mark) && which(p) {
			found++
			_ = handle.Signal(sig)
		}
		_ = handle.Release()
	}
	return found
}

// words are the strings of one of a process's files in /proc; none where it is gone,
// has ended, or is not ours to read.
func words(pid, file string) []string {
	text, err := os.ReadFile(filepath.Join("/proc", pid, file))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
