package spark

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"headroom/internal/cgroup"
	"headroom/internal/secure"
	"headroom/jobs/speculation"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/sparkapp"
	"headroom/units"
)

// Run is one execution of a job.
type Run struct {
	Job string
	// Number counts the executions of the job, from 1.
	Number uint32
	Spec   Spec
	// Theta is the drop ratio that it begins with, 0 to 1, Seed what chooses the dropped tasks.
	Theta float64
	Seed  uint64
	// Slots is how many cores it takes at most; at least 1.
	Slots int
	// Folder is this run's own, which is made; no two runs have the same.
	Folder string
	// Floor is the least part of the tasks that must run, 0 to 1.
	Floor float64
	// Bounded reports that the job has an error bound: its stages end as soon as the floor's tasks are done.
	Bounded bool
	// Submitted is when its deadline began to run. Deadline is 0 for none.
	Submitted time.Time
	Deadline  time.Duration
}

// promise returns what the run has to keep.
func (r Run) promise() sparkapp.Promise {
	return sparkapp.Promise{Floor: r.Floor, Bounded: r.Bounded, Submitted: r.Submitted, Deadline: r.Deadline}
}

// Kind distinguishes events.
type Kind uint8

// The kinds of events.
const (
	// KindProgress is news of a run.
	KindProgress Kind = iota
	// KindEnded is a run's end; nothing comes of it afterwards.
	KindEnded
)

// Event is what the engine reports about a run.
type Event struct {
	Job    string
	Number uint32
	Kind   Kind
	// Progress is the last that is known, in both kinds of events.
	Progress sparkapp.Progress
	// Ended is how the run ended.
	Ended Ended
}

// Ended is how a run ended.
type Ended struct {
	// OK reports that the application reached its end, even if it had been asked to stop.
	OK bool
	// Killed reports that it did not because it was asked to stop.
	Killed bool
	// Outcome is how it ended, in words.
	Outcome string
}

// Engine starts and watches the drivers of runs. Its methods may be called from any goroutine.
type Engine struct {
	cfg        Config
	supervisor []string
	logger     *slog.Logger
	hooks      net.Listener
	url        string
	// ca is the file of the authority that drivers pin; empty in the clear.
	ca string
	// web asks the standalone master and drivers, manager YARN.
	web     web
	manager YARN
	// policy decides on copies of tasks; without one there are none.
	policy speculation.Policy
	events chan Event
	// fresh wakes the goroutine that delivers events.
	fresh chan struct{}
	// closing is closed when Run ends.
	closing chan struct{}
	running sync.WaitGroup
	// life ends with Run; what waits for YARN waits no longer then.
	life context.Context //nolint:containedctx // runs begin before Run does
	over context.CancelFunc

	mu     sync.Mutex
	closed bool
	runs   map[string]*execution // by job
	// shares are what each job may hold, as the coordinators sent last.
	shares   []Share
	capacity capacity
	// pending are the events that nobody has taken yet, at most one Progress a run.
	pending []Event
}

const (
	// watchEvery is how often a run's end is looked for.
	watchEvery = 100 * time.Millisecond
	// silence is after how long without a report a run's progress is unknown.
	silence = 10 * time.Second
	// hooksFile remembers where the hooks were served: drivers that outlive the scheduler
	// go on asking there.
	hooksFile = "spark-hooks"
)

// New returns an engine that listens for hooks, and does nothing more until Run. dir is the
// scheduler's own folder. supervisor are the words of the command that calls Drive, the
// run's folder follows them; nil stands for this program's "drive". manager is asked where
// jobs run on YARN; it may be nil where they do not.
func New(cfg Config, dir string, supervisor []string, manager YARN, logger *slog.Logger) (*Engine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if err := cfg.CheckPlaces(); err != nil {
		return nil, err
	}
	if supervisor == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("spark: this program's path: %w", err)
		}
		supervisor = []string{self, "drive"}
	}
	l, err := listenOn(cfg.Hooks, filepath.Join(dir, hooksFile), logger)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		cfg: cfg, supervisor: supervisor, logger: logger, hooks: l, url: "http://" + l.Addr().String(), web: newWeb(), manager: manager,
		events: make(chan Event), fresh: make(chan struct{}, 1), closing: make(chan struct{}), runs: make(map[string]*execution),
	}
	e.life, e.over = context.WithCancel(context.Background())
	return e, nil
}

