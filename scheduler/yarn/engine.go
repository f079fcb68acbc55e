package yarn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/jobs/speculation"
	"headroom/scheduler/hookserver"
	"headroom/scheduler/profiles"
	"headroom/scheduler/scaling"
)

const (
	// commandWait bounds one attempt to send something to the coordinators.
	commandWait = 10 * time.Second
	// settleEvery is the interval of sending the coordinators what they do not know yet.
	settleEvery = time.Second
	// releaseWait bounds restoring the operator's values at the end.
	releaseWait = 10 * time.Second
)

// Coordinators is the interface to the leader of the coordinators. Repeating a request must be safe. Final errors wrap
// ErrRefused; after any other error the request may have been carried out.
type Coordinators interface {
	// CommitJob stores a job.
	CommitJob(ctx context.Context, r *headroomv1.CommitJobRequest) error
	// FinishJob stores the end of a job.
	FinishJob(ctx context.Context, r *headroomv1.FinishJobRequest) error
	// DropTasks records tasks that will never run, and returns all that are recorded.
	DropTasks(ctx context.Context, r *headroomv1.DropTasksRequest) ([]*headroomv1.TaskRange, error)
}

// Engine monitors one YARN. Its methods may be called from any goroutine.
type Engine struct {
	cfg    Config
	dir    string
	logger *slog.Logger
	coords Coordinators
	client *client
	// profiles are the quality profiles; nil for none.
	profiles *profiles.Folder
	// hooks is nil if none are served.
	hooks net.Listener
	// capacity is for shares: capacity, and for what an earlier process left there.
	capacity *capacityQueues

	// looked triggers settling after each read.
	looked chan struct{}

	// sharing is held while shares are computed and set, so that older ones never overwrite newer ones.
	sharing sync.Mutex

	// guard decides which hooks are answered; nil for all.
	guard *hookserver.Guard

	mu   sync.Mutex
	book *book
	// revision counts the changes of the served shares; asked is when they were last read.
	revision uint64
	served   []queueShare
	asked    time.Time
	// faults is how many faults of its own the scheduler plug-in has reported.
	faults uint64
}

// New returns an engine that does nothing until Run. dir is the scheduler's own folder. It owns the listener for the
// hooks, which may be nil; so may the profiles.
func New(cfg Config, dir string, hooks net.Listener, known *profiles.Folder, coords Coordinators, logger *slog.Logger) *Engine {
	e := &Engine{
		cfg: cfg, dir: dir, logger: logger, coords: coords, client: newClient(cfg, logger), hooks: hooks, profiles: known,
		book: newBook(cfg, logger), looked: make(chan struct{}, 1),
		// A plug-in may have the shares of an earlier process: the clock gives a higher number.
		revision: uint64(time.Now().UnixMilli()),
	}
	e.capacity = newCapacityQueues(e.client, dir)
	return e
}

// Require makes hooks authenticate with the guard; nil for none. It is called before Run.
func (e *Engine) Require(guard *hookserver.Guard) { e.guard = guard }

// Rank sets the classes of scheduler.yaml, highest first. It is called before Run.
func (e *Engine) Rank(classes []Class) { e.book.classes = classes }

// Speculate sets the policy for copies of tasks of Spark's applications. It is called before Run; without it there are
// no copies.
func (e *Engine) Speculate(policy speculation.Policy) { e.book.policy = policy }

// Learn sets what learns scaling curves from the jobs' runs; nil for nothing. It is called before Run.
func (e *Engine) Learn(from *scaling.Learner) { e.book.learner = from }

// Close closes an engine that does not run.
func (e *Engine) Close() {
	e.client.close()
	if e.hooks != nil {
		_ = e.hooks.Close() // nobody was served
	}
}

// Run monitors and serves until ctx ends; then it restores the operator's own queues, unless another scheduler
// continues.
func (e *Engine) Run(ctx context.Context) error {
	defer e.client.close()
	if err := leftBehind(e.dir); err != nil {
		e.Close()
		return err
	}
	parent := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	var served error
	if e.hooks != nil {
		running.Go(func() {
			served = hookserver.Serve(ctx, e.hooks, newHooks(e).handler())
			cancel()
		})
	}
	running.Go(func() { e.settle(ctx) })
	e.watch(ctx)
	running.Wait()
	if !errors.Is(context.Cause(parent), ErrHandedOver) {
		e.release(parent)
	}
	return served
}

