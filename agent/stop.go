package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/agent/statedir"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/lease"
)

// restoreCall is a request to restore the originals, from an operator or from powerd.
type restoreCall struct {
	force  bool
	change *headroomv1.Change
	reply  chan restoreReply // nil: no caller waits
}

// restoreReply is the result.
type restoreReply struct {
	out originals.Outcome
	err error
}

func (c *restoreCall) answer(r restoreReply) {
	if c.reply != nil {
		c.reply <- r // buffered
	}
}

// releaser restores the originals: for an operator, when powerd stops, and when a release
// of its own is granted. It belongs to the owner goroutine.
type releaser struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items
	id     machine.Identity

	lease    *lease.Node
	machine  *machine.Machine
	control  *controller
	exchange *exchange
	tuner    *tuner
	records  *records.Records
	report   *reporter
	remote   *remote.Remote
	servers  *sync.WaitGroup

	asked   *restoreCall  // waits for the leader's answer
	answers chan error    // of request
	retryAt time.Duration // of the next release without a caller
}

// change describes a request of powerd itself.
func (r *releaser) change(reason string) *headroomv1.Change {
	return &headroomv1.Change{Actor: "powerd/" + r.cfg.Node, Reason: reason, RequestId: cli.RequestID()}
}

// restore carries out `powerd limit restore`.
func (r *releaser) restore(ctx context.Context, call *restoreCall) {
	switch {
	case r.records.Journal == nil:
		call.answer(restoreReply{})
	case call.force || r.cfg.Alone():
		out := r.putBack()
		r.exchange.reopen(ctx)
		call.answer(restoreReply{out: out})
	case r.asked != nil:
		call.answer(restoreReply{err: &cli.Error{
			Code: "busy", Exit: cli.ExitConflict,
			Message: "a release is already in progress", Hint: "retry in a few seconds",
		}})
	default:
		r.ask(ctx, call)
	}
}

// ask requests a release from the leader without blocking the loop.
func (r *releaser) ask(ctx context.Context, call *restoreCall) {
	r.asked = call
	r.lease.Leave()
	settled, onTrial := r.exchange.addresses()
	addrs := slices.Concat(settled, onTrial)
	if l := r.exchange.streams.Leader(); l != nil {
		addrs = append([]string{l.Addr}, addrs...)
	}
	req := &headroomv1.ReleaseRequest{Node: r.cfg.Node, MachineId: r.id.Machine, Change: call.change}
	r.servers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, releaseWait)
		defer cancel()
		r.answers <- r.request(ctx, addrs, req)
	})
}

// answer handles the leader's answer to a release. done reports whether powerd was waiting
// for it in order to stop.
func (r *releaser) answer(ctx context.Context, err error) (done bool) {
	call := r.asked
	r.asked = nil
	r.lease.Stay()
	if err != nil {
		r.health.Warn(true, "restore-refused",
			"release refused, the fail-safe cap stays written: "+err.Error(),
			"free some budget, or use powerd limit restore --force")
		call.answer(restoreReply{err: err})
		if r.control.stopping {
			r.staySafe(err.Error())
		}
		return r.control.stopping
	}
	r.health.Clear("restore-refused")
	out := r.putBack()
	call.answer(restoreReply{out: out})
	if !r.control.stopping {
		r.exchange.reopen(ctx)
	}
	return r.control.stopping
}

// beginStop begins to restore the machine. done reports whether nothing is pending.
func (r *releaser) beginStop(ctx context.Context) (done bool) {
	r.control.stopping = true
	switch {
	case r.control.mode != holding || r.records.Journal == nil:
		return true
	case r.cfg.Alone():
		r.putBack()
		return true
	case r.asked == nil:
		r.ask(ctx, &restoreCall{change: r.change("powerd stopped")})
	}
	return false
}

// staySafe leaves the node at its fail-safe cap, with a log line.
func (r *releaser) staySafe(reason string) {
	r.lease.Drop()
	r.control.decide(instant())
	r.control.apply() // no coordinator is connected
	r.settleWriter()
	if want := r.control.bound(); r.control.writeErr == nil && r.records.OnDisk().Allows(want) {
		if err := r.records.WriteHeld(want); err != nil {
			r.log.Warn("held.json not written", slog.Any("error", err))
		}
	}
	r.log.Warn("not released; fail-safe cap stays written, original limits stay saved",
		slog.Float64("cap_w", r.lease.Memory().FailSafe.Watts()), slog.String("reason", reason),
		slog.String("hint", "powerd limit restore --force restores the limits without a release"))
}

// putBack restores the originals. The node then holds no cap, unless the state directory
// does not answer: then nothing is restored, and it keeps its cap.
func (r *releaser) putBack() originals.Outcome {
	r.settleWriter()
	err := r.records.WriteHeld(records.Bound{Cap: r.cfg.Power.Rated, State: records.StateReleased, Stamp: r.lease.Memory().Highest})
	if err != nil {
		r.log.Warn("held.json not written", slog.Any("error", err))
	}
	if errors.Is(err, statedir.ErrLate) {
		return r.records.NotPutBack(err)
	}
	r.remote.Stop()
	r.lease.Release()
	r.exchange.leaseEnd.Store(0)
	r.control.mode, r.control.draining = released, false
	r.control.caps = caps{}
	out, err := r.records.PutBack("the node was released", r.remote.PutBack())
	if err != nil {
		r.log.Warn("journal not removed", slog.Any("error", err))
	}
	r.machine.Forget()
	r.tuner.forget()
	r.report.publish(instant())
	return out
}

// settleWriter waits until the writer is idle, so that an older held.json cannot replace a
// newer one.
func (r *releaser) settleWriter() {
	late := time.NewTimer(records.SettleWait)
	defer late.Stop()
	for r.records.Writer != nil && (r.lease.Storing() || r.records.Busy()) {
		select {
		case j := <-r.records.Writer.Done():
			r.settled(j)
		case <-late.C:
			r.log.Warn("state directory not responding", slog.String("state_dir", r.cfg.StateDir))
			return
		}
	}
}

// settled is stored for a job without a waiting caller.
func (r *releaser) settled(j statedir.Job) {
	switch j.Kind {
	case statedir.Held:
		r.records.HeldStored(j.Err)
	case statedir.Memory:
		r.lease.Settled(j.Err)
	case statedir.Coordinators:
		r.exchange.cacheBusy = false
	case statedir.Controls:
		r.records.JournalStored(j.Err)
	case statedir.Denied:
	}
}

// retryRelease is the pause between two requests for a release without a caller.
const retryRelease = 10 * time.Second

// drain requests a release of the controls that an earlier powerd left, if this one may not
// write, until it is granted.
func (r *releaser) drain(ctx context.Context, now time.Duration) {
	if !r.control.draining || r.control.mode != holding || now < r.retryAt {
		return
	}
	switch {
	case r.cfg.Alone() && now-r.control.began > remote.PutBackWait: // controls of other programs are restored by now
		r.retryAt = now + retryRelease
		r.putBack()
	case r.exchange.streams.Leader() != nil && r.asked == nil:
		r.retryAt = now + retryRelease
		r.ask(ctx, &restoreCall{change: r.change("enforce is false")})
	}
}