// Speculate sets the policy that decides on copies of tasks. It is called before Run; without it there are none.
func (e *Engine) Speculate(policy speculation.Policy) { e.policy = policy }

// Secure serves the hooks by TLS with the keeper's certificate. Drivers are told the file
// of its authority, ca. It is called before Run.
func (e *Engine) Secure(k *secure.Keeper, ca string) {
	e.hooks, e.url, e.ca = hookserver.Secure(e.hooks, k), "https://"+e.hooks.Addr().String(), ca
}

// Hooks returns the port of the hooks, for counts.
func (e *Engine) Hooks() net.Listener { return e.hooks }

// Run serves the hooks and hands out events until ctx ends. Drivers go on; Adopt takes
// them over in the next process.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var served error
	var serving sync.WaitGroup
	serving.Go(func() {
		served = hookserver.Serve(ctx, e.hooks, newHooks(e).handler())
		cancel()
	})
	serving.Go(func() { e.measure(ctx) })
	serving.Go(func() { e.probe(ctx) })
	e.handOut(ctx)
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.over()
	close(e.closing)
	e.running.Wait()
	serving.Wait()
	e.web.client.CloseIdleConnections()
	return served
}

// URL returns where the hooks are served.
func (e *Engine) URL() string { return e.url }

// Events returns what happens to runs. They wait until they are taken; of the progress of a
// run only the newest does.
func (e *Engine) Events() <-chan Event { return e.events }

func (e *Engine) handOut(ctx context.Context) {
	for {
		e.mu.Lock()
		var next Event
		var out chan Event // nil blocks
		if len(e.pending) > 0 {
			next, out = e.pending[0], e.events
			e.pending = e.pending[1:]
		}
		e.mu.Unlock()
		if out == nil {
			select {
			case <-ctx.Done():
				return
			case <-e.fresh:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case out <- next:
		}
	}
}

// tell queues an event. The caller holds mu.
func (e *Engine) tell(ev Event) {
	for i, p := range e.pending {
		if p.Job == ev.Job && p.Number == ev.Number && p.Kind == KindProgress {
			e.pending = append(e.pending[:i], e.pending[i+1:]...) // the newer one replaces it
			break
		}
	}
	e.pending = append(e.pending, ev)
	select {
	case e.fresh <- struct{}{}:
	default: // it is awake already
	}
}

// Start starts a run's driver. After an error nothing runs.
func (e *Engine) Start(r Run) error {
	if err := r.check(); err != nil {
		return err
	}
	x := &execution{run: r, token: rand.Text(), mark: "HEADROOM_RUN=" + rand.Text(), theta: r.Theta, seed: r.Seed, began: time.Now(), stop: make(chan struct{}, 1)}
	if err := e.enlist(x); err != nil {
		return err
	}
	if err := e.launch(x); err != nil {
		e.strike(x)
		return fmt.Errorf("spark: start run %d of %s: %w", r.Number, r.Job, err)
	}
	e.logger.Info("Spark driver started", slog.String("job", r.Job), slog.Uint64("run", uint64(r.Number)), slog.Float64("theta", r.Theta), slog.String("folder", r.Folder))
	e.running.Go(func() { e.watch(e.life, x) })
	return nil
}

func (r Run) check() error {
	switch {
	case math.IsNaN(r.Theta) || r.Theta < 0 || r.Theta > 1:
		return fmt.Errorf("theta %v of %s: %w", r.Theta, r.Job, errTheta)
	case units.Ratio(r.Theta).Above(units.Ratio(1 - r.Floor)):
		return fmt.Errorf("theta %v of %s, whose floor is %v: %w", r.Theta, r.Job, r.Floor, errFloor)
	case !filepath.IsAbs(r.Folder):
		return fmt.Errorf("spark: the folder %q of %s is not an absolute path", r.Folder, r.Job)
	}
	if p := r.Spec.Check(); p != nil {
		return fmt.Errorf("spark: job %s: %s", r.Job, p.Message)
	}
	return nil
}

// enlist makes x the run of its job.
func (e *Engine) enlist(x *execution) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	if old := e.runs[x.run.Job]; old != nil {
		return fmt.Errorf("run %d of %s: %w", old.run.Number, x.run.Job, errRunning)
	}
	e.runs[x.run.Job] = x
	return nil
}

