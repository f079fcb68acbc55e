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
	"regexp"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"headroom/internal/cgroup"
	"headroom/internal/cli"
	"headroom/lab/emulator/kernel"
	"headroom/lab/emulator/throttle"
	"headroom/lab/emulator/treefs"
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

// options select the node to run and with what; the flags of `powerlab node`.
type options struct {
	// Name is the node's name: letters, digits, dots and dashes.
	Name string
	// Dir contains the folders of all nodes of a run.
	Dir string
	// Nodes counts the nodes that share the host: each owns 0.75 x cores / Nodes.
	Nodes int
	// Domain is the power domain written to powerd.yaml.
	Domain string
	// Join are gossip addresses of any members; KeyFile is the gossip key.
	Join    []string
	KeyFile string
	// BrakeKeyFile has the public keys that powerd trusts for brakes; empty for none.
	BrakeKeyFile string
	// Scheduler is the address of the worker's scheduler; without it no worker runs.
	Scheduler string
	// Slots is the number of tasks that the worker runs at the same time.
	Slots int
	// Bin is the folder of the powerd and scheduler binaries.
	Bin string
	// Throttle is auto, cgroup or signals.
	Throttle string
	// Weight is how many times the host's other work the nodes' processes weigh when CPUs
	// are short, 1 to 100; only a cgroup can.
	Weight int
	// RestartDelay is the delay before a powerd or worker that exited is restarted.
	RestartDelay time.Duration
	// NoPowerd and NoWorker leave these processes out.
	NoPowerd, NoWorker bool
	// Shape describes the machine's parts and its appearance to the kernel.
	Shape kernel.Shape
	// Tree is auto, fuse or files: whether the file tree is mounted.
	Tree string
	// BMC emulates a BMC on loopback, which powerd uses.
	BMC bool
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$`)

// boot makes the node's folder, tree and throttle; nothing is started yet.
func boot(opts options, log *slog.Logger) (*machine, error) {
	if !nodeName.MatchString(opts.Name) {
		return nil, &cli.Error{
			Code: "usage", Exit: cli.ExitUsage, Err: errName,
			Message: fmt.Sprintf("invalid node name %q: use letters, digits, dots and dashes", opts.Name),
			Hint:    "for example n01",
		}
	}
	base, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("emulator: node folder: %w", err)
	}
	m := &machine{opts: opts, dir: filepath.Join(base, opts.Name), log: log.With(slog.String("node", opts.Name))}
	m.cores = HostShare * float64(runtime.NumCPU()) / float64(max(1, opts.Nodes))
	if err := m.build(base); err != nil {
		m.release()
		return nil, err
	}
	return m, nil
}

// build makes the machine's parts in order; release takes down those that are there.
func (m *machine) build(base string) (err error) {
	if err := m.claim(); err != nil {
		return err
	}
	if m.node, err = m.makeNode(); err != nil {
		return err
	}
	if m.opts.BMC {
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

// makeNode makes the node with its tree mounted where that is configured and possible;
// a mount that was requested by name is made or refused.
func (m *machine) makeNode() (*Node, error) {
	opts := NodeOptions{Shape: m.opts.Shape, Mount: m.opts.Tree != "files"}
	node, err := NewNodeWith(m.dir, opts)
	if !errors.Is(err, treefs.ErrNoFUSE) {
		return node, err
	}
	if m.opts.Tree == "fuse" {
		return nil, &cli.Error{
			Code: "fuse", Exit: cli.ExitFailed, Err: err, Message: fmt.Sprintf("cannot mount the file tree of node %s: %v", m.opts.Name, err),
			Hint: "run as root with /dev/fuse, or use --tree files",
		}
	}
	m.log.Info("using plain files for the file tree", slog.String("reason", err.Error()))
	opts.Mount = false
	return NewNodeWith(m.dir, opts)
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
			Code: "running", Exit: cli.ExitConflict, Err: errRunning,
			Message: fmt.Sprintf("node %s in %s is already running as process %d", m.opts.Name, m.opts.Dir, pid),
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
	if err != nil || m.opts.Throttle == "signals" {
		return signals, err
	}
	slowest := float64(m.opts.Shape.Spec.FreqMin) / float64(m.opts.Shape.Spec.FreqMax)
	group, err := throttle.NewCgroup(runName(base), m.opts.Name, m.cores*slowest)
	if err == nil && m.opts.Weight > 1 {
		if err := group.Weigh(m.opts.Weight); err != nil {
			return nil, errors.Join(err, group.Close())
		}
	}
	if err == nil {
		return group, nil
	}
	if m.opts.Throttle == "cgroup" {
		return nil, &cli.Error{Code: "cgroup", Exit: cli.ExitFailed, Err: err, Hint: "run as root, or use --throttle signals"}
	}
	m.log.Info("using signals to slow down the node", slog.String("reason", err.Error()))
	return signals, nil
}

// runName is the cgroup that the nodes of one folder share.
func runName(base string) string {
	sum := sha256.Sum256([]byte(base))
	return "headroom-" + hex.EncodeToString(sum[:6])
}

// release gives back what boot took, in the opposite order.
func (m *machine) release() {
	var errs []error
	if m.throttle != nil {
		errs = append(errs, m.throttle.Kill(), m.throttle.Close())
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

// run steps the node in real time until done is closed. It sleeps in the kernel on
// a thread of its own, whose priority is its own too.
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
		l.turn(time.Now())
	}
}

// loop is what run remembers from one turn to the next.
type loop struct {
	*machine
	last    time.Time // turn before
	scanned time.Time // look for new processes before
	util    usage
	pending time.Duration // not yet stepped by the plant
	said    string
}

// turn is one round: look for processes, slow them, step the plant.
func (l *loop) turn(now time.Time) {
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
	l.said = l.report(errors.Join(errs...), l.said)
}

// report logs what is wrong when it changes, not at every step.
func (m *machine) report(err error, said string) string {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != said && text != "" {
		m.log.Warn("emulated node step failed", slog.Any("err", err))
	}
	return text
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

// run boots the node, starts its processes, and steps it until ctx is done; then
// it stops what it started. Nothing survives it. ready is called once everything
// runs, with what slows the node's processes.
func run(ctx context.Context, opts options, log *slog.Logger, ready func(description string)) error {
	m, err := boot(opts, log)
	if err != nil {
		return err
	}
	defer m.release()
	m.family = newFamily()
	defer m.family.close()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("emulator: become the node's init: %w", err)
	}
	if m.exec, err = listenExec(m.dir, m.family, m.inject, m.log); err != nil {
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
	means := "values only, no kernel error semantics"
	if m.node.Tree() == treeFUSE {
		means = "mounted, with the kernel's error semantics"
	}
	spec := m.opts.Shape.Spec
	return fmt.Sprintf("machine    %s: %s\n"+
		"tree       %s (%s) in %s\n"+
		"power      rated %s, floor %s, fail-safe %s at the wall\n"+
		"slowed by  %s; it owns %.3f host CPUs at full frequency\n"+
		"bmc        %s\npowerd     %s\nworker     %s\nstop       Ctrl-C, or kill %d",
		m.opts.Shape.Name, m.opts.Shape.About, m.node.Tree(), means, m.node.RootDir(), spec.Rated(), spec.Floor(), spec.FailSafe,
		m.throttle, m.cores, m.bmc, m.powerd, m.worker, os.Getpid())
}
