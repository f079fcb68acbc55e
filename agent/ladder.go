package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"headroom/agent/config"
	"headroom/agent/originals"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/rapl"
	"headroom/units"
)

// Rungs of the actuation ladder, as operators and the coordinator see them.
const (
	rungRAPL    = "rapl"
	rungCPUFreq = "cpufreq"
	rungNone    = "none"
)

// logMachine says once what is unusual about the machine.
func (n *node) logMachine() {
	if t := n.machine.Tree; t != nil {
		for _, r := range t.Remarks() {
			n.log.Info("about the zones", slog.String("code", r.Code), slog.String("text", r.Text))
		}
	}
	top := n.machine.PackageMax()
	wall := units.FromWatts((top + n.cfg.Power.Other).Watts() / n.cfg.Power.SupplyEfficiency)
	// Ranges move with kernels and firmware: never a reason not to start.
	n.health.Warn(top > 0 && wall < n.cfg.Power.FailSafe, "range-moved",
		fmt.Sprintf("the packages take at most %v, which goes with %v at the wall: less than the fail-safe cap of %v; limits are clamped",
			top, wall, n.cfg.Power.FailSafe),
		"a kernel or firmware update may have moved the range: bring power.max and fail_safe in powerd.yaml in line")
}

// refuseJournal leaves the node at its fail-safe cap without touching the damaged
// journal: its present limits may not be saved as originals.
func (n *node) refuseJournal(damage error) error {
	unrecorded := func(string, int64, int64) error { return nil }
	if n.machine.Capable() {
		n.mode = holding
		n.decide(instant())
		n.machine.ReadBack()
		for _, s := range n.machine.Limited() {
			if s.Readable && s.Effective.Long <= s.Requested.Long {
				continue // never raise here
			}
			damage = errors.Join(damage, s.Write(s.Requested, unrecorded))
		}
		if n.machine.Ladder.Use == capping.RungFreq {
			damage = errors.Join(damage, n.machine.Freq.Write(n.machine.Freq.Standing(), unrecorded))
		}
	}
	return damaged(n.cfg.StateDir+"/"+statedir.JournalFile, damage)
}

// begin decides the mode and, when holding, brings the node to its fail-safe cap
// by the best rung that takes it.
func (n *node) begin() error {
	if n.records.journal != nil {
		if err := n.resume(); err != nil {
			return err
		}
	}
	if !(n.cfg.Enforce || n.draining) || !n.machine.Capable() {
		return n.observe(n.machine.Ladder.Why, "it is charged its rated watts; set enforce: false if that is meant")
	}
	for n.machine.Capable() {
		failed, err := n.climb()
		if err != nil {
			return err
		}
		if failed == nil || !n.stepDown(failed) {
			n.tidyRungs()
			n.health.Warn(n.machine.RAPLInfo.State == capping.RungLocked, "bios-lock",
				"package limits are locked by firmware: "+n.machine.RAPLInfo.Text+"; "+n.machine.Ladder.Why,
				"look for a RAPL lock or cTDP in the BIOS set-up: frequency holds a cap less exactly")
			n.log.Info("fail-safe cap written", slog.Float64("cap_w", n.lease.Memory().FailSafe.Watts()),
				slog.Int64("after_ms", (instant().Boot-n.began).Milliseconds()), slog.Bool("adopted", !n.records.own),
				slog.String("rung", n.machine.Ladder.Use.String()), slog.String("why", n.machine.Ladder.Why))
			return nil
		}
	}
	return n.observe(n.machine.Ladder.Why, "look for locked RAPL settings in the BIOS set-up; until then it is charged its rated watts")
}

// observe makes the node one that only looks. Where it was meant to hold a cap,
// that is said.
func (n *node) observe(why, hint string) error {
	n.mode = observing
	n.health.Warn(n.cfg.Enforce, noRungCode,
		"this node cannot hold a cap: "+why, hint)
	return n.records.writeHeld(n.exactCover())
}

// noRungCode is the health item of a node that cannot hold a cap.
const noRungCode = "no-rapl"

// climb saves the originals of the chosen rung and writes the fail-safe cap with
// it. failed is why the rung did not take it.
func (n *node) climb() (failed, err error) {
	adopted := n.records.journal != nil && !n.records.own
	switch err := n.save(); {
	case errors.Is(err, originals.ErrUnread) && !adopted:
		return err, nil
	case errors.Is(err, originals.ErrUnread):
		return nil, unsaved(err)
	case err != nil:
		return nil, err
	}
	n.mode = holding
	n.machine.ReadBack()
	n.decide(instant())
	want := n.exactCover()
	raise := cover{cap: math.MaxInt64, limits: make([]limit, len(want.limits)), state: want.state, stamp: want.stamp}
	for i, s := range n.machine.Limited() {
		raise.limits[i] = limit{s.Zone.Label, s.Effective.Long, s.Effective.Short} // a predecessor's limits, or the factory's
	}
	covered := raise.allows(want) || n.records.writeHeld(want) == nil
	if n.machine.OnRAPL() {
		failed = n.climbRAPL(raise, covered)
	} else {
		failed = n.climbFreq(covered)
	}
	n.writeErr = failed
	n.records.cover = n.exactCover() // no raise beyond this before held.json says so
	n.records.noteHeld(n.records.writeHeld(n.records.cover))
	return failed, nil
}

