package demo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cli"
)

// stopGrace is how long a program may take to stop before it is killed: a node
// stops its worker first, then its powerd.
const stopGrace = 6 * time.Second

// program is one process of the cluster, in a process group of its own so that
// an interrupt of the terminal reaches only the demo.
type program struct {
	name string
	cmd  *exec.Cmd
	log  string
	// meant: we ended it, its end is no news.
	meant atomic.Bool
	done  chan struct{} // closed when it has ended
}

// pid is the process id, which is also that of its group.
func (p *program) pid() int { return p.cmd.Process.Pid }

// kill ends the program the hard way and waits for it.
func (p *program) kill() {
	p.meant.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the program to end, kills its whole group when it does not, and
// waits for it.
func (p *program) stop() {
	p.meant.Store(true)
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = unix.Kill(-p.pid(), unix.SIGKILL) // what is left of its group, if anything is
}

// fleet starts the programs and knows them. All starts go through one thread,
// so that the kernel ends the programs when the demo itself is killed.
type fleet struct {
	logs   string
	detach bool // --keep: the programs outlive the demo
	starts chan func()
	gone   sync.WaitGroup // the starting thread
	ended  chan error     // a program that ended although nobody ended it

	mu       sync.Mutex
	programs []*program
}

func newFleet(logs string, detach bool) *fleet {
	f := &fleet{logs: logs, detach: detach, starts: make(chan func()), ended: make(chan error, 1)}
	f.gone.Go(func() {
		// PR_SET_PDEATHSIG counts the death of the thread that forked.
		runtime.LockOSThread()
		for start := range f.starts {
			start()
		}
	})
	return f
}

// close ends the starting thread; with the last program that is not detached.
func (f *fleet) close() {
	close(f.starts)
	f.gone.Wait()
}

// start runs a program, its output in logs/NAME.log.
func (f *fleet) start(name string, argv ...string) (*program, error) {
	p := &program{name: name, log: filepath.Join(f.logs, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", name, err)
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:noctx // our own programs; ended in order by stop, not by a context's kill
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if f.detach {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	started := make(chan error)
	f.starts <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", name, err)
	}
	f.mu.Lock()
	f.programs = append(f.programs, p)
	f.mu.Unlock()
	go f.await(p)
	return p, nil
}

// await reaps the program and tells when its end was not meant.
func (f *fleet) await(p *program) {
	err := p.cmd.Wait()
	close(p.done)
	if p.meant.Load() {
		return
	}
	select {
	case f.ended <- &cli.Error{
		Code: "ended", Exit: cli.ExitFailed, Err: errors.Join(ErrEnded, err),
		Message: fmt.Sprintf("%s (process %d) ended by itself, with %v: %s", p.name, p.pid(), p.cmd.ProcessState, lastLine(p.log)),
		Hint:    "its log is " + p.log,
	}:
	default:
	}
}

// lastLine is the end of a log, for whoever has to find out what happened.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "its log cannot be read"
	}
	text := strings.TrimSpace(string(data))
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// stopAll stops the named programs at once and waits for all of them.
func (f *fleet) stopAll(which func(name string) bool) {
	f.mu.Lock()
	programs := slices.Clone(f.programs)
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range programs {
		if which(p.name) {
			all.Go(p.stop)
		}
	}
	all.Wait()
}

// running are the programs that have not ended.
func (f *fleet) running() []*program {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.programs), func(p *program) bool {
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
}