// watch reads the cluster at each poll until ctx ends.
func (e *Engine) watch(ctx context.Context) {
	tick := time.NewTicker(e.cfg.Poll.Std())
	defer tick.Stop()
	for {
		e.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look is one round: gather, apply, set the resulting shares.
func (e *Engine) look(ctx context.Context) {
	e.mu.Lock()
	w := e.book.wish(time.Now())
	e.mu.Unlock()
	s, err := e.client.look(ctx, e.cfg, w)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		s.bind(e.profiles)
	}
	e.mu.Lock()
	if err != nil {
		e.book.fail(time.Now(), err)
	} else {
		e.book.see(time.Now(), w, s)
	}
	e.mu.Unlock()
	select {
	case e.looked <- struct{}{}:
	default: // it is triggered already
	}
	if err := e.setShares(ctx, time.Now()); err != nil {
		e.logger.Debug("yarn: shares not set", slog.Any("error", err)) // logged once where it is recorded
	}
}

// Restore applies the jobs of the coordinators' log, including those of other engines. It is called at the start and
// whenever the log is read again.
func (e *Engine) Restore(jobs []*headroomv1.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.book.restore(time.Now(), jobs)
}

// Report returns the report to the coordinators, sent every second. points are how jobs of the classes run now.
func (e *Engine) Report(points []*headroomv1.ClassPoint) ([]*headroomv1.JobProgress, *headroomv1.EngineReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.book.timing(points)
	return e.book.progress(now), e.book.report(now)
}

// List returns all jobs, or the one of that id, for listings.
func (e *Engine) List(id string) []*headroomv1.Job {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.list(time.Now(), id)
}

// Details returns what listings show in addition to the jobs, of all or of the one of that id.
func (e *Engine) Details(id string) []*headroomv1.RunDetail {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.details(time.Now(), id)
}

// Share applies how much of the cluster each job may hold. The error states what could not be applied.
func (e *Engine) Share(d *headroomv1.ShareDirective) error {
	e.mu.Lock()
	err := e.book.share(d)
	e.mu.Unlock()
	return errors.Join(err, e.setShares(context.Background(), time.Now()))
}

// Stop applies that a job's map tasks that have not started may be dropped.
func (e *Engine) Stop(d *headroomv1.StopDirective) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.stopJob(time.Now(), d)
}

// Deflate applies that a job runs fewer of its tasks.
func (e *Engine) Deflate(d *headroomv1.DeflateDirective) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.book.deflateJob(time.Now(), d)
}

// Sprint records that a job's nodes sprint, or no longer sprint. The nodes learn it with their leases.
func (e *Engine) Sprint(d *headroomv1.SprintDirective) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.book.sprint(time.Now(), d)
}

// Cap records a node's cap: its tasks have another speed from then on.
func (e *Engine) Cap(d *headroomv1.CapDirective) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.book.cap(time.Now(), d)
}

// setShares sets the queues' maxima to those of the book.
func (e *Engine) setShares(ctx context.Context, now time.Time) error {
	e.sharing.Lock()
	defer e.sharing.Unlock()
	var err error
	switch e.cfg.Shares {
	case sharesHook:
		e.serveShares(now)
	case sharesCapacity:
		return e.putShares(ctx, now)
	}
	return errors.Join(err, e.clearCapacity(ctx, now))
}

// putShares is for shares: capacity.
func (e *Engine) putShares(ctx context.Context, now time.Time) error {
	e.mu.Lock()
	want, answers := wanted{e.book.maxima(), e.cfg.Container, e.book.size}, e.book.failed.IsZero() && !e.book.looked.IsZero()
	e.mu.Unlock()
	if !answers {
		return nil // the state of the cluster is old, so nothing is changed
	}
	left, err := e.capacity.left()
	var changed bool
	var held []string
	switch {
	case err != nil:
	case len(want.queues) == 0 && !left:
		err = e.capacity.check(ctx, now, e.cfg.Queues, e.cfg.Container, want.size)
	default:
		changed, held, err = e.capacity.set(ctx, now, want)
	}
	if changed {
		e.logger.Info("yarn: maxima of the capacity scheduler set", slog.Any("containers", want.queues), slog.Any("held", held))
	}
	e.unfit(err)
	if err == nil && len(held) > 0 {
		err = fmt.Errorf("yarn: %s: %w", clip(strings.Join(held, "; ")), errShares)
	}
	return err
}

