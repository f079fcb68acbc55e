package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"headroom/agent/originals"
	"headroom/agent/statedir"
	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
)

// restoreCall is an operator's wish to have the originals back, or powerd's own.
type restoreCall struct {
	force  bool
	change *headroomv1.Change
	reply  chan restoreReply // nil: nobody waits
}

// restoreReply is how it went.
type restoreReply struct {
	out originals.Outcome
	err error
}

func (c *restoreCall) answer(r restoreReply) {
	if c.reply != nil {
		c.reply <- r // buffered
	}
}

// change is what powerd says when it asks for something on its own account.
func (n *node) change(reason string) *headroomv1.Change {
	return &headroomv1.Change{Actor: "powerd/" + n.cfg.Node, Reason: reason, RequestId: cli.RequestID()}
}

// restore carries out `powerd limit restore`.
func (n *node) restore(ctx context.Context, call *restoreCall) {
	switch {
	case n.records.journal == nil:
		call.answer(restoreReply{})
	case call.force || n.cfg.Alone():
		out := n.putBackNow()
		n.reopen(ctx)
		call.answer(restoreReply{out: out})
	case n.asked != nil:
		call.answer(restoreReply{err: &cli.Error{
			Code: "busy", Exit: cli.ExitConflict,
			Message: "a release is being asked for already", Hint: "try again in a few seconds",
		}})
	default:
		n.ask(ctx, call)
	}
}

// ask asks the leader for a release without making the loop wait.
func (n *node) ask(ctx context.Context, call *restoreCall) {
	n.asked = call
	n.lease.Leave()
	settled, onTrial := n.addresses()
	addrs := slices.Concat(settled, onTrial)
	if l := n.streams.Leader(); l != nil {
		addrs = append([]string{l.Addr}, addrs...)
	}
	req := &headroomv1.ReleaseRequest{Node: n.cfg.Node, MachineId: n.id.Machine, Change: call.change}
	n.servers.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, releaseWait)
		defer cancel()
		n.answers <- n.askRelease(ctx, addrs, req)
	})
}

// answer takes the leader's answer to a release. done says that powerd was only
// waiting for it to stop.
func (n *node) answer(ctx context.Context, err error) (done bool) {
	call := n.asked
	n.asked = nil
	n.lease.Stay()
	if err != nil {
		n.health.Warn(true, "restore-refused",
			"the originals stay saved and the fail-safe cap written: "+err.Error(),
			"make room in the budget, or put them back anyway: powerd limit restore --force")
		call.answer(restoreReply{err: err})
		if n.stopping {
			n.staySafe(err.Error())
		}
		return n.stopping
	}
	n.health.Clear("restore-refused")
	out := n.putBackNow()
	call.answer(restoreReply{out: out})
	if !n.stopping {
		n.reopen(ctx)
	}
	return n.stopping
}

// beginStop starts leaving the machine as it was found. done says that nothing
// has to be waited for.
func (n *node) beginStop(ctx context.Context) (done bool) {
	n.stopping = true
	switch {
	case n.mode != holding || n.records.journal == nil:
		return true
	case n.cfg.Alone():
		n.putBackNow()
		return true
	case n.asked == nil:
		n.ask(ctx, &restoreCall{change: n.change("powerd stops")})
	}
	return false
}

// staySafe leaves the node at its fail-safe cap and says so.
func (n *node) staySafe(reason string) {
	n.lease.Drop()
	n.decide(instant())
	n.apply()
	n.settleWriter()
	if want := n.exactCover(); n.writeErr == nil && n.records.cover.allows(want) {
		if err := n.records.writeHeld(want); err != nil {
			n.log.Warn("held.json not written", slog.Any("error", err))
		}
	}
	n.log.Warn("not released: the fail-safe cap stays written and the originals stay saved",
		slog.Float64("cap_w", n.lease.Memory().FailSafe.Watts()), slog.String("reason", reason),
		slog.String("hint", "powerd limit restore --force puts them back anyway"))
}

// putBackNow puts the originals back. From here on the node holds no cap, unless the state
// directory does not answer: then nothing goes back, and it goes on holding.
func (n *node) putBackNow() originals.Outcome {
	n.settleWriter()
	err := n.records.writeHeld(cover{cap: n.cfg.Power.Rated, state: stateReleased, stamp: n.lease.Memory().Highest})
	if err != nil {
		n.log.Warn("held.json not written", slog.Any("error", err))
	}
	if errors.Is(err, statedir.ErrLate) {
		return n.records.notPutBack(err)
	}
	if n.far != nil {
		n.far.stop()
	}
	n.lease.Release()
	n.leaseEnd.Store(0)
	n.mode, n.draining = released, false
	n.caps = caps{}
	out, err := n.records.putBack("the node was released", n.far.hand())
	if err != nil {
		n.log.Warn("journal not removed", slog.Any("error", err))
	}
	n.machine.Forget()
	n.tuner.forget()
	n.publish(instant())
	return out
}

// settleWait bounds waiting for the state directory: a stop must not hang on a
// disk that does.
const settleWait = 2 * time.Second

// settleWriter waits until the writer has nothing under way, so that an older
// held.json cannot come after a newer one.
func (n *node) settleWriter() {
	late := time.NewTimer(settleWait)
	defer late.Stop()
	for n.records.writer != nil && (n.lease.Storing() || n.records.busy()) {
		select {
		case j := <-n.records.writer.Done():
			n.settled(j)
		case <-late.C:
			n.log.Warn("the state directory does not answer", slog.String("state_dir", n.cfg.StateDir))
			return
		}
	}
}

// settled is stored for a job that nobody waits for any more.
func (n *node) settled(j statedir.Job) {
	switch j.Kind {
	case statedir.Held:
		n.records.heldStored(j.Err)
	case statedir.Memory:
		n.lease.Settled(j.Err)
	case statedir.Coordinators:
		n.cacheBusy = false
	case statedir.Controls:
		n.records.journalStored(j.Err)
	case statedir.Denied:
	}
}
