package agent

import (
	"context"
	"fmt"
	"time"

	"headroom/agent/config"
	"headroom/agent/remote"
	"headroom/agent/statedir"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/thermal"
)

const (
	// publishEvery is the number of seconds between two published states without a query.
	publishEvery = 4
	// certificateEvery is the number of seconds between two checks of a certificate in use: it may end, or be
	// replaced by another one.
	certificateEvery = 10
	// heatEvery is the number of seconds between two reads of temperatures without a sprint.
	heatEvery = 4
)

// serve runs the loop until ctx ends and the node has been released or has
// settled at its fail-safe cap.
func (n *node) serve(ctx context.Context) error {
	n.records.Start()
	defer n.records.Stop()
	socket, err := rpc.ListenUnix(SocketPath(n.cfg.StateDir))
	if err != nil {
		return n.abandon(err)
	}
	n.network.Start()
	// The timers of gossip start now too, at multiples of period: coinciding timers
	// cost one wake-up.
	tick := time.NewTicker(period)
	defer tick.Stop()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // streams outlive the stop signal
	defer n.endServers(cancel)
	n.servers.Go(func() { n.serveSocket(inner, socket) })
	n.servers.Go(func() { cli.OnHangup(inner, func() { n.network.Reload(inner, n.calls) }) })
	n.meter.Start()
	n.remote.Start(inner, n.cfg, n.meter.BMC, &n.servers)
	n.network.Follow(inner)
	n.watchCut(instant())
	n.heat.Watch(inner, n.cfg)
	if err := n.startMetrics(inner); err != nil {
		n.health.Warn(true, "metrics",
			err.Error(), config.HintOf(err))
	}
	n.report.publish(instant())
	return n.loop(ctx, inner, tick.C)
}

// abandon gives up before the node has joined the cluster: it restores what this process
// changed, and keeps what an earlier one left.
func (n *node) abandon(err error) error {
	if n.records.Own && n.control.mode == holding {
		n.release.putBack()
	}
	return err
}

func (n *node) endServers(cancel context.CancelFunc) {
	cancel()
	n.exchange.streams.End()
	n.servers.Wait()
	n.network.Close()
}

// loop is the owner: every change of the node's state happens here.
func (n *node) loop(ctx, inner context.Context, tick <-chan time.Time) error {
	defer n.exchange.expiry.Stop()
	n.exchange.reconcile(inner)
	n.exchange.leaderAt = instant().Boot
	stop, deadline := ctx.Done(), (<-chan time.Time)(nil)
	beatAt := time.Duration(0)
	for {
		found, braked := n.network.Told()
		select {
		case <-tick:
			now := instant()
			n.manager.beat()
			n.tally.turn(now.Boot, n.turnAt)
			n.turnAt = now.Boot
			n.turn(now)
			if now.Boot >= beatAt {
				beatAt = max(beatAt+beat, now.Boot+beat/2)
				n.exchange.heartbeat()
				n.housekeep(inner, now)
			}
		case <-n.exchange.expiry.C:
			n.turn(instant())
		case e := <-n.exchange.streams.Told():
			if err := n.exchange.take(e); err != nil {
				if n.control.mode == holding {
					n.release.putBack()
				}
				return err
			}
		case j := <-n.records.Writer.Done():
			n.stored(j)
		case c := <-n.exchange.streams.Certificates():
			n.exchange.certified(inner, c)
		case <-braked:
			n.brakeHeard()
		case <-found:
			n.exchange.reconcile(inner)
		case r := <-n.remote.Reports:
			n.remoteTold(r, instant().Boot)
		case <-n.network.Changed:
			n.network.LinksTold()
			n.watchCut(instant())
		case g := <-n.network.Moved:
			n.network.GossipMoved(g)
		case e, open := <-n.heat.Events:
			n.heatTold(e, open)
		case call := <-n.calls:
			call(inner)
		case call := <-n.restores:
			n.release.restore(inner, call)
		case err := <-n.release.answers:
			if done := n.release.answer(inner, err); done {
				return nil
			}
		case <-stop:
			stop = nil
			n.manager.stopping()
			if done := n.release.beginStop(inner); done {
				return nil
			}
			deadline = time.After(releaseWait)
		case <-deadline:
			n.release.staySafe("nobody answered in time")
			return nil
		}
	}
}

