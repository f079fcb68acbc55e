package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"headroom/capping"
	"headroom/gossip"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/units"
)

const (
	// looseElapsed is the shortest time over which a fresh sample is worth taking:
	// counters move once a millisecond, and the parts of one sample are read one
	// after the other.
	looseElapsed = 50 * time.Millisecond
	// quietLeader is how long no leader may be known before that is a warning.
	quietLeader = 5 * time.Second
	// quietSensor is how long power may be unknown before that is a warning.
	quietSensor = 2 * time.Second
	// driftShown is how long a drift stays visible after it was corrected.
	driftShown = 10 * time.Second
	// retryRelease is the pause between two requests for a release that nobody waits for.
	retryRelease = 10 * time.Second
	// missed heartbeats after which the node asks every coordinator.
	missedMax = 2
)

// serve runs the loop until ctx ends and the node has been released or has
// settled at its fail-safe cap.
func (n *node) serve(ctx context.Context) error {
	n.clerk = startClerk(n.disk)
	defer n.clerk.stop()
	socket, err := rpc.ListenUnix(n.cfg.StateDir + "/" + socketFile)
	if err != nil {
		return n.abandon(err)
	}
	if err := n.startGossip(); err != nil {
		return n.abandon(errors.Join(err, socket.Close()))
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // streams outlive the stop signal
	defer n.endServers(cancel)
	n.servers.Go(func() { n.serveSocket(inner, socket) })
	n.publish(instant())
	return n.loop(ctx, inner)
}

// abandon gives up before the node has ever been in the cluster: what this
// process changed goes back, what an earlier one left stays.
func (n *node) abandon(err error) error {
	if n.ownJournal && n.mode == holding {
		n.putBackNow()
	}
	return err
}

func (n *node) startGossip() error {
	if n.cfg.Gossip.Bind == "" {
		return nil
	}
	g, err := gossip.Start(gossip.Config{
		Name: n.cfg.Node, Role: gossip.RoleNode, Bind: n.cfg.Gossip.Bind, Key: n.key, Join: n.cfg.Gossip.Join, Logger: n.log,
	})
	n.gossip = g
	return err
}

func (n *node) endServers(cancel context.CancelFunc) {
	for _, l := range n.links {
		l.cancel()
	}
	cancel()
	for _, l := range n.links {
		l.close()
	}
	n.servers.Wait()
	if n.gossip != nil {
		if err := n.gossip.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			n.log.Debug("gossip did not close cleanly", slog.Any("error", err))
		}
	}
}

// loop is the owner: every change of the node's state happens here.
func (n *node) loop(ctx, inner context.Context) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	defer n.expiry.Stop()
	var found <-chan struct{}
	if n.gossip != nil {
		found = n.gossip.Changed()
	}
	n.reconcile(inner)
	n.leaderAt = instant().Boot
	stop, deadline := ctx.Done(), (<-chan time.Time)(nil)
	beatAt := time.Duration(0)
	for {
		select {
		case <-tick.C:
			now := instant()
			n.turn(now)
			if now.Boot >= beatAt {
				beatAt = max(beatAt+beat, now.Boot+beat/2)
				n.heartbeat()
				n.housekeep(inner, now)
			}
		case <-n.expiry.C:
			n.turn(instant())
		case e := <-n.events:
			if err := n.take(e); err != nil {
				return err
			}
		case e := <-n.clerk.done:
			n.stored(e)
		case <-found:
			n.reconcile(inner)
		case call := <-n.restores:
			n.restore(inner, call)
		case err := <-n.answers:
			if done := n.answer(inner, err); done {
				return nil
			}
		case <-stop:
			stop = nil
			if done := n.beginStop(inner); done {
				return nil
			}
			deadline = time.After(releaseWait)
		case <-deadline:
			n.staySafe("nobody answered in time")
			return nil
		}
	}
}

// turn is one move of the inner loop: gather, decide, apply, verify.
func (n *node) turn(now lease.Instant) {
	n.advance(now)
	n.gather(now.Boot)
	n.decide(now.Boot)
	n.apply()
}

