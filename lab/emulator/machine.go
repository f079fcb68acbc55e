package emulator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cgroup"
	"headroom/internal/cli"
	"headroom/lab/emulator/throttle"
	"headroom/scheduler/local"
)

// HostShare is the part of the host's CPUs that all emulated nodes own together;
// the rest is for coordinators, powerds, workers and the plants themselves.
const HostShare = 0.75

// machine is one running `powerlab node`: a Node in real time with its processes.
type machine struct {
	opts  options
	dir   string // absolute: the node's own folder
	cores float64
	log   *slog.Logger

	lock     *os.File
	node     *Node
	throttle throttle.Throttle
	family   *family
	powerd   *service // nil where it is not run
	worker   *service
	exec     *execServer
	bmc      *controller // nil where there is none
}

// build makes the node's folder, tree and throttle in order; nothing is started yet. release takes
// down those that are there.
func (m *machine) build() (err error) {
	base, err := filepath.Abs(m.opts.dir)
	if err != nil {
		return fmt.Errorf("emulator: node folder: %w", err)
	}
	m.dir = filepath.Join(base, m.opts.name)
	if err := m.claim(); err != nil {
		return err
	}
	if m.node, err = NewNode(m.dir, DefaultSpec()); err != nil {
		return err
	}
	if m.opts.bmc {
		if m.bmc, err = startController(m.dir, m.node); err != nil {
			return err
		}
	}
	if m.throttle, err = m.chooseThrottle(base); err != nil {
		return err
	}
	m.node.throttledBy = m.throttle.Kind()
	return errors.Join(m.node.observe(), m.writeConfig())
}

// claim makes this process the only one that runs the node in this folder.
func (m *machine) claim() error {
	run := filepath.Join(m.dir, "run")
	if err := os.MkdirAll(run, 0o755); err != nil {
		return fmt.Errorf("emulator: node folder: %w", err)
	}
	path := filepath.Join(run, "node.pid")
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("emulator: claim node: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		var owner [32]byte
		n, _ := lock.ReadAt(owner[:], 0)
		pid, _ := strconv.Atoi(string(owner[:max(0, n-1)]))
		return errors.Join(&cli.Error{
			Code: "running", Exit: cli.ExitConflict,
			Message: fmt.Sprintf("node %s in %s is already running as process %d", m.opts.name, m.opts.dir, pid),
			Hint:    "use another name or --dir, or stop the running node: kill " + strconv.Itoa(pid),
		}, lock.Close())
	}
	m.lock = lock
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("emulator: claim node: %w", err)
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// chooseThrottle takes the cgroup where the host permits, else signals; a
// choice that was requested by name is taken or refused.
func (m *machine) chooseThrottle(base string) (throttle.Throttle, error) {
	// The signal throttle also ends what a killed run of either kind left behind.
	signals, err := throttle.NewSignals(filepath.Join(m.dir, "run", "held.json"))
	if err != nil || m.opts.throttle == "signals" {
		return signals, err
	}
	sum := sha256.Sum256([]byte(base)) // the nodes of one folder share a cgroup
	slowest := float64(DefaultSpec().FreqMin) / float64(DefaultSpec().FreqMax)
	group, err := throttle.NewCgroup("headroom-"+hex.EncodeToString(sum[:6]), m.opts.name, m.cores*slowest)
	if err == nil && m.opts.weight > 1 {
		if err := group.Weigh(m.opts.weight); err != nil {
			return nil, errors.Join(err, group.Close())
		}
	}
	if err == nil {
		return group, nil
	}
	if m.opts.throttle == "cgroup" {
		return nil, &cli.Error{Code: "cgroup", Exit: cli.ExitFailed, Err: err, Hint: "run as root, or use --throttle signals"}
	}
	m.log.Info("using signals to slow down the node", slog.String("reason", err.Error()))
	return signals, nil
}

// release gives back what build took, in the opposite order.
func (m *machine) release() {
	var errs []error
	if m.throttle != nil {
		errs = append(errs, m.throttle.Close())
	}
	m.bmc.close()
	if m.node != nil {
		errs = append(errs, m.node.Close())
	}
	if m.lock != nil {
		// The file stays: removing it would let two later owners lock two files.
		errs = append(errs, m.lock.Truncate(0), m.lock.Close())
	}
	if err := errors.Join(errs...); err != nil {
		m.log.Warn("cleanup incomplete", slog.Any("err", err))
	}
}

// Periods of the real-time loop. Waking up costs more than the step itself.
const (
	// stepEvery is how often the plant steps and its counters move.
	stepEvery = 20 * time.Millisecond
	// scanEvery is how long a new process may run before it is slowed.
	scanEvery = 50 * time.Millisecond
	// stepMin joins the shorter turns of a throttle to one step of the plant.
	stepMin = 15 * time.Millisecond
	// stepMax bounds one step after the host itself was suspended or overloaded.
	stepMax = time.Second
	// smooth is the time constant of utilisation: several bandwidth periods.
	smooth = 150 * time.Millisecond
	// plantNice lets the plant's thread run when the host is busy, where permitted.
	plantNice = -10
)

// run steps the node in real time until done is closed: it looks for processes, slows them and
// steps the plant. It sleeps in the kernel on a thread of its own, whose priority is its own too.
func (m *machine) run(done <-chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, plantNice) // this thread's alone; refused without root
	l := loop{machine: m, last: time.Now()}
	for {
		select {
		case <-done:
			return
		case <-m.family.changed:
			l.scanned = time.Time{}
		default:
		}
		every := stepEvery
		if next := m.throttle.Next(); next > 0 {
			every = min(every, next)
		}
		if wait := time.Until(l.last.Add(every)); wait > 0 {
			ts := unix.NsecToTimespec(wait.Nanoseconds())
			_ = unix.Nanosleep(&ts, nil)
		}
		err := l.turn(time.Now())
		if err != nil && fmt.Sprint(err) != fmt.Sprint(l.wrong) { // when it changes, not at every step
			m.log.Warn("emulated node step failed", slog.Any("err", err))
		}
		l.wrong = err
	}
}

