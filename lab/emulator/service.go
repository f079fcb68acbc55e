package emulator

import (
	"context"
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
	name   string
	argv   []string
	as     role
	dir    string   // the node's folder: logs and pid files
	env    []string // beside our own
	delay  time.Duration
	family *family
	log    *slog.Logger

	pid    atomic.Int64 // 0 while it does not run
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// stopGrace is how long a program may take to stop before it is killed.
const stopGrace = 5 * time.Second

// startServices starts powerd and the worker, as far as they are configured.
func (m *machine) startServices() {
	if !m.opts.NoPowerd {
		m.powerd = m.service("powerd", roleAgent, agentEnv(),
			filepath.Join(m.opts.Bin, "powerd"), "run", "--config", filepath.Join(m.dir, "powerd.yaml"))
	}
	if !m.opts.NoWorker && m.opts.Scheduler != "" {
		m.worker = m.service("worker", roleWorker, nil,
			filepath.Join(m.opts.Bin, "scheduler"), "worker", "--dev", "--node", m.opts.Name, "--scheduler", m.opts.Scheduler,
			"--slots", strconv.Itoa(m.opts.Slots), "--dir", filepath.Join(m.dir, "work"))
	}
}

// agentEnv is what powerd's unit sets in its environment.
func agentEnv() []string { return []string{"GOMAXPROCS=1"} }

func (m *machine) service(name string, as role, env []string, argv ...string) *service {
	s := &service{name: name, argv: argv, as: as, dir: m.dir, env: env, delay: m.opts.RestartDelay, family: m.family, log: m.log}
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
			slog.String("process", s.name), slog.Any("err", err), slog.Duration("delay", s.delay))
		select {
		case <-ctx.Done():
		case <-time.After(s.delay):
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
	cmd := &exec.Cmd{Path: s.argv[0], Args: s.argv, Dir: s.dir, Env: append(os.Environ(), s.env...), Stdout: out, Stderr: out}
	if err := s.family.start(cmd, s.as); err != nil {
		return err
	}
	pidFile := filepath.Join(s.dir, "run", s.name+".pid")
	s.pid.Store(int64(cmd.Process.Pid))
	s.log.Info("process started", slog.String("process", s.name), slog.Int("pid", cmd.Process.Pid))
	if err := replace(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)+"\n")); err != nil {
		s.log.Warn("cannot write pid file", slog.String("process", s.name), slog.Any("err", err))
	}
	started()
	err = s.family.waitOrEnd(ctx, cmd)
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
	return "could not be started, tried again every " + s.delay.String() + ", " + logged
}

// waitOrEnd waits for cmd; when ctx is done it sends it SIGTERM, and kills it
// after stopGrace.
func (f *family) waitOrEnd(ctx context.Context, cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- f.wait(cmd) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	select {
	case err := <-ended:
		return err
	case <-time.After(stopGrace):
	}
	_ = cmd.Process.Kill()
	return <-ended
}
