package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/machine"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/agent/statedir"
	"headroom/capping"
	"headroom/internal/cli"
	"headroom/lease"
	"headroom/rapl"
	"headroom/units"
)

// Names of the rungs, which are the controls that can enforce a cap.
const (
	rungRAPL    = "rapl"
	rungCPUFreq = "cpufreq"
	rungNone    = "none"
)

// ladder brings the node to its fail-safe cap when powerd starts, with the best rung that
// accepts its values. It belongs to the owner goroutine.
type ladder struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items
	boot   string // identity of this boot

	lease   *lease.Node
	machine *machine.Machine
	control *controller
	tuner   *tuner
	records *records.Records
	tally   *tally
	remote  *remote.Remote
}

// logMachine logs what is unusual about the machine.
func (l *ladder) logMachine() {
	if t := l.machine.Tree; t != nil {
		for _, r := range t.Remarks() {
			l.log.Info("zone remark", slog.String("code", r.Code), slog.String("text", r.Text))
		}
	}
	top := l.machine.PackageMax()
	wall := units.FromWatts((top + l.cfg.Power.Other).Watts() / l.cfg.Power.SupplyEfficiency)
	// Ranges change with kernels and firmware; that must not prevent a start.
	l.health.Warn(top > 0 && wall < l.cfg.Power.FailSafe, "range-moved",
		fmt.Sprintf("the packages accept at most %v (%v at the wall), which is below the fail-safe cap of %v; limits are clamped",
			top, wall, l.cfg.Power.FailSafe),
		"a kernel or firmware update may have changed the range; adjust power.max and power.fail_safe in powerd.yaml")
}

// refuseJournal leaves the node at its fail-safe cap and keeps the damaged journal: the
// present limits must not be saved as originals.
func (l *ladder) refuseJournal(damage error) error {
	unrecorded := func(string, int64, int64) error { return nil }
	if l.machine.Capable() {
		l.control.mode = holding
		l.control.decide(instant())
		l.machine.ReadBack()
		for _, s := range l.machine.Limited() {
			if s.Readable && s.Effective.Long <= s.Requested.Long {
				continue // never raise here
			}
			damage = errors.Join(damage, s.Write(s.Requested, unrecorded))
		}
		if l.machine.Ladder.Use == capping.RungFreq {
			damage = errors.Join(damage, l.machine.Freq.Write(l.machine.Freq.Standing(), unrecorded))
		}
	}
	return damaged(l.cfg.StateDir+"/"+statedir.JournalFile, damage)
}

// begin decides the mode and, when holding, brings the node to its fail-safe cap with the
// best rung that accepts it.
func (l *ladder) begin() error {
	if l.records.Journal != nil {
		if err := l.resume(); err != nil {
			return err
		}
	}
	if !(l.cfg.Enforce || l.control.draining) || !l.machine.Capable() {
		return l.observe(l.machine.Ladder.Why, "the node is charged its rated power; set enforce: false to observe only")
	}
	for l.machine.Capable() {
		failed, err := l.climb()
		if err != nil {
			return err
		}
		if failed == nil || !l.stepDown(failed) {
			l.tidy()
			l.health.Warn(l.machine.RAPLInfo.State == capping.RungLocked, "bios-lock",
				"package limits are locked by firmware: "+l.machine.RAPLInfo.Text+"; "+l.machine.Ladder.Why,
				"remove the RAPL lock or cTDP in the BIOS setup; a frequency limit is less exact")
			l.health.Warn(l.machine.FewFiles() != "", "few-files", l.machine.FewFiles(), machine.FilesHint)
			l.log.Info("fail-safe cap written", slog.Float64("cap_w", l.control.bound().Cap.Watts()), slog.Float64("configured_w", l.cfg.Power.FailSafe.Watts()),
				slog.Int64("after_ms", (instant().Boot-l.control.began).Milliseconds()), slog.Bool("adopted", !l.records.Own),
				slog.String("rung", l.machine.Ladder.Use.String()), slog.String("why", l.machine.Ladder.Why))
			return nil
		}
	}
	return l.observe(l.machine.Ladder.Why, "check for locked RAPL settings in the BIOS setup; until then the node is charged its rated power")
}

// observe makes the node observe only, with a warning if it was configured to enforce caps.
func (l *ladder) observe(why, hint string) error {
	l.control.mode = observing
	l.health.Warn(l.cfg.Enforce, noRungCode,
		"cannot enforce a cap: "+why, hint)
	return l.records.WriteHeld(l.control.bound())
}

// noRungCode is the health item of a node that cannot hold a cap.
const noRungCode = "no-rapl"

// climb saves the originals of the chosen rung and writes the fail-safe cap with it.
// failed is the reason if the rung did not accept it.
func (l *ladder) climb() (failed, err error) {
	adopted := l.records.Journal != nil && !l.records.Own
	l.machine.Hold()
	switch err := l.save(); {
	case errors.Is(err, originals.ErrUnread) && !adopted:
		return err, nil
	case errors.Is(err, originals.ErrUnread):
		return nil, unsaved(err)
	case err != nil:
		return nil, err
	}
	l.control.mode = holding
	l.machine.ReadBack()
	l.control.decide(instant())
	want := l.control.bound()
	raise := records.Bound{Cap: math.MaxInt64, Limits: make([]records.Limits, len(want.Limits)), State: want.State, Stamp: want.Stamp}
	for i, s := range l.machine.Limited() {
		raise.Limits[i] = records.Limits{Zone: s.Zone.Label, Long: s.Effective.Long, Short: s.Effective.Short} // a predecessor's limits, or the factory's
	}
	covered := raise.Allows(want) || l.records.WriteHeld(want) == nil
	if l.machine.OnRAPL() {
		failed = l.climbRAPL(raise, covered)
	} else {
		failed = l.climbFreq(covered)
	}
	l.control.writeErr = failed
	l.records.Begin(l.control.bound())
	return failed, nil
}