// unfit records why shares cannot be set, and logs it once.
func (e *Engine) unfit(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.book.misfit
	e.book.misfit = ""
	if err != nil {
		e.book.misfit = clip(err.Error())
	}
	if e.book.misfit != before && err != nil {
		e.logger.Warn("yarn: shares not written", slog.Any("error", err))
	}
}

// clearCapacity restores the capacity scheduler after an earlier process, if shares are now set another way.
func (e *Engine) clearCapacity(ctx context.Context, now time.Time) error {
	left, err := e.capacity.left()
	if err == nil && left {
		_, _, err = e.capacity.set(ctx, now, wanted{})
	}
	if err != nil {
		return fmt.Errorf("yarn: the operator's maxima were not restored in the capacity scheduler: %w", err)
	}
	return nil
}

// serveShares is for shares: hook.
func (e *Engine) serveShares(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	limits := e.book.maxima()
	queues := []queueShare{}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		n := limits[name]
		queues = append(queues, queueShare{name, n * e.cfg.Container.MemoryMB, n * e.cfg.Container.VCores, e.cfg.Lower, e.book.served(name)})
	}
	if !slices.EqualFunc(queues, e.served, queueShare.equal) {
		e.served = queues
		e.revision++
		e.logger.Info("yarn: shares changed", slog.Uint64("revision", e.revision), slog.Any("queues", queues))
	}
	e.book.misfit = ""
	if e.asked.IsZero() || now.Sub(e.asked) > validFor {
		e.book.misfit = "the scheduler plug-in does not read its shares: check that it is the ResourceManager's scheduler class and can reach yarn.hooks"
	}
}

// release restores the operator's own queues.
func (e *Engine) release(ctx context.Context) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if err := e.clearCapacity(last, time.Now()); err != nil {
		e.logger.Error("yarn: the operator's queues were not restored; the next start of the scheduler restores them", slog.Any("error", err))
	}
}

// settle sends the coordinators what they do not know yet, until ctx ends.
func (e *Engine) settle(ctx context.Context) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.looked:
		case <-tick.C:
		}
		e.sweep(ctx)
		for e.tell(ctx) {
			continue
		}
	}
}

// tell sends one command; it returns false when there is none left, or the coordinators do not answer.
func (e *Engine) tell(parent context.Context) bool {
	e.mu.Lock()
	c, ok := e.book.next(time.Now())
	e.mu.Unlock()
	if !ok || parent.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(parent, commandWait)
	defer cancel()
	var err error
	if c.commit != nil {
		err = e.coords.CommitJob(ctx, c.commit)
	} else {
		err = e.coords.FinishJob(ctx, c.finish)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.book.told(c)
	case errors.Is(err, ErrRefused):
		e.book.refused(time.Now(), c.id, err)
	default:
		e.logger.Debug("yarn: job not committed yet", slog.String("job", c.id), slog.Any("error", err))
		return false
	}
	return true
}

// sweep drops the tasks that have not started, for jobs whose input wrapper asks task by task, and retries drops whose
// result is unknown.
func (e *Engine) sweep(parent context.Context) {
	e.mu.Lock()
	ids := e.book.sweeps()
	e.mu.Unlock()
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(parent, hookserver.Wait) // hooks wait for the same gate
		err := e.withDrops(ctx, id, func(j *job) error {
			if j.sweeps() {
				j.choose(j.waiting())
				j.swept = true // what is chosen stays in flight until it is settled
			}
			return nil
		})
		cancel()
		if err != nil {
			e.logger.Debug("yarn: drops not committed yet", slog.String("job", id), slog.Any("error", err))
		}
	}
}

// withDrops settles what is in flight for a job, lets choose put further tasks into flight, and settles those too. It
// runs one such command at a time per job. Without an error nothing is in flight afterwards.
func (e *Engine) withDrops(ctx context.Context, id string, choose func(*job) error) error {
	e.mu.Lock()
	j, err := e.book.running(id)
	if err != nil && j != nil && len(j.flight) > 0 {
		err = nil // it has ended; what was sent must be settled before its end is committed
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case j.gate <- struct{}{}:
		defer func() { <-j.gate }()
	case <-ctx.Done():
		return errNotCommitted
	}
	if err := e.land(ctx, j); err != nil {
		return err
	}
	e.mu.Lock()
	err = choose(j)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return e.land(ctx, j)
}

