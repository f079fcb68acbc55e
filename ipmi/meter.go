package ipmi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"headroom/units"
)

const (
	// closeWait bounds Close: a call to a hung BMC ends by its own deadline later.
	closeWait = 2 * time.Second
	// retryMin and retryMax bound the pause between two attempts at a BMC that fails.
	retryMin = time.Second
	retryMax = 30 * time.Second
)

// Meter reads one BMC on its own goroutine. All methods may be called from any
// goroutine; the zero value is not usable, see Start.
type Meter struct {
	cfg  Config
	log  *slog.Logger
	open opener
	now  func() time.Duration // CLOCK_BOOTTIME, but in tests

	stop context.CancelFunc
	done chan struct{}
	jobs chan job

	// mu guards track for short computations only: never during a query of the BMC.
	mu    sync.Mutex
	track tracker
}

// opener connects to the BMC; the context bounds the attempt.
type opener func(ctx context.Context) (link, error)

// job is work on the limit, done by the meter's goroutine.
type job struct {
	ctx   context.Context //nolint:containedctx // travels with the request to the goroutine that serves it
	do    func(ctx context.Context, l link) (Limit, error)
	reply chan<- result
}

type result struct {
	limit Limit
	err   error
}

// Start begins to read the BMC and returns at once, whatever the BMC does. It never
// fails: what is wrong is said by Latest. log may be nil.
func Start(cfg Config, log *slog.Logger) *Meter {
	return start(cfg, log, nil, boottime)
}

// start lets tests bring their own link and clock.
func start(cfg Config, log *slog.Logger, open opener, now func() time.Duration) *Meter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	absent := cfg.validate()
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	m := &Meter{
		cfg: cfg, log: log, open: open, now: now, stop: stop,
		done: make(chan struct{}), jobs: make(chan job),
		track: newTracker(limits{least: cfg.Least, most: cfg.Most, period: cfg.Period, timeout: cfg.Timeout}),
	}
	if m.open == nil && absent == nil {
		m.open, absent = openerOf(cfg)
	}
	if absent != nil {
		m.open = nil
		m.track.absent(absent.Error())
		log.Info("no BMC power reading", slog.String("why", absent.Error()))
	}
	go m.run(ctx)
	return m
}

// Latest returns the present reading. It never waits for the BMC.
func (m *Meter) Latest() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.track.reading(m.now())
}

// Reference gives the meter the node's power by other sensors, about once a second and
// as a mean over a second: a wall value that stands still while the reference moves is
// stale early, and one that stands still together with the reference stays good for ever.
// Only its changes count, so any figure in step with the power will do; what was learned
// from this meter will not, for it would move with the learning. Without a reference only
// the time without a change of the value, or of the BMC's statistics, is judged.
func (m *Meter) Reference(p units.Power) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.track.observeReference(m.now(), p)
}

// Close stops the meter within two seconds, even when the BMC hangs; a call that the
// kernel still holds then ends by its own deadline. The BMC's limit stays as it is.
func (m *Meter) Close() {
	m.stop()
	select {
	case <-m.done:
	case <-time.After(closeWait):
	}
}

// SetLimit makes the BMC hold p (rounded up to whole watts) with exception action none,
// and returns the limit as read back. Whatever else the BMC had stored is kept, but a
// correction time shorter than our loop. Errors: ErrAbsent, ErrNoAnswer, ErrNoLimit,
// ErrLimitRange, ErrLimitUnsafe, ErrClosed, or the context's.
func (m *Meter) SetLimit(ctx context.Context, p units.Power) (Limit, error) {
	return m.ask(ctx, func(ctx context.Context, l link) (Limit, error) { return setLimit(ctx, l, p, m.cfg.LoopPeriod) })
}

// ClearLimit makes the BMC's limit inactive and returns it as read back. It is nil when
// there was none. Errors as for SetLimit.
func (m *Meter) ClearLimit(ctx context.Context) (Limit, error) {
	return m.ask(ctx, clearLimit)
}

// Limit reads the BMC's limit; Limit.Active is false when none is in force. Errors as
// for SetLimit.
func (m *Meter) Limit(ctx context.Context) (Limit, error) {
	return m.ask(ctx, getLimit)
}

// RestoreLimit restores the limit found before the first SetLimit (was), exception
// action included: it is the operator's own. It refuses with ErrLimitChanged when the
// BMC no longer shows what SetLimit returned last (wrote).
func (m *Meter) RestoreLimit(ctx context.Context, was, wrote Limit) (Limit, error) {
	return m.ask(ctx, func(ctx context.Context, l link) (Limit, error) { return restoreLimit(ctx, l, was, wrote) })
}

// ask hands work to the meter's goroutine and waits for it or the context.
func (m *Meter) ask(ctx context.Context, do func(context.Context, link) (Limit, error)) (Limit, error) {
	reply := make(chan result, 1)
	select {
	case m.jobs <- job{ctx: ctx, do: do, reply: reply}:
	case <-m.done:
		return Limit{}, ErrClosed
	case <-ctx.Done():
		return Limit{}, errors.Join(ErrNoAnswer, ctx.Err())
	}
	select {
	case r := <-reply:
		return r.limit, r.err
	case <-ctx.Done():
		return Limit{}, errors.Join(ErrNoAnswer, ctx.Err())
	}
}

// boottime is CLOCK_BOOTTIME, which runs on through suspend.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // cannot fail: the clock exists since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
