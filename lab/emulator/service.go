package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// service keeps one program running, as an init would: what ends is started
// again after a while.
type service struct {
	*machine
	name string
	as   role
	env  []string // beside our own
	argv []string

	pid    atomic.Int64 // 0 while it does not run
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// stopGrace is how long a program may take to stop before it is killed.
const stopGrace = 5 * time.Second

// startServices starts powerd, with the environment that its unit has, and the worker, as far as
// they are configured. It returns when each was tried once.
func (m *machine) startServices() {
	if !m.opts.noPowerd {
		m.powerd = m.start(&service{
			name: "powerd", as: roleAgent, env: []string{"GOMAXPROCS=1"},
			argv: []string{filepath.Join(m.opts.bin, "powerd"), "run", "--config", filepath.Join(m.dir, "powerd.yaml")},
		})
	}
	if !m.opts.noWorker && m.opts.scheduler != "" {
		m.worker = m.start(&service{name: "worker", as: roleWorker, argv: []string{
			filepath.Join(m.opts.bin, "scheduler"), "worker", "--dev", "--node", m.opts.name, "--scheduler", m.opts.scheduler,
			"--slots", strconv.Itoa(m.opts.slots), "--dir", filepath.Join(m.dir, "work"),
		}})
	}
}

func (m *machine) start(s *service) *service {
	s.machine = m
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	started := make(chan struct{})
	s.done.Go(func() { s.keep(ctx, sync.OnceFunc(func() { close(started) })) })
	<-started
	return s
}

// keep runs the program again and again until ctx is done; started is called
// after the first attempt.
func (s *service) keep(ctx context.Context, started func()) {
	for ctx.Err() == nil {
		err := s.once(ctx, started)
		started()
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("process exited; restarting",
			slog.String("process", s.name), slog.Any("err", err), slog.Duration("delay", s.opts.restartDelay))
		select {
		case <-ctx.Done():
		case <-time.After(s.opts.restartDelay):
		}
	}
}

// once runs the program from start to end, logging to a file.
func (s *service) once(ctx context.Context, started func()) error {
	out, err := os.OpenFile(filepath.Join(s.dir, s.name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, append(os.Environ(), s.env...), out, out
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(unix.SIGTERM) }, stopGrace
	if err := s.family.start(cmd, s.as); err != nil {
		return err
	}
	pidFile := filepath.Join(s.dir, "run", s.name+".pid")
	s.pid.Store(int64(cmd.Process.Pid))
	s.log.Info("process started", slog.String("process", s.name), slog.Int("pid", cmd.Process.Pid))
	next := pidFile + ".next" // readers see the whole number
	err = errors.Join(os.WriteFile(next, []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o644), os.Rename(next, pidFile))
	if err != nil {
		s.log.Warn("cannot write pid file", slog.String("process", s.name), slog.Any("err", err))
	}
	started()
	err = s.family.wait(cmd)
	s.pid.Store(0)
	_ = os.Remove(pidFile)
	return err
}

// stop ends the program and waits for its end: SIGTERM, then SIGKILL. A service
// that was never started (nil) is stopped already.
func (s *service) stop() {
	if s == nil {
		return
	}
	s.cancel()
	s.done.Wait()
}

// String reports whether it runs, for the operator.
func (s *service) String() string {
	if s == nil {
		return "none"
	}
	logged := "log " + filepath.Join(s.dir, s.name+".log")
	if pid := s.pid.Load(); pid != 0 {
		return fmt.Sprintf("process %d, %s", pid, logged)
	}
	return "could not be started, tried again every " + s.opts.restartDelay.String() + ", " + logged
}
