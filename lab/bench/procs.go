package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/pause"
)

// stopGrace is how long a program may take to end before its group is killed.
const stopGrace = 8 * time.Second

// program is a process with a group of its own, so that an interrupt of the
// terminal reaches only the bench, which ends it in order.
type program struct {
	name string
	argv []string
	env  []string // beside our own
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// launch starts a program with its output in dir/NAME.log.
func launch(dir, name string, argv ...string) (*program, error) {
	p := &program{name: name, argv: argv, log: filepath.Join(dir, name+".log")}
	return p, p.start()
}

// start runs the program (again).
func (p *program) start() error {
	out, err := os.OpenFile(p.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("bench: start %s: %w", p.name, err)
	}
	defer func() { _ = out.Close() }()
	p.done = make(chan struct{})
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...) //nolint:noctx // our own programs; ended in order by stop, not by a context's kill
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("bench: start %s: %w", p.name, err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // how it ended is for its log
		close(done)
	}(p.cmd, p.done)
	return nil
}

// kill ends the program with SIGKILL and waits for it.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the program to end and waits; what is left of its group is killed.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	t := time.NewTimer(stopGrace)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
	}
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
}

// stopAll stops programs side by side.
func stopAll(programs []*program) {
	var all sync.WaitGroup
	for _, p := range programs {
		all.Go(p.stop)
	}
	all.Wait()
}

// pollEvery is how often something that is awaited is looked at.
const pollEvery = 50 * time.Millisecond

// await polls until is answers true; what names it in the error.
func await(ctx context.Context, most time.Duration, what string, is func() bool) error {
	for end := time.Now().Add(most); !is(); {
		if time.Now().After(end) {
			return fmt.Errorf("bench: %s: %w after %v", what, errNotYet, most)
		}
		if !pause.For(ctx, pollEvery) {
			return ctx.Err()
		}
	}
	return nil
}
