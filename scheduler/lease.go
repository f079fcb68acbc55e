package scheduler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/api/headroom/v1/headroomv1connect"
	"headroom/internal/cli"
	"headroom/internal/pause"
	"headroom/scheduler/leader"
	"headroom/scheduler/yarn"
)

const (
	// holdEvery is the interval of renewals, and of a standby's attempts.
	holdEvery = time.Second
	// holdWait bounds one attempt: a hung coordinator must leave time for another one.
	holdWait = 2 * time.Second
	// watchEvery is how often the end of the lease is looked at; the loop looks at each action.
	watchEvery = 100 * time.Millisecond
	// releaseWait bounds the release at a stop.
	releaseWait = 2 * time.Second
)

// errLost ends the acting of a scheduler whose lease has ended.
var errLost = fmt.Errorf("lease lost: %w", yarn.ErrHandedOver)

// tenure is the time that a scheduler is the active one, under one lease. Epoch 0 is without a lease: the coordinators are of
// an older version, or some of them are.
//
// Invariant: once held has returned false, it never returns true again.
type tenure struct {
	process string
	epoch   atomic.Uint64
	key     []byte
	boot    func() time.Duration
	end     atomic.Int64 // on CLOCK_BOOTTIME, in nanoseconds
	lost    atomic.Bool
}

// held reports whether the scheduler may act. The lease is counted from when its renewal was sent.
func (l *tenure) held() bool {
	if l == nil {
		return true // a loop without a server, in tests
	}
	if l.epoch.Load() != 0 && l.boot() >= time.Duration(l.end.Load()) {
		l.lost.Store(true)
	}
	return !l.lost.Load()
}

// Epoch returns the epoch of the lease, 0 for none.
func (l *tenure) Epoch() uint64 {
	if l == nil {
		return 0
	}
	return l.epoch.Load()
}

// leases asks the coordinators for the lease of the active scheduler.
type leases struct {
	// self is what this scheduler tells of itself in every request.
	self    *headroomv1.HoldSchedulerRequest
	ask     func(context.Context, *headroomv1.HoldSchedulerRequest) (*headroomv1.HoldSchedulerResponse, error)
	boot    func() time.Duration
	gateway *gateway
	// another is called at each attempt while another scheduler is active; it may be nil.
	another func()
	logger  *slog.Logger
}

func newLeases(id identity, dir, address string, key []byte, c *leader.Client, g *gateway, logger *slog.Logger) *leases {
	return &leases{
		self: &headroomv1.HoldSchedulerRequest{Id: id.ID, Place: placeOf(dir), Address: address, Key: key},
		ask: func(ctx context.Context, r *headroomv1.HoldSchedulerRequest) (*headroomv1.HoldSchedulerResponse, error) {
			return leader.Ask(ctx, c, "hold the scheduler's lease", headroomv1connect.JobServiceClient.HoldScheduler, r)
		},
		boot: sinceBoot, gateway: g, logger: logger,
	}
}

// sinceBoot is CLOCK_BOOTTIME: it runs on through suspend.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 1<<63 - 1 // no such clock: no lease is ever held
	}
	return time.Duration(t.Nano())
}

// placeOf identifies the locked folder on this machine since it booted: two processes that have
// locked the same place cannot run at once. It is empty if that cannot be told.
func placeOf(dir string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var st unix.Stat_t
	if err != nil || unix.Stat(filepath.Join(dir, lockFile), &st) != nil {
		return ""
	}
	return fmt.Sprintf("%s/%d/%d", strings.TrimSpace(string(boot)), st.Dev, st.Ino)
}

// try asks once. It returns nil if another scheduler is active.
func (k *leases) try(ctx context.Context, process string) (*tenure, error) {
	l := &tenure{process: process, boot: k.boot}
	if err := k.renew(ctx, l); err != nil || l.lost.Load() {
		return nil, err
	}
	return l, nil
}

// renew asks for l's process. An old version of the coordinators, or of one of them, leaves the epoch at 0.
func (k *leases) renew(parent context.Context, l *tenure) error {
	ctx, cancel := context.WithTimeout(parent, holdWait)
	defer cancel()
	r := &headroomv1.HoldSchedulerRequest{Id: k.self.GetId(), Place: k.self.GetPlace(), Address: k.self.GetAddress(), Key: k.self.GetKey(), Process: l.process}
	sent := k.boot()
	a, err := k.ask(ctx, r)
	switch {
	case err != nil && withoutLease(err) && l.epoch.Load() == 0:
		return nil
	case err != nil:
		return err
	case !a.GetHeld() || l.epoch.Load() != 0 && l.epoch.Load() != a.GetEpoch():
		k.gateway.standBy(a.GetName(), a.GetAddress())
		l.lost.Store(true)
		return nil
	}
	l.end.Store(int64(sent + time.Duration(a.GetLeaseMs())*time.Millisecond))
	if l.epoch.Swap(a.GetEpoch()) == 0 {
		l.key = a.GetKey()
	}
	return nil
}

// withoutLease reports whether coordinators that answered so know no lease of a scheduler yet.
func withoutLease(err error) bool {
	e, ok := errors.AsType[*cli.Error](err)
	return ok && (e.Code == "unimplemented" || e.Code == "old-rules")
}

// acquire waits until this scheduler is the active one; nil once ctx has ended. waiting is called before the first wait.
func (k *leases) acquire(ctx context.Context, waiting func()) *tenure {
	process, said := rand.Text(), ""
	for {
		l, err := k.try(ctx, process)
		switch {
		case l != nil:
			return l
		case ctx.Err() != nil:
			return nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		name, address := k.gateway.activeOne()
		if err == nil && address != "" && k.another != nil {
			k.another()
		}
		if now := fmt.Sprintf("%s %s %t", name, address, err == nil); said != now {
			said = now
			if err != nil {
				k.logger.Warn("scheduler's lease not obtained; retrying", slog.Any("error", err))
			} else {
				k.logger.Info("on standby; another scheduler is active", slog.String("active", name), slog.String("address", address))
			}
		}
		if !pause.For(ctx, holdEvery) {
			return nil
		}
	}
}

// keep renews l until ctx ends; then it returns nil, and errLost as soon as the lease has ended.
func (k *leases) keep(parent context.Context, l *tenure) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		failed := false
		for pause.For(ctx, holdEvery) {
			err := k.renew(ctx, l)
			if err != nil && !failed && ctx.Err() == nil {
				k.logger.Warn("scheduler's lease not renewed", slog.Any("error", err))
			}
			failed = err != nil
		}
	}()
	defer func() { cancel(); <-renewed }()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for l.held() {
		select {
		case <-parent.Done():
			return nil
		case <-tick.C:
		}
	}
	k.logger.Warn("scheduler's lease lost; stopped acting", slog.Uint64("epoch", l.Epoch()))
	return errLost
}

// release ends the lease, once nothing acts under it, so that another scheduler need not wait.
func (k *leases) release(ctx context.Context, l *tenure) {
	if l.Epoch() == 0 || !l.held() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if _, err := k.ask(ctx, &headroomv1.HoldSchedulerRequest{Id: k.self.GetId(), Release: l.Epoch()}); err != nil {
		k.logger.Warn("scheduler's lease not released; another scheduler waits for its end", slog.Any("error", err))
	}
}