// save makes the originals durable of all that may be written.
func (n *node) save() error {
	return n.records.save(n.id.Boot, distinct(n.machine.Controls(), readable(n.tuner.controls())))
}

// climbRAPL writes and verifies every field of every package.
func (n *node) climbRAPL(raise cover, covered bool) (failed error) {
	for i, s := range n.machine.Packages {
		to := s.Requested
		if !covered {
			to = to.AtMost(raise.limits[i].long, raise.limits[i].short)
		}
		wrote := s.Write(to, n.records.trail.Note)
		windows, err := s.Prepare(n.records.trail.Note)
		n.countWrite(s.Zone.Label, errors.Join(wrote, err))
		failed = errors.Join(failed, wrote, err)
		n.health.Warn(windows != nil, "window-refused",
			fmt.Sprintf("%s: %v", s.Zone.Label, windows),
			"caps settle slower than they could; nothing else is wrong")
	}
	return failed
}

// climbFreq writes and verifies the ceilings; one that cannot be raised safely
// stays where it is.
func (n *node) climbFreq(covered bool) error {
	var most map[string]units.Freq
	if !covered {
		most = n.machine.Freq.Standing()
	}
	err := n.machine.Freq.Write(most, n.records.trail.Note)
	n.countCeilings(err)
	return err
}

// stepDown rules out the rung that failed, and says whether the next one, or none,
// is to be tried. A rung that an earlier powerd stood on is kept unless firmware
// locked it: it may hold limits, and what reads back is reported.
func (n *node) stepDown(failed error) bool {
	var lock *rapl.LockedError
	locked := errors.As(failed, &lock)
	adopted := n.records.journal != nil && !n.records.own
	if adopted && !locked {
		return false
	}
	before, infoRAPL, infoFreq := n.machine.Ladder, n.machine.RAPLInfo, n.machine.FreqInfo
	info := &n.machine.FreqInfo
	if n.machine.OnRAPL() {
		info = &n.machine.RAPLInfo
	}
	info.State, info.Text = capping.RungRefused, failed.Error()
	if locked {
		info.State = capping.RungLocked
	}
	n.machine.Choose()
	if !n.machine.Capable() && adopted {
		n.machine.Ladder, n.machine.RAPLInfo, n.machine.FreqInfo = before, infoRAPL, infoFreq
		return false
	}
	n.log.Warn("a rung does not hold, trying the next", slog.String("rung", before.Use.String()), slog.Any("error", failed))
	if n.records.own {
		n.undo()
	}
	return true
}

// undo puts back what this process's first writes touched.
func (n *node) undo() {
	out, err := n.records.putBack("this machine does not take them", n.far.hand())
	if out.Failed == 0 {
		n.records.own = false
	}
	if err != nil {
		n.log.Warn("journal not removed", slog.Any("error", err))
	}
}

// tidyRungs puts back what an earlier powerd wrote on a rung that is not stood on
// any more, or beside it and is wished for no more: the cap is held by the present rung
// by now.
func (n *node) tidyRungs() {
	patience := originals.SettleAll
	for _, c := range n.records.journal.Controls {
		if _, ever := n.records.trail.Wrote(c.Path); !ever || !n.stale(c.Kind) {
			continue
		}
		n.records.putBackOne(c, "it is not needed any more", n.far.hand(), &patience)
	}
}

// stale says that controls of the kind are none of this process's.
func (n *node) stale(k originals.Kind) bool {
	switch k {
	case originals.Frequency:
		return n.machine.OnRAPL()
	case originals.Power, originals.Window, originals.Switch:
		return !n.machine.OnRAPL()
	case originals.Preference:
		return n.cfg.Enforce && (!n.cfg.Frequency.Prefers() || n.cfg.Controls.Denied([]string{config.EPPName}) != "")
	case originals.NoTurbo, originals.Boost:
		return n.cfg.Enforce && (!n.cfg.Frequency.Switches() || n.cfg.Controls.Denied([]string{config.TurboName}) != "")
	case originals.Bandwidth, originals.BMC:
	}
	return false
}

// ladderRows are the rungs for status, with what was found out far away.
func (n *node) ladderRows() []capping.RungInfo {
	l := capping.Choose([]capping.RungInfo{n.machine.RAPLInfo, n.machine.FreqInfo, n.bandwidthInfo(), n.meter.limitInfo()})
	if n.mode == holding {
		return l.Rungs
	}
	for i := range l.Rungs {
		if l.Rungs[i].State == capping.RungUsed {
			l.Rungs[i].State, l.Rungs[i].Text = capping.RungReady, "observe only"
		}
	}
	return l.Rungs
}

// rung is the rung that holds the cap, in the words of the contract.
func (n *node) rung() string { return n.machine.Ladder.Use.String() }

// unsaved is the error of a control that came since an earlier powerd saved the
// others, and that cannot be read.
func unsaved(err error) error {
	return &cli.Error{
		Code: "unread-control", Exit: cli.ExitFailed, Err: err,
		Message: fmt.Sprintf("%v; the limits of the powerd before stay written, and its originals saved", err),
		Hint:    "see powerd zone list and powerd freq list; powerd limit restore --force puts back what was saved",
	}
}