// save stores the originals of all controls that may be written.
func (l *ladder) save() error {
	return l.records.Save(l.boot, distinct(l.machine.Controls(), l.tuner.controls()))
}

// climbRAPL writes and verifies every field of every package.
func (l *ladder) climbRAPL(raise records.Bound, covered bool) (failed error) {
	for i, s := range l.machine.Packages {
		to := s.Requested
		if !covered {
			to = to.AtMost(raise.Limits[i].Long, raise.Limits[i].Short)
		}
		wrote := s.Write(to, l.records.Trail.Note)
		windows, err := s.Prepare(l.records.Trail.Note)
		l.tally.writeFailed(s.Zone.Label, errors.Join(wrote, err))
		failed = errors.Join(failed, wrote, err)
		l.health.Warn(windows != nil, "window-refused",
			fmt.Sprintf("%s: %v", s.Zone.Label, windows),
			"new caps take effect more slowly; there is no other effect")
	}
	return failed
}

// climbFreq writes and verifies the ceilings; one that cannot be raised safely stays.
func (l *ladder) climbFreq(covered bool) error {
	var most map[string]units.Freq
	if !covered {
		most = l.machine.Freq.Standing()
	}
	err := l.machine.Freq.Write(most, l.records.Trail.Note)
	l.tally.ceilingsWritten(l.machine.Freq, err)
	return err
}

// stepDown rules out the rung that failed, and reports whether to try the next one. A rung
// that an earlier powerd used is kept unless firmware locked it: it may hold limits, and
// the value that reads back is reported.
func (l *ladder) stepDown(failed error) bool {
	var lock *rapl.LockedError
	locked := errors.As(failed, &lock)
	adopted := l.records.Journal != nil && !l.records.Own
	if adopted && !locked {
		return false
	}
	before, infoRAPL, infoFreq := l.machine.Ladder, l.machine.RAPLInfo, l.machine.FreqInfo
	info := &l.machine.FreqInfo
	if l.machine.OnRAPL() {
		info = &l.machine.RAPLInfo
	}
	info.State, info.Text = capping.RungRefused, failed.Error()
	if locked {
		info.State = capping.RungLocked
	}
	l.machine.Choose()
	l.machine.Hold()
	if !l.machine.Capable() && adopted {
		l.machine.Ladder, l.machine.RAPLInfo, l.machine.FreqInfo = before, infoRAPL, infoFreq
		return false
	}
	l.log.Warn("control failed, trying the next one", slog.String("rung", before.Use.String()), slog.Any("error", failed))
	if l.records.Own {
		l.undo()
	}
	return true
}

// undo restores the controls that this process has written.
func (l *ladder) undo() {
	out, err := l.records.PutBack("this machine does not take them", l.remote.PutBack())
	if out.Failed == 0 {
		l.records.Own = false
	}
	if err != nil {
		l.log.Warn("journal not removed", slog.Any("error", err))
	}
}

// tidy restores unused controls: those that an earlier powerd wrote, and that the present
// rung and configuration do not use. The present rung enforces the cap by now.
func (l *ladder) tidy() {
	patience := originals.SettleAll
	var back []string
	for _, c := range l.records.Journal.Controls {
		if _, ever := l.records.Trail.Wrote(c.Path); !ever || !l.stale(c.Kind) {
			continue
		}
		back = append(back, l.records.PutBackOne(c, l.remote.PutBack(), &patience))
	}
	l.records.LogPutBack("it is not needed any more", back)
}

// stale reports whether controls of the kind are unused by this process.
func (l *ladder) stale(k originals.Kind) bool {
	switch k {
	case originals.Frequency:
		return l.machine.OnRAPL()
	case originals.Power, originals.Window, originals.Switch:
		return !l.machine.OnRAPL()
	case originals.Preference:
		return l.cfg.Enforce && (!l.cfg.Frequency.Prefers() || l.cfg.Controls.Denied([]string{config.EPPName}) != "")
	case originals.NoTurbo, originals.Boost:
		return l.cfg.Enforce && (!l.cfg.Frequency.Switches() || l.cfg.Controls.Denied([]string{config.TurboName}) != "")
	case originals.Bandwidth, originals.BMC:
	}
	return false
}

// unsaved returns the error of an unreadable control that was added after an earlier
// powerd saved the others.
func unsaved(err error) error {
	return &cli.Error{
		Code: "unread-control", Exit: cli.ExitFailed, Err: err,
		Message: fmt.Sprintf("%v; the limits of the previous powerd stay written, its original limits stay saved", err),
		Hint:    "see powerd zone list and powerd freq list; powerd limit restore --force restores the saved limits",
	}
}

// resume takes over the journal of an earlier powerd. Without coordinators the originals
// are restored at once; otherwise the limits stay until a release.
func (l *ladder) resume() error {
	if err := l.records.Resume(l.machine.Tree); err != nil {
		return err
	}
	if !l.cfg.Alone() {
		return nil
	}
	out, err := l.records.PutBack("an earlier powerd left them, and no coordinator is configured", l.remote.PutBack())
	l.control.draining = l.control.draining && out.Failed > 0 // then keep them, and hold the fail-safe cap
	return err
}
