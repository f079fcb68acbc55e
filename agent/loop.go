package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/thermal"
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
	// quietDisk is how long the state directory may take before that is a failure.
	quietDisk = 3 * time.Second
	// driftShown is how long a drift stays visible after it was corrected.
	driftShown = 10 * time.Second
	// retryRelease is the pause between two requests for a release that nobody waits for.
	retryRelease = 10 * time.Second
	// publishEvery is the seconds between two published states that nobody asked for.
	publishEvery = 4
	// heatEvery is the seconds between two looks at temperatures without a sprint.
	heatEvery = 4
)

// serve runs the loop until ctx ends and the node has been released or has
// settled at its fail-safe cap.
func (n *node) serve(ctx context.Context) error {
	n.records.writer = statedir.StartWriter(n.disk)
	defer n.records.writer.Stop(settleWait)
	socket, err := rpc.ListenUnix(SocketPath(n.cfg.StateDir))
	if err != nil {
		return n.abandon(err)
	}
	if err := n.network.start(); err != nil {
		return n.abandon(errors.Join(err, socket.Close()))
	}
	// The gossip's own timers run from now too, at multiples of period: what falls
	// together costs one waking up.
	tick := time.NewTicker(period)
	defer tick.Stop()
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx)) // streams outlive the stop signal
	defer n.endServers(cancel)
	n.servers.Go(func() { n.serveSocket(inner, socket) })
	n.servers.Go(func() { cli.OnHangup(inner, func() { n.network.reload(inner, n.calls) }) })
	n.meter.start()
	n.startFar(inner)
	n.network.follow(inner)
	n.watchCut(instant())
	n.heat.watch(inner, n.cfg, n.log)
	if err := n.startMetrics(inner); err != nil {
		n.health.Warn(true, "metrics",
			err.Error(), config.HintOf(err))
	}
	n.publish(instant())
	return n.loop(ctx, inner, tick.C)
}

// abandon gives up before the node has ever been in the cluster: what this
// process changed goes back, what an earlier one left stays.
func (n *node) abandon(err error) error {
	if n.records.own && n.mode == holding {
		n.putBackNow()
	}
	return err
}

func (n *node) endServers(cancel context.CancelFunc) {
	cancel()
	n.streams.End()
	n.servers.Wait()
	n.network.close()
}

