// Claims: a run has one end, which tells how the driver ended; a kill ends a driver that
// ignores SIGTERM, and what it has started, whatever its session; drivers outlive a
// scheduler that is killed, and the next one finds them alive or with their end written;
// whatever dies first, nothing of a driver is left; what cannot start says why.
package spark

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/config"
	"headroom/internal/testkit"
)

// patience bounds every wait of a test; nothing takes as long.
const patience = time.Minute

// lab is an engine that runs.
type lab struct {
	*testing.T
	dir    string
	engine *Engine
	stop   func()
}

func newLab(t *testing.T, dir string, change func(*Config)) *lab {
	t.Helper()
	cfg := home(t, dir)
	if change != nil {
		change(&cfg)
	}
	e := testkit.Need(New(cfg, dir, supervisor(), nil, slog.New(slog.DiscardHandler)))(t)
	return runLab(t, dir, e)
}

func runLab(t *testing.T, dir string, e *Engine) *lab {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- e.Run(ctx) }()
	l := &lab{T: t, dir: dir, engine: e}
	stopped := false
	l.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(l.stop)
	return l
}

// ended is the next end; progress before it is passed over.
func (l *lab) ended() Event {
	l.Helper()
	late := time.After(patience)
	for {
		select {
		case ev := <-l.engine.Events():
			if ev.Kind == KindEnded {
				return ev
			}
		case <-late:
			l.Fatal("no run has ended")
		}
	}
}

// until looks again and again until the condition holds.
func (l *lab) until(not string, done func() bool) {
	l.Helper()
	testkit.Eventually(l, patience, not, done)
}

func (l *lab) ready(r Run) {
	l.Helper()
	l.until("the driver says nothing", func() bool {
		text, err := os.ReadFile(filepath.Join(r.Folder, stdoutFile))
		return err == nil && strings.Contains(string(text), "ready")
	})
}

func (l *lab) start(r Run) {
	l.Helper()
	testkit.Check(l, l.engine.Start(r))
}

func alive(pid int) bool {
	p, err := started(pid)
	if err != nil {
		return false
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), "stat"))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

// driverOf is the driver's process.
func (l *lab) driverOf(r Run) driver {
	l.Helper()
	var d driver
	l.until("the driver's process is not noted", func() bool { return readJSON(filepath.Join(r.Folder, driverFile), &d) == nil })
	return d
}

func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	for _, c := range []struct {
		what []string
		ok   bool
		says []string
	}{
		{[]string{"fine"}, true, []string{"exit status 0"}},
		{[]string{"exit", "3"}, false, []string{"exit status 3", "java.lang.IllegalStateException: no luck", "at demo.Main"}},
		{[]string{"signal"}, false, []string{"signal killed"}},
	} {
		r := runOf(l.dir, "job-"+c.what[0], 1, c.what...)
		l.start(r)
		ev := l.ended()
		if ev.Job != r.Job || ev.Number != 1 || ev.Ended.OK != c.ok || ev.Ended.Killed {
			t.Errorf("%v: %+v", c.what, ev)
		}
		for _, s := range c.says {
			if !strings.Contains(ev.Ended.Outcome, s) {
				t.Errorf("%v: the outcome %q does not say %q", c.what, ev.Ended.Outcome, s)
			}
		}
		if strings.Contains(ev.Ended.Outcome, "noise") {
			t.Errorf("%v: the outcome repeats noise: %q", c.what, ev.Ended.Outcome)
		}
	}
}

func TestKillEndsADriverThatIgnoresIt(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), func(c *Config) { c.KillAfter = config.Duration(50 * time.Millisecond) })
	r := runOf(l.dir, "stubborn", 2, "ignore")
	l.start(r)
	l.ready(r)
	pid := l.driverOf(r).Driver.Pid
	l.engine.Kill("stubborn", 1) // of a run that is over
	l.engine.Kill("stubborn", 2)
	l.engine.Kill("stubborn", 2)
	ev := l.ended()
	if ev.Ended.OK || !ev.Ended.Killed || !strings.Contains(ev.Ended.Outcome, "killed") || alive(pid) {
		t.Errorf("%+v, its process lives: %v", ev, alive(pid))
	}
	// Its job may run again at once.
	again := runOf(l.dir, "stubborn", 3, "fine")
	l.start(again)
	if ev := l.ended(); ev.Number != 3 || !ev.Ended.OK {
		t.Errorf("%+v", ev)
	}
}

func TestKillAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	r := runOf(l.dir, "early", 1, "wait", filepath.Join(l.dir, "never"))
	l.start(r)
	l.engine.Kill("early", 1) // its supervisor may not have read its order yet
	if ev := l.ended(); ev.Ended.OK || !ev.Ended.Killed {
		t.Errorf("%+v", ev)
	}
}

func TestKillEndsWhatTheDriverStarted(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), func(c *Config) { c.KillAfter = config.Duration(50 * time.Millisecond) })
	file := filepath.Join(l.dir, "member")
	r := runOf(l.dir, "family", 1, "family", file)
	l.start(r)
	l.ready(r)
	text, err := os.ReadFile(file)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !alive(pid) {
		t.Fatalf("the member %q does not run: %v", text, err)
	}
	l.engine.Kill("family", 1)
	if ev := l.ended(); !ev.Ended.Killed || alive(pid) {
		t.Errorf("%+v; the process of another session lives: %v", ev, alive(pid))
	}
}

func TestLostSupervisorIsSaid(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	r := runOf(l.dir, "lost", 1, "ignore")
	l.start(r)
	l.ready(r)
	d := l.driverOf(r)
	testkit.Check(t, d.Supervisor.signal(syscall.SIGKILL))
	ev := l.ended()
	if ev.Ended.OK || ev.Ended.Killed || !strings.Contains(ev.Ended.Outcome, "supervisor") {
		t.Errorf("%+v", ev)
	}
	l.until("the driver outlives its supervisor", func() bool { return !alive(d.Driver.Pid) })
}

func TestDriversOutliveTheScheduler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		between func(l *lab, r Run)
		running bool
	}{
		{"alive", func(*lab, Run) {}, true},
		{"ended meanwhile", func(l *lab, r Run) {
			l.release()
			l.until("no exit status", func() bool { _, err := os.Stat(filepath.Join(r.Folder, exitFile)); return err == nil })
			d := l.driverOf(r)
			l.until("the supervisor stays", func() bool { return !alive(d.Supervisor.Pid) })
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			killParent(t, dir)
			l := newLab(t, dir, nil)
			r := runOf(dir, "orphan", 1)
			c.between(l, r)
			running, err := l.engine.Adopt(r)
			if err != nil || running != c.running {
				t.Fatalf("running %v, %v", running, err)
			}
			if running {
				if _, err := l.engine.Adopt(r); !errors.Is(err, errRunning) {
					t.Errorf("adopted twice: %v", err)
				}
				l.release()
			}
			if ev := l.ended(); ev.Job != "orphan" || !ev.Ended.OK {
				t.Errorf("%+v", ev)
			}
		})
	}
}

func (l *lab) release() {
	l.Helper()
	testkit.Check(l, os.WriteFile(filepath.Join(l.dir, "go"), nil, 0o644))
}

// killParent lets another process start the run "orphan" and kills it by SIGKILL.
func killParent(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleParent)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "started <nil>\n" {
		t.Errorf("the parent says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // "signal: killed"
}

func TestAdoptedRunsAreKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killParent(t, dir)
	l := newLab(t, dir, nil)
	r := runOf(dir, "orphan", 1)
	if running, err := l.engine.Adopt(r); err != nil || !running {
		t.Fatalf("running %v, %v", running, err)
	}
	pid := l.driverOf(r).Driver.Pid
	l.engine.Kill("orphan", 1)
	if ev := l.ended(); !ev.Ended.Killed || alive(pid) {
		t.Errorf("%+v", ev)
	}
}

// Another scheduler is active and runs the jobs anew: their drivers here end, and are nothing to adopt later.
func TestDriversEndWhileAnotherSchedulerIsActive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	killParent(t, dir)
	l := newLab(t, dir, nil)
	r := runOf(dir, "orphan", 1)
	l.until("the driver runs", func() bool { _, err := os.Stat(filepath.Join(r.Folder, driverFile)); return err == nil })
	d, jobs, folder := l.driverOf(r), t.TempDir(), r.Folder
	r.Folder = filepath.Join(jobs, "orphan", "run-1")
	testkit.Check(t, os.Mkdir(filepath.Dir(r.Folder), 0o755))
	testkit.Check(t, os.Symlink(folder, r.Folder))
	l.until("a driver stays", func() bool { return EndRuns(jobs) == 0 })
	if alive(d.Driver.Pid) || EndRuns(jobs) != 0 {
		t.Error("the driver is alive")
	}
	if _, err := l.engine.Adopt(r); !errors.Is(err, ErrNoRun) {
		t.Errorf("adopted: %v", err)
	}
}

