package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"headroom/agent/config"
	"headroom/agent/health"
	"headroom/agent/metrics"
	"headroom/agent/originals"
	"headroom/agent/records"
	"headroom/agent/remote"
	"headroom/capping"
	"headroom/ipmi"
	"headroom/units"
)

// bmcLimit keeps the limit of the BMC a little above the cap, as a last line behind the
// loop. It belongs to the owner goroutine.
type bmcLimit struct {
	cfg    *config.Config
	log    *slog.Logger
	health *health.Items

	control *controller
	records *records.Records
	tally   *tally
	remote  *remote.Remote

	read  ipmi.Limit // as last read
	known bool
	err   error // of the newest report
	want  units.Power
	at    time.Duration // when that was submitted
}

const (
	// backstopAbove is the distance of the BMC's limit above the cap, so that it does not
	// interfere with the loop.
	backstopAbove = 1.05
	// backstopStep and backstopEvery limit the number of writes: some BMCs store the
	// limit in flash.
	backstopStep  = 2 * units.Watt
	backstopEvery = 5 * time.Second
)

// keep keeps the limit of the BMC a little above the cap.
func (l *bmcLimit) keep(now time.Duration) {
	if !l.cfg.KeepsLimit() || l.control.mode != holding || !l.known {
		return
	}
	found, want := l.read, units.FromWatts(l.control.caps.now.Watts()*backstopAbove)
	expect, err := ipmi.SafeLimit(found, want, beat) // to the bit: after a kill, only what is recorded is ours
	if err != nil {
		return // the health item says what the BMC does not take
	}
	expect.Active = true
	if !l.records.Saved(originals.Control{Path: remote.BMCPath, Label: "limit of the BMC", Kind: originals.BMC, Read: func() (originals.Value, error) {
		return originals.Value{Text: originals.EncodeLimit(found)}, nil
	}}) {
		return
	}
	if max(want-l.want, l.want-want) < backstopStep || now-l.at < backstopEvery {
		return
	}
	if err := l.records.Trail.NoteValue(remote.BMCPath, originals.Value{Text: originals.EncodeLimit(expect)}, originals.Value{Text: originals.EncodeLimit(found)}); err != nil {
		l.log.Warn("BMC limit not written", slog.Any("error", err))
		return
	}
	l.want, l.at = want, now
	l.remote.SetLimit(want)
}

// told handles a report about the limit of the BMC.
func (l *bmcLimit) told(r remote.LimitReport) {
	l.err = r.Err
	if r.Err == nil {
		if r.Wrote && l.records.Trail != nil && l.records.Trail.Has(remote.BMCPath) {
			// The bytes as the BMC accepted them: a restore overwrites only these.
			if err := l.records.Trail.NoteValue(remote.BMCPath, originals.Value{Text: originals.EncodeLimit(r.Limit)}, originals.Value{Text: originals.EncodeLimit(l.read)}); err != nil {
				l.log.Warn("BMC limit not recorded", slog.Any("error", err))
			}
		}
		l.read, l.known = r.Limit, true
	} else if r.Wrote {
		l.want = 0 // retry
		l.tally.writeFailed(metrics.BMC, r.Err)
	}
	l.health.Warn(r.Err != nil && !errors.Is(r.Err, ipmi.ErrAbsent), "bmc-limit",
		fmt.Sprintf("BMC limit not set: %v", r.Err),
		"the cap is enforced without it; set ipmi.limit: false if this BMC has no limit")
}

// info returns the limit of the BMC as a rung.
func (l *bmcLimit) info() capping.RungInfo {
	info := capping.RungInfo{Rung: capping.RungDCMI, State: capping.RungMissing, Text: "no BMC configured"}
	switch {
	case !l.cfg.IPMI.Limit:
		info.State, info.Text = capping.RungOff, "ipmi.limit is false"
	case !l.cfg.KeepsLimit():
		info.State, info.Text = capping.RungOff, l.cfg.Controls.Denied([]string{config.BMCName})
	case l.err != nil:
		info.State, info.Text = capping.RungRefused, l.err.Error()
	case l.known && l.read.Active:
		info.State, info.Text = capping.RungReady, fmt.Sprintf("holds %v with exception action %v", l.read.Power, l.read.Action)
	case l.known:
		info.State, info.Text = capping.RungReady, "no limit is active"
	}
	return info
}