// advance tells the holder the time.
func (n *node) advance(now lease.Instant) {
	_, before := n.holder.Cap()
	n.holder.Advance(now)
	if _, state := n.holder.Cap(); state != before {
		n.log.Warn("lease ended, holding the fail-safe cap",
			slog.String("reason", n.holder.Why().String()), slog.Float64("cap_w", n.holder.Memory().FailSafe.Watts()))
		n.leaseEnd.Store(0)
	}
}

// gather reads the limits, and the counters unless that was done just before.
func (n *node) gather(now time.Duration) {
	n.machine.readBack()
	n.noteDrift(now)
	if now-n.machine.lookedAt < looseElapsed {
		n.sample.Elapsed = 0 // the last reading, which has been taken in before
		return
	}
	n.sample = n.machine.look(now)
	if n.sample.Package.Known {
		n.knownAt = now
	}
	n.wall.add(n.wallReading(), n.sample.Elapsed)
	n.demand.Observe(now, capping.Look{
		Wall: n.wallReading(), Limited: n.mode == holding && n.law.Limited, Busy: n.busy, BusyKnown: n.busyOK, Elapsed: n.sample.Elapsed,
	})
}

// noteDrift keeps the highest excess until a heartbeat has told it.
func (n *node) noteDrift(now time.Duration) {
	if n.mode != holding {
		return
	}
	excess, ok := n.machine.excess()
	n.excess, n.excessOK = max(n.excess, excess), n.excessOK && ok
	for _, s := range n.machine.sockets {
		if s.drifted {
			n.driftAt = now
			n.health.set(true, item{
				"limit-drift", warn,
				fmt.Sprintf("%s holds %v, %v was written; another program may be writing", s.zone.Label, s.effective.long, s.written.long),
				"find the other writer (thermald, tuned, an EAR or GEOPM daemon) and stop it; powerd writes its own limit again",
			})
		}
	}
	if n.driftAt == 0 || now-n.driftAt > driftShown {
		n.health.clear("limit-drift")
	}
}

// wallReading is the wall power that the model gives for the last sample.
func (n *node) wallReading() capping.Reading {
	in := n.sample
	if !in.Package.Known || (n.lawCfg.HasDRAM && !in.DRAM.Known) {
		return capping.Reading{}
	}
	return capping.Reading{Power: n.lawCfg.Wall(in.Package.Power, in.DRAM.Power), Known: true}
}

// decide turns the cap in force into limits.
func (n *node) decide(now time.Duration) {
	if n.mode != holding {
		return
	}
	granted, _ := n.holder.Cap()
	n.act, n.law = capping.Step(now, n.sample, granted, n.law, n.lawCfg)
	n.parts = n.machine.share(n.act, n.parts)
}

// apply writes what was decided, as far as held.json covers it; the rest waits
// for the clerk. Then it verifies.
func (n *node) apply() {
	if n.mode != holding {
		return
	}
	want := n.exactCover()
	covered := n.cover.allows(want)
	if !covered {
		n.askCover(n.cover.union(want))
	}
	n.writeErr = nil
	for i, s := range n.machine.sockets {
		to := s.requested
		if !covered {
			to = pair{min(to.long, n.cover.limits[i].long), min(to.short, n.cover.limits[i].short)}
		}
		n.writeErr = errors.Join(n.writeErr, s.write(to, n.trail.note))
	}
	n.health.set(n.writeErr != nil, item{
		"limit-refused", fail, fmt.Sprintf("a limit was not taken: %v", n.writeErr),
		"the node reports what reads back and is charged for it; see powerd status",
	})
	excess, ok := n.machine.excess()
	n.excessOK = n.excessOK && ok
	if n.writeErr != nil {
		n.excess = max(n.excess, excess)
		return
	}
	if !covered {
		return
	}
	if !n.cover.same(want) {
		n.askCover(want)
	}
	if _, state := n.holder.Cap(); state == lease.Held && n.applied != n.holder.Memory().Highest {
		n.applied = n.holder.Memory().Highest
		n.heartbeat()
		n.publish(instant())
	}
}

