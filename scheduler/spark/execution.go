package spark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"headroom/internal/cgroup"
	"headroom/scheduler/sparkapp"
)

// execution is a run that is in progress.
type execution struct {
	run         Run
	token, mark string
	// tag marks its application in YARN; empty on a standalone master.
	tag string
	// managed reports that its driver runs in a container of YARN.
	managed bool
	// ui is the port of the driver's REST interface on this machine; 0 for none.
	ui int
	// lock is the folder's; who holds it is the supervisor.
	lock *os.File
	// child is the supervisor's process id while it is this process's own child, else 0.
	child int
	// stop wakes the watch when the run is to end.
	stop chan struct{}

	// What follows is guarded by the engine's mu.
	killed bool
	theta  float64
	seed   uint64
	// aim is how many executors it should have.
	aim aim
	// progress is the newest, of the report with this number, heard then. looked is when the
	// driver's REST interface answered last.
	progress sparkapp.Progress
	sequence uint64
	heard    time.Time
	looked   time.Time
	// app is Spark's id of the application, as its hook or its REST interface has told.
	app string
	// identified reports that the driver at ui was seen to be the run's.
	identified bool
	// began is when this process came to know of it.
	began time.Time
}

// launch writes the run's order and starts its supervisor, which holds the folder's lock
// from before its start.
func (e *Engine) launch(x *execution) (err error) {
	r := x.run
	if err := os.MkdirAll(r.Folder, 0o750); err != nil {
		return err
	}
	if x.lock, err = openLock(r.Folder); err != nil {
		return err
	}
	if free, err := lock(x.lock); err != nil || !free {
		return errors.Join(err, fmt.Errorf("%s: %w", r.Folder, errRunning), x.lock.Close())
	}
	defer func() {
		if err != nil {
			_ = letGo(x.lock)
		}
	}()
	if _, err := os.Stat(filepath.Join(r.Folder, runFile)); err == nil {
		return fmt.Errorf("%s already contains a run", r.Folder)
	}
	if err := e.place(x); err != nil {
		return err
	}
	o := order{
		Job: r.Job, Number: r.Number, Argv: e.cfg.command(x, e.url, e.ca), Mark: x.mark, Tag: x.tag, Managed: x.managed, UI: x.ui,
		Env: e.environment(x), KillAfter: e.cfg.KillAfter.Std(), Token: x.token, Theta: r.Theta, Seed: r.Seed,
	}
	if err := writeJSON(filepath.Join(r.Folder, runFile), o); err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(r.Folder, logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	argv := append(slices.Clone(e.supervisor), r.Folder)
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it outlives this process on purpose
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, r.Folder
	cmd.ExtraFiles = []*os.File{x.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, os.Remove(filepath.Join(r.Folder, runFile)))
	}
	x.child = cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		e.logger.Debug("handle of a supervisor", slog.Any("error", err))
	}
	// The supervisor's is the only open lock now: this process tries its own.
	if again, err := openLock(r.Folder); err == nil {
		_ = x.lock.Close()
		x.lock = again
	}
	return nil
}

// watch waits for a run's end, and passes a kill on.
func (e *Engine) watch(ctx context.Context, x *execution) {
	defer func() { _ = x.lock.Close() }()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	told, gone := false, false
	m, followed := managed{engine: e, x: x}, x.managed && e.manager != nil
	for {
		e.mu.Lock()
		kill := x.killed
		e.quiet(x, time.Now())
		e.mu.Unlock()
		var err error
		if !gone {
			gone, err = x.over()
		}
		switch now := time.Now(); {
		case err != nil, gone && !followed:
			unlock(x.lock) // who hears of the end may use the folder at once
			e.end(x, x.ended(err))
			return
		case gone:
			if ended, over := m.over(ctx, now, kill); over {
				unlock(x.lock)
				e.end(x, ended)
				return
			}
		case kill && followed:
			m.kill(ctx, now)
		case kill && !told:
			told = x.tell() == nil // its process may not be known yet: again at the next look
		}
		select {
		case <-e.closing:
			return
		case <-x.stop:
		case <-tick.C:
		}
	}
}