// land records the drops in flight. The caller holds the job's gate. After an error that is not final they stay in
// flight: they may be recorded.
func (e *Engine) land(ctx context.Context, j *job) error {
	e.mu.Lock()
	r, n := j.drop(), len(j.flight)
	e.mu.Unlock()
	if n == 0 {
		return nil
	}
	all, err := e.coords.DropTasks(ctx, r)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		j.recorded(fromRanges(all))
		e.logger.Info("yarn: tasks dropped", slog.String("job", r.GetId()), slog.Int("tasks", n), slog.Int("dropped", len(j.dropped)))
		return nil
	case errors.Is(err, ErrRefused):
		j.flight = numbers{}
		e.logger.Warn("yarn: coordinators refused to drop tasks", slog.String("job", r.GetId()), slog.Any("error", err))
	}
	return fmt.Errorf("%w: %w", errNotCommitted, err)
}

// hookShares answers the scheduler plug-in, which has had so many faults of its own.
func (e *Engine) hookShares(now time.Time, faults uint64) sharesAnswer {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = now
	if faults > 0 && faults != e.faults {
		e.logger.Warn("yarn: the scheduler plug-in had faults of its own, and continued as Hadoop alone; see the ResourceManager's log", slog.Uint64("faults", faults))
	}
	e.faults = faults
	return sharesAnswer{Revision: e.revision, ValidS: int(validFor / time.Second), Queues: append([]queueShare{}, e.served...), Lines: e.book.lines()}
}

// hookStop answers an application master whether its job may stop early.
func (e *Engine) hookStop(id string) (stopAnswer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.book.running(id)
	if err != nil {
		return stopAnswer{}, err
	}
	j.heard = time.Now()
	_, least, loose := j.bound()
	a := stopAnswer{Stop: loose, Dropped: j.dropped.sorted()}
	if loose {
		a.MinTasks, a.Over = &least, j.reached(time.Now())
	}
	return a, nil
}

// hookDrop records as many of the candidates as the floor permits, and returns all that are recorded.
func (e *Engine) hookDrop(ctx context.Context, id string, tasks int, candidates []candidate) (dropped []int, err error) {
	err = e.withDrops(ctx, id, func(j *job) error {
		switch of, _, loose := j.bound(); {
		case j.over:
			return fmt.Errorf("%s: %w", id, errJob)
		case !loose:
			return errNoStop
		case tasks != of:
			return fmt.Errorf("the job has %d map tasks, not %d: %w", of, tasks, errRequest)
		}
		j.choose(candidates)
		return nil
	})
	if err != nil {
		return nil, err
	}
	a, err := e.hookStop(id)
	return a.Dropped, err
}

// hookBegin answers a map attempt whether to read its input.
func (e *Engine) hookBegin(ctx context.Context, id string, task, attempt int, bytes uint64) (run bool, err error) {
	if run, known, err := e.begin(id, task, attempt, bytes); known || err != nil {
		return run, err
	}
	// The task is in flight: whether it is dropped is unknown until the coordinators answer.
	if err := e.withDrops(ctx, id, func(*job) error { return nil }); err != nil {
		return false, err
	}
	run, known, err := e.begin(id, task, attempt, bytes)
	if !known && err == nil {
		err = errNotCommitted
	}
	return run, err
}

// begin decides at once if possible; known is false while the task is in flight.
func (e *Engine) begin(id string, task, attempt int, bytes uint64) (run, known bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j, err := e.book.running(id)
	if err != nil {
		return false, false, err
	}
	if !j.within(task) {
		return false, false, fmt.Errorf("the job has %d map tasks; there is no task %d: %w", j.tasks, task, errRequest)
	}
	if !j.wraps {
		j.wraps = true
		e.logger.Debug("yarn: tasks ask before they start", slog.String("job", id), slog.Int("task", task), slog.Int("attempt", attempt))
	}
	j.bytes[task] = bytes
	switch {
	case j.dropped[task]:
		return false, true, nil
	case j.flight[task]:
		return false, false, nil
	}
	j.began[task] = true
	return true, true, nil
}