func (e *Engine) strike(x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs[x.run.Job] == x {
		delete(e.runs, x.run.Job)
	}
}

// Adopt takes over a run that an earlier process of the scheduler has started. running
// reports whether its driver lives, or may: YARN says it for one in a container. Otherwise it has ended, and an Ended event follows. The
// error wraps ErrNoRun when the folder holds no trace of it: it was never started.
func (e *Engine) Adopt(r Run) (running bool, err error) {
	x := &execution{run: r, theta: r.Theta, seed: r.Seed, began: time.Now(), stop: make(chan struct{}, 1)}
	var o order
	switch err := readJSON(filepath.Join(r.Folder, runFile), &o); {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("run %d of %s in %s: %w", r.Number, r.Job, r.Folder, ErrNoRun)
	case err != nil:
		return false, err
	case o.Job != r.Job || o.Number != r.Number:
		return false, fmt.Errorf("%s holds run %d of %s: %w", r.Folder, o.Number, o.Job, ErrNoRun)
	}
	x.token, x.mark, x.tag, x.managed, x.ui = o.Token, o.Mark, o.Tag, o.Managed, o.UI
	if x.lock, err = openLock(r.Folder); err != nil {
		return false, err
	}
	free, err := lock(x.lock)
	if err == nil && free && x.unborn() {
		cgroup.EndMarked(x.mark) // of no effect unless its supervisor was killed in between
		return false, errors.Join(fmt.Errorf("run %d of %s in %s: %w", r.Number, r.Job, r.Folder, ErrNoRun), os.Remove(filepath.Join(r.Folder, runFile)), letGo(x.lock))
	}
	if err == nil {
		err = e.enlist(x)
	}
	if err != nil && free {
		return false, errors.Join(err, letGo(x.lock))
	}
	if err != nil {
		return false, errors.Join(err, x.lock.Close())
	}
	if free {
		unlock(x.lock)
	}
	e.running.Go(func() { e.watch(e.life, x) })
	_, err = os.Stat(filepath.Join(r.Folder, exitFile)) // a supervisor that has written it is about to end
	return (!free && err != nil) || (x.managed && !x.ended(nil).OK), nil
}

// Kill tells a run to end: by SIGTERM, and by SIGKILL after kill_after. Its Ended event
// confirms it. A run that is not in progress needs no end.
func (e *Engine) Kill(job string, number uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.runs[job]; x != nil && x.run.Number == number {
		x.killed = true
		select {
		case x.stop <- struct{}{}:
		default: // it is already asked to end
		}
	}
}

// Deflate raises the drop ratio of a job's run, for what Spark has not registered yet. A
// lower one than the run has changes nothing.
func (e *Engine) Deflate(job string, theta float64, seed uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.runs[job]
	switch {
	case x == nil:
		return fmt.Errorf("%s: %w", job, errNotRunning)
	case math.IsNaN(theta) || theta < 0 || theta > 1:
		return fmt.Errorf("theta %v of %s: %w", theta, job, errTheta)
	case units.Ratio(theta).Above(units.Ratio(1 - x.run.Floor)):
		return fmt.Errorf("theta %v of %s, whose floor is %v: %w", theta, job, x.run.Floor, errFloor)
	case theta > x.theta:
		x.theta, x.seed = theta, seed
	}
	return nil
}
