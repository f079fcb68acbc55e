package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/machine"
	"headroom/agent/metrics"
	"headroom/capping"
	"headroom/units"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/ipmi"
	"headroom/rapl"
	"headroom/systemd"
)

// startMetrics serves metrics.listen until ctx ends; without an address it does
// nothing. The error is a *cli.Error.
func (n *node) startMetrics(ctx context.Context) error {
	if n.cfg.Metrics.Listen == "" {
		return nil
	}
	l, err := metrics.Listen(n.cfg.Metrics.Listen)
	if err != nil {
		return err
	}
	n.log.Info("serving metrics", slog.String("address", l.Addr().String()))
	told := metrics.New(Version, func() *headroomv1.GetAgentStatusResponse { return n.scraped(ctx) }, n.tally.loop)
	n.servers.Go(func() {
		if err := metrics.Serve(ctx, l, told, n.log); err != nil {
			n.log.Error("metrics closed", slog.Any("error", err))
		}
	})
	return nil
}

// scraped is the state for one scrape: fresh where the owner answers in time, and
// the last published one otherwise.
func (n *node) scraped(ctx context.Context) *headroomv1.GetAgentStatusResponse {
	res, err := agentService{n: n}.GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	if err != nil {
		return n.report.snapshot()
	}
	return res.Msg
}

// tally counts what happens to the node: for status, and in more detail for the metrics.
// It belongs to the owner goroutine, but for loop, which scrapes read.
type tally struct {
	counters counters
	loop     *metrics.Loop
	strayed  map[string]time.Duration // by control: when it last stood at another value than written
	overAt   time.Duration            // when it was last looked whether power is over the cap
}

func newTally() *tally { return &tally{loop: metrics.NewLoop(), strayed: map[string]time.Duration{}} }

// counters count since powerd started.
type counters struct {
	renewals, refusals, expiries, steps, misses, drifts, writeErrors, thermalEvents, sprints uint64

	overTime   time.Duration // see overCap
	overEnergy units.Energy
}

// late is how much later than due a turn may come before it counts as missed.
const late = period

// turn counts a turn and whether it came in time.
func (t *tally) turn(now, before time.Duration) {
	t.counters.steps++
	if before > 0 && now-before > period+late {
		t.counters.misses++
	}
}

func (c counters) wire() *headroomv1.AgentCounters {
	return &headroomv1.AgentCounters{
		Renewals: c.renewals, Refusals: c.refusals, Expiries: c.expiries, Steps: c.steps, DeadlineMisses: c.misses,
		Drifts: c.drifts, WriteErrors: c.writeErrors, ThermalEvents: c.thermalEvents, Sprints: c.sprints,
		OverCapMs: uint64(c.overTime.Milliseconds()), OverCapUj: uint64(c.overEnergy),
	}
}

// overTolerance is how far above the cap the power may stand without being over it.
const overTolerance = 0.02

// overCap is the time, and the energy above the cap, that a stretch of time counts as
// spent over the cap: all of it where the mean stands above the cap by more than
// overTolerance, nothing otherwise. Unknown power and no cap (0) count nothing.
func overCap(mean capping.Reading, inForce units.Power, d time.Duration) (time.Duration, units.Energy) {
	if !mean.Known || inForce <= 0 || d <= 0 || mean.Power.Watts() <= inForce.Watts()*(1+overTolerance) {
		return 0, 0
	}
	return d, (mean.Power - inForce).For(d)
}

// over counts the time since it was last called, by the mean power and the cap in force
// since then; 0 is no cap.
func (t *tally) over(now time.Duration, mean capping.Reading, inForce units.Power) {
	d := now - t.overAt
	if t.overAt == 0 {
		d = 0
	}
	t.overAt = now
	over, energy := overCap(mean, inForce, d)
	t.counters.overTime += over
	t.counters.overEnergy += energy
}

// drift counts that a control stands at another value than powerd wrote: once,
// however many looks in a row that is seen. what is looked at each so often.
func (t *tally) drift(now time.Duration, control, what string, every time.Duration) {
	seen := t.strayed[what]
	t.strayed[what] = now
	if seen == 0 || now-seen > 2*every {
		t.counters.drifts++
		t.loop.Drifted(control)
	}
}

// writeFailed counts a write of a control that did not hold; nil counts nothing.
func (t *tally) writeFailed(control string, err error) {
	if err != nil {
		t.counters.writeErrors++
		t.loop.WriteFailed(control, reasonOf(err))
	}
}

// ceilingsWritten counts what became of a write of all ceilings. What failed before
// the first of them, such as recording the values, failed for each.
func (t *tally) ceilingsWritten(f *machine.Frequency, err error) {
	var refused *dvfs.WriteError
	switch {
	case err == nil:
	case errors.As(err, &refused), errors.Is(err, machine.ErrNotLower):
		for _, one := range f.Report {
			switch one.State {
			case dvfs.Failed:
				t.writeFailed(one.Policy, one.Err)
			case dvfs.Drifted:
				t.writeFailed(one.Policy, machine.ErrNotLower)
			case dvfs.Unset, dvfs.Held, dvfs.Lower, dvfs.Offline:
			}
		}
	default:
		for _, p := range f.Set.Policies() {
			t.writeFailed(p.Name, err)
		}
	}
}

// reasonOf is why a write did not hold, as metrics count it.
func reasonOf(err error) metrics.Reason {
	is := func(any ...error) bool {
		return slices.ContainsFunc(any, func(one error) bool { return errors.Is(err, one) })
	}
	var locked *rapl.LockedError
	var untouched *systemd.RefusedError
	switch {
	case errors.As(err, &locked):
		return metrics.Locked
	case is(rapl.ErrNotTaken, dvfs.ErrNotTaken, machine.ErrNotLower, systemd.ErrNotTaken, ipmi.ErrLimitUnsafe):
		return metrics.NotTaken
	case is(rapl.ErrZeroLimit, rapl.ErrTooHigh, rapl.ErrNoConstraint, systemd.ErrDenied, systemd.ErrTooSmall,
		ipmi.ErrRefused, ipmi.ErrDenied, ipmi.ErrNoLimit, ipmi.ErrLimitRange,
		fs.ErrPermission, syscall.EINVAL, syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENODATA), errors.As(err, &untouched):
		return metrics.Refused
	}
	return metrics.IO
}

// throttled takes how often the hardware held the node back since powerd began.
func (t *tally) throttled(cores, packages, events uint64) {
	t.counters.thermalEvents = cores + packages + events
	t.loop.SetThrottled(cores, packages, events)
}