// over reports whether the supervisor is gone.
func (x *execution) over() (bool, error) {
	if x.child != 0 {
		pid, err := syscall.Wait4(x.child, nil, syscall.WNOHANG, nil)
		if err == nil && pid == 0 {
			return false, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			x.child = 0
		}
	}
	return lock(x.lock)
}

// unborn reports that there is an order but no trace of a driver: whoever wrote the order
// was killed before its supervisor came so far.
func (x *execution) unborn() bool {
	for _, name := range []string{driverFile, exitFile} {
		if _, err := os.Stat(filepath.Join(x.run.Folder, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// tell asks the supervisor to end the run.
func (x *execution) tell() error {
	var d driver
	if err := readJSON(filepath.Join(x.run.Folder, driverFile), &d); err != nil {
		return err
	}
	return d.Supervisor.signal(syscall.SIGTERM)
}

// end reports how a run ended and removes it.
func (e *Engine) end(x *execution, ended Ended) {
	if x.mark != "" {
		cgroup.EndMarked(x.mark) // of no effect unless the supervisor was killed itself
	}
	if err := x.forget(); err != nil {
		e.logger.Warn("token of an ended run not removed", slog.String("job", x.run.Job), slog.Any("error", err))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[x.run.Job] == x {
		delete(e.runs, x.run.Job)
	}
	if !ended.OK && x.killed {
		ended.Killed = true
	}
	p := x.progress
	p.Running, p.Executors, p.Cores, p.RunningOn = 0, 0, 0, nil
	e.logger.Info("Spark driver ended", slog.String("job", x.run.Job), slog.Uint64("run", uint64(x.run.Number)), slog.String("outcome", ended.Outcome))
	e.tell(Event{Job: x.run.Job, Number: x.run.Number, Kind: KindEnded, Progress: p, Ended: ended})
}

// ended reads how the driver ended.
func (x *execution) ended(failed error) Ended {
	if failed != nil {
		return Ended{Outcome: sparkapp.Clip("exit status of the driver unknown: " + failed.Error())}
	}
	var s exit
	err := readJSON(filepath.Join(x.run.Folder, exitFile), &s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Ended{Outcome: sparkapp.Clip(withTail("the driver's supervisor ended without an exit status; remaining processes were killed", filepath.Join(x.run.Folder, logFile)))}
	case err != nil:
		return Ended{Outcome: sparkapp.Clip(err.Error())}
	case s.Error != "":
		return Ended{Outcome: sparkapp.Clip(s.Error)}
	case s.Code == 0:
		return Ended{OK: true, Outcome: "exit status 0"}
	case s.Killed:
		return Ended{Killed: true, Outcome: "killed by the scheduler, " + s.words()}
	default:
		return Ended{Outcome: sparkapp.Clip(withTail("the driver ended with "+s.words(), filepath.Join(x.run.Folder, stderrFile)))}
	}
}

func (s exit) words() string {
	if s.Signal != 0 {
		return "signal " + syscall.Signal(s.Signal).String()
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

const (
	// tailRead is how much of a log's end is looked at, tailLines how many lines are quoted.
	tailRead  = 64 << 10
	tailLines = 6
)

// withTail adds what a log says at its end.
func withTail(text, path string) string {
	if said := lastWords(path); said != "" {
		return text + ": " + said
	}
	return text
}

// lastWords returns the lines of a driver's log that tell why it ended: from the last
// exception's on, else the last ones.
func lastWords(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > tailRead {
		_, _ = f.Seek(-tailRead, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(f, tailRead))
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	from := max(0, len(lines)-tailLines)
	for i, line := range slices.Backward(lines) {
		if tellsWhy(line) {
			from = i
			break
		}
	}
	return strings.Join(lines[from:min(len(lines), from+tailLines)], "\n")
}

func tellsWhy(line string) bool {
	for _, mark := range []string{"Exception in thread ", "Traceback (most recent call last)", "Error: ", "Error occurred during initialization"} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}