func TestNothingToAdopt(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	if _, err := l.engine.Adopt(runOf(l.dir, "absent", 1)); !errors.Is(err, ErrNoRun) {
		t.Errorf("never started: %v", err)
	}
	r := runOf(l.dir, "one", 1, "fine")
	l.start(r)
	l.ended()
	other := r
	other.Job = "two"
	if _, err := l.engine.Adopt(other); !errors.Is(err, ErrNoRun) {
		t.Errorf("another job's folder: %v", err)
	}
	r.Number = 2
	if err := l.engine.Start(r); err == nil || !strings.Contains(err.Error(), "already contains a run") {
		t.Errorf("two runs in one folder: %v", err)
	}
}

func TestOrderWithoutADriverIsNoRun(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	r := runOf(l.dir, "unborn", 1, "fine")
	testkit.Check(t, os.MkdirAll(r.Folder, 0o755))
	testkit.Check(t, writeJSON(filepath.Join(r.Folder, runFile), order{Job: r.Job, Number: 1, Mark: "HEADROOM_RUN=" + t.Name()}))
	if _, err := l.engine.Adopt(r); !errors.Is(err, ErrNoRun) {
		t.Fatalf("adopted: %v", err)
	}
	l.start(r) // and it may begin in the same folder
	if ev := l.ended(); !ev.Ended.OK {
		t.Errorf("%+v", ev)
	}
}

// A process that another goroutine starts has copies of all open files until it begins its program.
func TestLockEndsWhileACopyIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	held := testkit.Need(openLock(dir))(t)
	if free, err := lock(held); err != nil || !free {
		t.Fatal(free, err)
	}
	fd := testkit.Need(unix.Dup(int(held.Fd())))(t)
	t.Cleanup(func() { testkit.Check(t, unix.Close(fd)) })
	testkit.Check(t, letGo(held))
	next := testkit.Need(openLock(dir))(t)
	t.Cleanup(func() { testkit.Check(t, next.Close()) })
	if free, err := lock(next); err != nil || !free {
		t.Errorf("the next one waits: %v, %v", free, err)
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	for name, c := range map[string]struct {
		change func(*Run)
		want   error
	}{
		"theta above 1":    {func(r *Run) { r.Theta = 1.5 }, errTheta},
		"below the floor":  {func(r *Run) { r.Floor = 0.8 }, errFloor},
		"no folder":        {func(r *Run) { r.Folder = "" }, nil},
		"no application":   {func(r *Run) { r.Spec.Application = "" }, nil},
		"folder is a file": {func(r *Run) { r.Folder = filepath.Join(l.dir, "plugin.jar") }, nil},
	} {
		r := runOf(l.dir, "refused", 1, "fine")
		c.change(&r)
		if err := l.engine.Start(r); err == nil || (c.want != nil && !errors.Is(err, c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := runOf(l.dir, "twice", 1, "wait", filepath.Join(l.dir, "go"))
	l.start(r)
	r.Number, r.Folder = 2, filepath.Join(l.dir, "elsewhere")
	if err := l.engine.Start(r); !errors.Is(err, errRunning) {
		t.Errorf("a second run beside the first: %v", err)
	}
	l.release()
	l.ended()
	l.stop()
	if err := l.engine.Start(r); !errors.Is(err, errClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestMissingProgramIsSaid(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), func(c *Config) { c.Driver = []string{"/no/such/program"} })
	l.start(runOf(l.dir, "words", 1, "fine"))
	if ev := l.ended(); ev.Ended.OK || !strings.Contains(ev.Ended.Outcome, "/no/such/program") {
		t.Errorf("%+v", ev)
	}
}

func TestFullDiskRefusesTheDriver(t *testing.T) {
	t.Parallel()
	l := newLab(t, t.TempDir(), nil)
	r := runOf(l.dir, "full", 1, "wait", filepath.Join(l.dir, "never"))
	testkit.Check(t, os.MkdirAll(r.Folder, 0o755))
	testkit.Check(t, os.Symlink("/dev/full", filepath.Join(r.Folder, exitPart)))
	l.start(r)
	ev := l.ended()
	if ev.Ended.OK || !strings.Contains(ev.Ended.Outcome, "no space left on device") {
		t.Errorf("%+v", ev)
	}
	if _, err := os.Stat(filepath.Join(r.Folder, driverFile)); err == nil {
		t.Error("the driver was started although its end could not be kept")
	}
}
