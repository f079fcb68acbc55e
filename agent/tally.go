package agent

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/machine"
	"headroom/agent/metrics"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/dvfs"
	"headroom/internal/wire"
	"headroom/ipmi"
	"headroom/lease"
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
	n.log.Info("metrics are served", slog.String("address", l.Addr().String()))
	told := metrics.New(Version, func() *headroomv1.GetAgentStatusResponse { return n.scraped(ctx) }, n.tally)
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
	res, err := front{n: n}.GetAgentStatus(ctx, connect.NewRequest(&headroomv1.GetAgentStatusRequest{}))
	if err != nil {
		return n.snapshot()
	}
	return res.Msg
}

// countDrift counts that a control stands at another value than powerd wrote: once,
// however many looks in a row that is seen. what is looked at each so often.
func (n *node) countDrift(now time.Duration, control, what string, every time.Duration) {
	seen := n.strayed[what]
	n.strayed[what] = now
	if seen == 0 || now-seen > 2*every {
		n.counters.drifts++
		n.tally.Drifted(control)
	}
}

// countWrite counts a write of a control that did not hold; nil counts nothing.
func (n *node) countWrite(control string, err error) {
	if err != nil {
		n.counters.writeErrors++
		n.tally.WriteFailed(control, reasonOf(err))
	}
}

// countCeilings counts what became of a write of all ceilings. What failed before
// the first of them, such as recording the values, failed for each.
func (n *node) countCeilings(err error) {
	var refused *dvfs.WriteError
	f := n.machine.Freq
	switch {
	case err == nil:
	case errors.As(err, &refused), errors.Is(err, machine.ErrNotLower):
		for _, one := range f.Report {
			switch one.State {
			case dvfs.Failed:
				n.countWrite(one.Policy, one.Err)
			case dvfs.Drifted:
				n.countWrite(one.Policy, machine.ErrNotLower)
			case dvfs.Unset, dvfs.Held, dvfs.Lower, dvfs.Offline:
			}
		}
	default:
		for _, p := range f.Set.Policies() {
			n.countWrite(p.Name, err)
		}
	}
}

// reasonOf is why a write did not hold, as metrics count it.
func reasonOf(err error) metrics.Reason {
	is := func(any ...error) bool {
		for _, one := range any {
			if errors.Is(err, one) {
				return true
			}
		}
		return false
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

// leaseInForce is the lease that the cap comes with, nil where it comes with none.
func (n *node) leaseInForce() *headroomv1.Stamp {
	if _, state := n.lease.Cap(); state != lease.Held {
		return nil
	}
	return wire.StampMessage(n.lease.Applied())
}