// turn is one step of the inner loop: gather, decide, apply, verify.
//
//headroom:control
func (n *node) turn(now lease.Instant) {
	n.exchange.carryOut(n.lease.Advance(now))
	n.control.gather(now)
	n.control.decide(now)
	n.exchange.carryOut(n.control.apply())
	if n.control.mode == holding && n.tuner.tune(now.Boot, n.control.caps.running != "") {
		n.hotplug.turboMoved()
	}
	n.control.noteSettle(now.Boot)
	n.tally.loop.ObserveStep(instant().Boot - now.Boot)
}

// remoteTold handles a report about a control of another program.
func (n *node) remoteTold(r remote.Report, now time.Duration) {
	switch {
	case r.LookedForRivals:
		n.drift.rivalsFound(r.Rivals, r.Err)
	case r.Limit != nil:
		n.limit.told(*r.Limit)
	default:
		n.slices.told(r.Slices, r.Err, now)
	}
}

// heatTold handles a thermal event of the kernel; a sprint ends at once.
func (n *node) heatTold(e thermal.Event, open bool) {
	if !open {
		n.heat.EndEvents()
		return
	}
	now := instant()
	was := n.heat.Hot(now.Boot)
	n.heat.Take(now.Boot, e)
	if n.heat.Hot(now.Boot) && !was && n.control.caps.running != "" {
		n.turn(now)
	}
}

// stored handles a report of the writer.
//
//headroom:control
func (n *node) stored(j statedir.Job) {
	switch j.Kind {
	case statedir.Held:
		n.records.NoteHeld(j.Err)
		if n.records.HeldStored(j.Err) {
			n.exchange.carryOut(n.control.apply())
		}
	case statedir.Memory:
		n.exchange.memoryStored(j.Err)
	case statedir.Coordinators:
		n.exchange.cacheBusy = false
	case statedir.Denied:
		n.denied.stored(j)
	case statedir.Controls:
		n.records.JournalStored(j.Err)
		n.locals.awaitCeiling(instant().Boot)
	}
}

// housekeep runs once a second.
//
//headroom:control
func (n *node) housekeep(inner context.Context, now lease.Instant) {
	n.seconds++
	holds := n.control.mode == holding
	n.control.busy, n.control.busyKnown = n.machine.Busy()
	n.denied.save()
	n.exchange.watch(now.Boot)
	n.meter.Watch(now.Boot, n.control.began, holds, n.control.busy, n.control.busyKnown)
	n.control.watch()
	if n.seconds%heatEvery == 0 {
		n.heat.Look(now.Boot)
	}
	if n.seconds%refreshEvery == 0 {
		n.hotplug.look(n.seconds)
	}
	if holds {
		n.drift.watchFields(now.Boot, n.control.mayWriteOver)
	}
	n.records.Keep()
	n.brake.watch(holds)
	n.tally.throttled(n.heat.Report(now.Boot, n.health))
	n.limit.keep(now.Boot)
	n.slices.step()
	n.locals.expire(now.Boot)
	n.locals.awaitCeiling(now.Boot)
	n.watchCut(now)
	n.network.Housekeep(inner, now.Boot, n.calls)
	err := n.network.Trouble()
	n.health.Fail(err != nil, "gossip", fmt.Sprintf("no gossip, a brake arrives from the leader only: %v", err), config.HintOf(err))
	n.release.drain(inner, now.Boot)
	n.exchange.reconcile(inner)
	if n.seconds%certificateEvery == 0 {
		n.exchange.streams.Look()
	}
	n.manager.status(n.report.summary)
	if n.seconds%publishEvery == 0 {
		n.report.publish(now) // a query gets a fresh status; this one is for when the owner is stuck
	}
}

// watchCut reports whether no link leads to a coordinator, before the lease ends.
func (n *node) watchCut(now lease.Instant) {
	text := "no link to a coordinator is up"
	if left, held := n.lease.Remaining(now); held {
		text += fmt.Sprintf("; the lease expires within %.0fs, then the node holds its fail-safe cap of %v",
			left.Seconds(), n.lease.Memory().FailSafe)
	}
	n.health.Warn(n.network.CutOff, "cut-off", text,
		"check cable, switch and address: ip link, ip addr")
}