// loop is the owner: every change of the node's state happens here.
func (n *node) loop(ctx, inner context.Context, tick <-chan time.Time) error {
	defer n.expiry.Stop()
	n.reconcile(inner)
	n.leaderAt = instant().Boot
	stop, deadline := ctx.Done(), (<-chan time.Time)(nil)
	beatAt := time.Duration(0)
	for {
		found, braked := n.network.told()
		select {
		case <-tick:
			now := instant()
			n.manager.beat()
			n.noteTurn(now.Boot, n.turnAt)
			n.turnAt = now.Boot
			n.turn(now)
			if now.Boot >= beatAt {
				beatAt = max(beatAt+beat, now.Boot+beat/2)
				n.heartbeat()
				n.housekeep(inner, now)
			}
		case <-n.expiry.C:
			n.turn(instant())
		case e := <-n.streams.Told():
			if err := n.take(e); err != nil {
				return err
			}
		case j := <-n.records.writer.Done():
			n.stored(j)
		case c := <-n.streams.Certificates():
			n.certified(inner, c)
		case <-braked:
			n.brakeHeard()
		case <-found:
			n.reconcile(inner)
		case r := <-n.far.reports:
			n.farTold(r, instant().Boot)
		case <-n.network.changed:
			n.network.linksTold()
			n.watchCut(instant())
		case g := <-n.network.moved:
			n.network.gossipMoved(g)
		case e, open := <-n.heat.events:
			n.heatTold(e, open)
		case call := <-n.calls:
			call(inner)
		case call := <-n.restores:
			n.restore(inner, call)
		case err := <-n.answers:
			if done := n.answer(inner, err); done {
				return nil
			}
		case <-stop:
			stop = nil
			n.manager.stopping()
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
//
//headroom:control
func (n *node) turn(now lease.Instant) {
	n.carryOut(n.lease.Advance(now))
	n.gather(now)
	n.decide(now)
	n.apply()
	if n.mode == holding && n.tuner.tune(now.Boot, n.caps.running != "") {
		n.turboMoved()
	}
	n.noteSettle(now.Boot)
	n.tally.ObserveStep(instant().Boot - now.Boot)
}

// farTold takes a report of what is reached through another program.
func (n *node) farTold(r farReport, now time.Duration) {
	switch {
	case r.looked:
		n.rivalsTold(r.rivals, r.err)
	case r.limit != nil:
		n.limitTold(*r.limit)
	default:
		n.slicesTold(r.slices, r.err, now)
	}
}

// heatTold takes one of the kernel's thermal events; a sprint ends at once.
func (n *node) heatTold(e thermal.Event, open bool) {
	if !open {
		n.heat.events = nil
		return
	}
	now := instant()
	was := n.heat.hot(now.Boot)
	n.heat.take(now.Boot, e)
	if n.heat.hot(now.Boot) && !was && n.caps.running != "" {
		n.turn(now)
	}
}

// gather reads the limits, and the counters unless that was done just before.
func (n *node) gather(at lease.Instant) {
	now := at.Boot
	n.machine.ReadBack()
	n.noteDrift(now)
	if n.caps.running != "" {
		n.heat.look(now)
	}
	if now-n.machine.LookedAt < looseElapsed {
		n.meter.sample.Elapsed = 0 // the last reading, which has been taken in before
		return
	}
	n.meter.look(at)
	n.tally.AddLimited(n.limitedBy(now), n.meter.sample.Elapsed)
	if n.meter.add(now) {
		n.noteOver(now)
	}
	n.demand.Observe(now, capping.Look{
		Wall: n.meter.reading(), Limited: n.limited(), Busy: n.busy, BusyKnown: n.busyOK, Elapsed: n.meter.sample.Elapsed,
	})
}

// limited says that the cap in force held the node back when it was last seen.
func (n *node) limited() bool {
	if n.mode != holding {
		return false
	}
	if n.machine.Ladder.Use == capping.RungFreq {
		return n.machine.Freq.State.Limited
	}
	return n.law.Limited
}

// decide finds the cap in force and turns it into limits.
func (n *node) decide(now lease.Instant) {
	switch {
	case n.mode == holding:
	case n.shadows():
		n.shadow(now)
		return
	default:
		return
	}
	n.decideCap(now)
	f := n.machine.Freq
	onFreq := n.machine.Ladder.Use == capping.RungFreq
	if onFreq {
		f.Step(capping.FreqSample{Sample: n.meter.sample, Busy: n.busy, BusyKnown: n.busyOK}, n.caps.now, n.meter.blind(), n.meter.law)
	} else {
		n.act, n.law = capping.Step(now.Boot, n.meter.sample, n.caps.now, n.law, n.meter.law)
		n.parts = n.machine.Share(n.act, n.parts, (*machine.Package).Held)
	}
	if f != nil && f.Ceilings != nil {
		f.Request(onFreq, n.caps.ceiling.at(now.Boot))
	}
}

// apply writes what was decided, as far as held.json covers it; the rest waits
// for the writer. Then it verifies.
func (n *node) apply() {
	if n.mode != holding {
		return
	}
	want := n.exactCover()
	covered := n.records.cover.allows(want)
	if !covered {
		n.records.ask(n.records.cover.union(want))
	}
	n.writeErr = n.write(covered, instant().Boot)
	n.health.Fail(n.writeErr != nil, "limit-refused",
		fmt.Sprintf("a limit was not taken: %v", n.writeErr),
		"the node reports what reads back and is charged for it; see powerd status")
	whole := n.writeErr == nil && covered
	if whole {
		n.caps.applied, n.caps.stepped = n.caps.now, false
		if !n.records.cover.same(want) {
			n.records.ask(want)
		}
	}
	excess, known := n.excessWall()
	n.carryOut(n.lease.Wrote(lease.WriteResult{Excess: excess, Known: known, Whole: whole, Failed: n.writeErr != nil}))
}

// write brings the hardware to what was decided, or to what held.json covers of it.
func (n *node) write(covered bool, now time.Duration) error {
	var failed error
	for i, s := range n.machine.Limited() {
		if s.Zone.Gone() {
			continue
		}
		to := s.Requested
		if !covered {
			to = to.AtMost(n.records.cover.limits[i].long, n.records.cover.limits[i].short)
		}
		if s.Drifted || s.Off {
			if !n.mayWriteOver(now, s.RewroteAt) {
				continue
			}
			s.RewroteAt = now
		}
		err := s.Write(to, n.records.trail.Note)
		n.countWrite(s.Zone.Label, err)
		failed = errors.Join(failed, err)
	}
	f := n.machine.Freq
	if f == nil || f.Ceilings == nil || n.machine.Ladder.Use != capping.RungFreq && n.caps.ceiling.until == 0 {
		return failed
	}
	drifted := len(f.Drifted()) > 0
	over := n.mayWriteOver(now, f.RewroteAt)
	if drifted && !over || !f.Due(over) {
		return failed
	}
	if drifted {
		f.RewroteAt = now
	}
	var most map[string]units.Freq
	if !covered {
		most = maps.Clone(f.Written)
	}
	err := f.Write(most, n.records.trail.Note)
	n.countCeilings(err)
	return errors.Join(failed, err)
}

// stored takes the writer's report.
//
//headroom:control
func (n *node) stored(j statedir.Job) {
	switch j.Kind {
	case statedir.Held:
		n.records.noteHeld(j.Err)
		if n.records.heldStored(j.Err) {
			n.apply()
		}
	case statedir.Memory:
		n.memoryStored(j.Err)
	case statedir.Coordinators:
		n.cacheBusy = false
	case statedir.Denied:
		n.deniedStored(j)
	case statedir.Controls:
		n.records.journalStored(j.Err)
		n.awaitCeiling(instant().Boot)
	}
}

// housekeep is what once a second is enough for.
func (n *node) housekeep(inner context.Context, now lease.Instant) {
	n.kept++
	n.busy, n.busyOK = n.machine.Busy()
	n.saveDenied()
	leader := n.streams.Leader()
	if leader != nil {
		n.leaderAt = now.Boot
	}
	n.health.Warn(!n.cfg.Alone() && now.Boot-n.leaderAt > quietLeader, "no-leader",
		fmt.Sprintf("no coordinator that leads has been reachable for %.0fs", (now.Boot-n.leaderAt).Seconds()),
		"the node holds its cap until the lease ends and its fail-safe cap afterwards; see coordinator status")
	_, state := n.lease.Cap()
	n.health.Warn(n.mode == holding && n.lease.EverHeld() && state != lease.Held && !n.lease.Braked(), "lease-expired",
		fmt.Sprintf("no lease (%v): the node holds its fail-safe cap of %v", n.lease.Why(), n.lease.Memory().FailSafe),
		"it comes back by itself once a leader grants again; see coordinator status")
	n.watchSensor(now.Boot)
	n.health.Warn(n.mode == holding && n.rail() == capping.AtFloor, "cap-below-floor",
		"the cap asks for less than the processor can be limited to", "raise power.floor: in powerd.yaml to what the node really holds")
	if n.kept%heatEvery == 0 {
		n.heat.look(now.Boot)
	}
	if n.kept%refreshEvery == 0 {
		n.refresh()
	}
	n.watchFields(now.Boot)
	if n.lease.Storing() && now.Boot-n.storeAt > quietDisk {
		n.health.Fail(true, "state-not-stored",
			fmt.Sprintf("the state directory has not answered for %.0fs: lower caps are carried out, and nothing is raised",
				(now.Boot-n.storeAt).Seconds()),
			"see whether the disk of "+n.cfg.StateDir+" hangs; the node holds its present cap until the lease ends")
	}
	n.records.keep()
	n.watchBrake()
	n.watchHeat(now.Boot)
	n.watchBMC(now.Boot)
	n.watchSprint()
	n.boundSlices()
	n.expireLocals(now.Boot)
	n.awaitCeiling(now.Boot)
	n.answerWaiters(now.Boot)
	n.watchCut(now)
	n.network.housekeep(now.Boot)
	if n.draining && n.cfg.Alone() && n.mode == holding && now.Boot >= n.retryAt && now.Boot-n.began > farWait {
		n.retryAt = now.Boot + retryRelease // what an earlier powerd left far away goes back by now
		n.putBackNow()
	}
	if n.draining && n.mode == holding && leader != nil && n.asked == nil && now.Boot >= n.retryAt {
		n.retryAt = now.Boot + retryRelease
		n.ask(inner, &restoreCall{change: n.change("enforce is false")})
	}
	n.reconcile(inner)
	n.manager.status(n.words)
	if n.kept%publishEvery == 0 {
		n.publish(now) // whoever asks gets a fresh one; this is for when the owner is stuck
	}
}

// watchSensor says when nothing tells what the node draws.
func (n *node) watchSensor(now time.Duration) {
	if len(n.machine.Packages) == 0 {
		n.health.Warn(n.meter.blind() && now-n.began > quietSensor, "sensor",
			"nothing here measures power: "+n.blindWords(),
			"give the node a BMC that tells it (ipmi in powerd.yaml), or load the RAPL driver; see powerd sensor list")
		return
	}
	n.health.Warn(now-max(n.meter.knownAt, n.began) > quietSensor, "sensor",
		"power cannot be read ("+strings.Join(n.machine.Unmeasured(), ", ")+"): limits hold or fall, and never rise",
		"energy_uj is readable by root only, and a counter that stands still counts for nothing; see powerd zone list")
}

// blindWords are what a node without any measurement goes by.
func (n *node) blindWords() string {
	if n.mode == holding {
		return "the cap is held by what the configuration says full load draws"
	}
	return "what it draws is unknown to the cluster"
}

// rail is where the limits stand.
func (n *node) rail() capping.Rail {
	if n.machine.Ladder.Use == capping.RungFreq {
		return n.machine.Freq.Actions.Rail
	}
	return n.act.Rail
}