// loop is what run remembers from one turn to the next.
type loop struct {
	*machine
	last    time.Time // turn before
	scanned time.Time // look for new processes before
	util    usage
	pending time.Duration // not yet stepped by the plant
	wrong   error
}

func (l *loop) turn(now time.Time) error {
	var errs []error
	if now.Sub(l.scanned) >= scanEvery {
		l.scanned = now
		errs = append(errs, l.throttle.Hold(l.family.scan()))
		l.bmc.act()
	}
	dt := min(now.Sub(l.last), stepMax)
	l.last = now
	cores := l.cores * l.node.Plant().Speed()
	used, err := l.throttle.Step(dt, cores)
	errs = append(errs, err)
	util := l.util.add(dt, used, cores)
	if l.pending += dt; l.pending >= stepMin {
		errs = append(errs, l.node.Step(l.pending, util))
		l.pending = 0
	}
	return errors.Join(errs...)
}

// usage smooths used over allowed CPU time, so that the periods in which CPU is
// dealt out do not show as load.
type usage struct{ used, allowed float64 }

func (u *usage) add(dt, used time.Duration, cores float64) float64 {
	keep := math.Exp(-float64(dt) / float64(smooth))
	u.used = u.used*keep + float64(used)
	u.allowed = u.allowed*keep + float64(dt)*cores
	if u.allowed <= 0 {
		return 0
	}
	return min(1, u.used/u.allowed)
}

// run builds the node, starts its processes, and steps it until ctx is done; then
// it stops what it started. Nothing survives it. ready is called once everything
// runs, with what slows the node's processes.
func run(ctx context.Context, opts options, log *slog.Logger, ready func(description string)) error {
	m := &machine{opts: opts, log: log.With(slog.String("node", opts.name))}
	m.cores = HostShare * float64(runtime.NumCPU()) / float64(opts.nodes)
	defer m.release()
	if err := m.build(); err != nil {
		return err
	}
	m.family = newFamily()
	defer m.family.close()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("emulator: become the node's init: %w", err)
	}
	var err error
	if m.exec, err = listenExec(m.dir, m.family, m.log); err != nil {
		return err
	}
	m.startServices()
	ready(m.describe())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		m.stop()
	}()
	m.run(stopped)
	return nil
}

// stop ends everything that runs on the node, tasks before the agent that caps
// them. The plant goes on stepping meanwhile.
func (m *machine) stop() {
	m.log.Info("node stopping")
	m.worker.stop()
	_ = cgroup.Clean(filepath.Join(m.dir, "work", local.RecordFile)) // if it was killed
	m.exec.close()
	m.powerd.stop()
	if left := m.family.end(); left > 0 {
		m.log.Warn("processes still running", slog.Int("count", left))
	}
}

// describe describes the node.
func (m *machine) describe() string {
	spec := DefaultSpec()
	return fmt.Sprintf("tree       %s\n"+
		"power      rated %s, floor %s, fail-safe %s at the wall\n"+
		"slowed by  %s; it owns %.3f host CPUs at full frequency\n"+
		"bmc        %s\npowerd     %s\nworker     %s\nstop       Ctrl-C, or kill %d",
		m.node.RootDir(), spec.Rated(), spec.Floor(), spec.FailSafe, m.throttle, m.cores, m.bmc, m.powerd, m.worker, os.Getpid())
}