// askCover has held.json written. A cover that lies inside the present one counts
// from now on; one that allows more counts once it is on disk.
func (n *node) askCover(c cover) {
	if n.heldBusy {
		return // the next turn asks again
	}
	data, err := encodeHeld(n.cfg, c, n.machine.sockets)
	if err != nil {
		n.log.Error("held.json cannot be encoded", slog.Any("error", err))
		return
	}
	if n.cover.allows(c) {
		n.cover = c
	}
	n.heldBusy, n.covering = true, &c
	n.clerk.errands <- errand{kind: storeHeld, name: heldFile, data: data}
}

// stored takes the clerk's report.
func (n *node) stored(e errand) {
	switch e.kind {
	case storeHeld:
		n.heldBusy = false
		n.noteHeld(e.err)
		if e.err == nil && n.covering != nil {
			n.cover = *n.covering
			n.apply()
		}
	case storeMemory:
		n.memoryStored(e.err)
	case storeCoordinators:
		n.cacheBusy = false
	case errandKinds:
	}
}

// housekeep is what once a second is enough for.
func (n *node) housekeep(inner context.Context, now lease.Instant) {
	n.busy, n.busyOK = n.machine.busy()
	leader := n.leader()
	if leader != nil {
		n.leaderAt = now.Boot
	}
	n.health.set(!n.cfg.alone() && now.Boot-n.leaderAt > quietLeader, item{
		"no-leader", warn,
		fmt.Sprintf("no coordinator that leads has been reachable for %.0fs", (now.Boot - n.leaderAt).Seconds()),
		"the node holds its cap until the lease ends and its fail-safe cap afterwards; see coordinator status",
	})
	_, state := n.holder.Cap()
	n.health.set(n.mode == holding && n.everHeld && state != lease.Held, item{
		"lease-expired", warn,
		fmt.Sprintf("no lease (%v): the node holds its fail-safe cap of %v", n.holder.Why(), n.holder.Memory().FailSafe),
		"it comes back by itself once a leader grants again; see coordinator status",
	})
	n.health.set(len(n.machine.sockets) > 0 && now.Boot-max(n.knownAt, n.began) > quietSensor, item{
		"sensor", warn,
		"package power cannot be read: limits hold or fall, and never rise", "energy_uj is readable by root only; see powerd zone list",
	})
	n.health.set(n.mode == holding && n.act.Rail == capping.AtFloor, item{
		"cap-below-floor", warn,
		"the cap asks for less than the processor can be limited to", "raise power.floor: in powerd.yaml to what the node really holds",
	})
	if n.draining && n.mode == holding && leader != nil && n.asked == nil && now.Boot >= n.retryAt {
		n.retryAt = now.Boot + retryRelease
		n.ask(inner, &restoreCall{change: n.change("enforce is false")})
	}
	n.reconcile(inner)
	n.publish(now)
}

// wallMean is the mean wall power over the last second or so.
type wallMean struct {
	slots [8]struct {
		energy  units.Energy
		elapsed time.Duration
		known   bool
	}
	next int
}

func (w *wallMean) add(r capping.Reading, elapsed time.Duration) {
	s := &w.slots[w.next]
	s.energy, s.elapsed, s.known = r.Power.For(elapsed), elapsed, r.Known
	w.next = (w.next + 1) % len(w.slots)
}

// value is the mean over the newest readings that make up a second; an unknown
// one among them makes it unknown.
func (w *wallMean) value() (units.Power, bool) {
	var energy units.Energy
	var elapsed time.Duration
	for i := range w.slots {
		s := &w.slots[(w.next+len(w.slots)-1-i)%len(w.slots)]
		if !s.known {
			return 0, false
		}
		energy, elapsed = energy+s.energy, elapsed+s.elapsed
		if elapsed >= beat-period/10 {
			break
		}
	}
	return energy.Over(elapsed), elapsed > 0
}
