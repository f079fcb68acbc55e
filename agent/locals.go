package agent

import (
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	"headroom/agent/config"
	"headroom/agent/machine"
	"headroom/agent/records"

	headroomv1 "headroom/api/headroom/v1"
	"headroom/internal/cli"
	"headroom/internal/rpc"
	"headroom/lease"
	"headroom/units"
)

// localMost bounds the duration of a local limit; a longer one belongs in the configuration.
const localMost = 24 * time.Hour

// localCeiling is a frequency ceiling that an operator set on this node.
type localCeiling struct {
	freq   units.Freq
	until  time.Duration
	change *headroomv1.Change
	wanted *ceilingCall // waits until the originals are saved
}

func (l localCeiling) at(now time.Duration) units.Freq {
	if now >= l.until {
		return 0
	}
	return l.freq
}

// ceilingCall is a request for a ceiling.
type ceilingCall struct {
	freq   units.Freq
	length time.Duration
	change *headroomv1.Change
	until  time.Duration // the call gives up
	answer chan reply[[]int64]
}

// localRefused returns the refusal of a local limit.
func localRefused(short, message, hint string) error {
	return rpc.Refuse(connect.CodeFailedPrecondition, short, cli.ExitRefused, message, hint)
}

func badLocal(message, hint string) error {
	return rpc.Refuse(connect.CodeInvalidArgument, "usage", cli.ExitUsage, message, hint)
}

// lengthOf returns the duration of a local limit, within localMost.
func lengthOf(ms int64) (time.Duration, error) {
	if ms <= 0 || ms > localMost.Milliseconds() {
		return 0, badLocal("duration must be above 0 and at most 24h", "for example --for 30m; for a permanent limit use coordinator node set --max")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// localLimits holds the limits that an operator set on this node: a cap below its lease and
// a frequency ceiling, each with an end. It belongs to the owner goroutine.
type localLimits struct {
	cfg *config.Config
	log *slog.Logger

	lease   *lease.Node
	machine *machine.Machine
	control *controller
	records *records.Records
	ladder  *ladder
	changed func(lease.Instant) // runs a step of the loop, and publishes
}

// setCap sets a cap below the one of the lease.
func (l *localLimits) setCap(p units.Power, length time.Duration, change *headroomv1.Change) (units.Power, error) {
	base, _ := l.lease.Cap()
	switch {
	case l.control.mode != holding:
		return 0, localRefused("observing", "limit set refused: this node only observes", "powerd status shows the reason; enforce: true in powerd.yaml enables caps")
	case p > base:
		return 0, localRefused("above-cap", fmt.Sprintf("%v is above the cap in force, %v", p, base), "a local limit can only lower the cap")
	case p < l.control.floor():
		return 0, localRefused("below-floor", fmt.Sprintf("%v is below the lowest cap that the node can hold, %v", p, l.control.floor()), "use a higher cap")
	}
	now := instant()
	l.lease.SetLocal(p, now.Boot+length)
	l.control.caps.local = change
	l.log.Info("local limit set", slog.Float64("cap_w", p.Watts()), slog.Duration("for", length),
		slog.String("actor", change.GetActor()), slog.String("reason", change.GetReason()))
	l.changed(now)
	return l.control.caps.now, nil
}

// clearCap ends a local limit.
func (l *localLimits) clearCap(change *headroomv1.Change) bool {
	now := instant()
	was := l.lease.Local(now.Boot) > 0
	l.lease.SetLocal(0, 0)
	if was {
		l.log.Info("local limit cleared", slog.String("actor", change.GetActor()), slog.String("reason", change.GetReason()))
		l.changed(now)
	}
	return was
}

// setCeiling sets a frequency ceiling, once the originals are saved.
func (l *localLimits) setCeiling(c *ceilingCall) {
	f := l.machine.Freq
	now := instant()
	if c.freq == 0 {
		l.endCeiling(now.Boot, c.change)
		c.answer <- reply[[]int64]{value: l.ceilings()}
		return
	}
	var err error
	switch {
	case f == nil || f.Ceilings == nil:
		err = localRefused("no-cpufreq", "no frequency control on this machine: "+l.machine.FreqInfo.Text, "see powerd freq list")
	case l.control.mode != holding:
		err = localRefused("observing", "freq set refused: this node only observes", "enforce: true in powerd.yaml enables writes")
	case c.freq < f.Config.Min:
		err = localRefused("below-range", fmt.Sprintf("%v is below %v, the lowest frequency", c.freq, f.Config.Min), "see powerd freq list")
	}
	if err != nil {
		c.answer <- reply[[]int64]{err: err}
		return
	}
	if l.records.Saved(f.Controls()...) {
		l.takeCeiling(now.Boot, c)
		return
	}
	c.until = now.Boot + releaseWait
	l.control.caps.ceiling.wanted = c
}

// takeCeiling writes the ceiling; the originals are saved.
func (l *localLimits) takeCeiling(now time.Duration, c *ceilingCall) {
	l.control.caps.ceiling = localCeiling{freq: c.freq, until: now + c.length, change: c.change}
	l.log.Info("local frequency ceiling set", slog.String("ceiling", c.freq.String()), slog.Duration("for", c.length),
		slog.String("actor", c.change.GetActor()), slog.String("reason", c.change.GetReason()))
	l.changed(instant())
	c.answer <- reply[[]int64]{value: l.ceilings()}
}

// awaitCeiling continues a ceiling that waits for the journal.
func (l *localLimits) awaitCeiling(now time.Duration) {
	c := l.control.caps.ceiling.wanted
	if c == nil {
		return
	}
	switch {
	case l.control.mode == holding && l.records.Saved(l.machine.Freq.Controls()...):
		l.control.caps.ceiling.wanted = nil
		l.takeCeiling(now, c)
	case now > c.until:
		l.control.caps.ceiling.wanted = nil
		c.answer <- reply[[]int64]{err: localRefused("state-dir", "frequency not changed: original values not saved", "free space in "+l.cfg.StateDir)}
	}
}

// endCeiling removes the ceiling. If frequency is not the rung in use, the originals are
// restored.
func (l *localLimits) endCeiling(now time.Duration, change *headroomv1.Change) {
	if l.control.caps.ceiling.until == 0 {
		return
	}
	l.control.caps.ceiling = localCeiling{}
	l.log.Info("local frequency ceiling ended", slog.String("actor", change.GetActor()))
	if l.machine.OnRAPL() && l.records.Journal != nil && l.control.mode == holding {
		l.ladder.tidy()
		f := l.machine.Freq
		f.Used = false
		clear(f.Written)
		f.ReadBack()
	} else {
		l.changed(instant())
	}
	l.expire(now)
}

// expire ends limits whose time is up.
func (l *localLimits) expire(now time.Duration) {
	if until := l.lease.LocalUntil(); until > 0 && now >= until {
		l.lease.SetLocal(0, 0)
		l.log.Info("local limit expired")
	}
	if c := l.control.caps.ceiling; c.until > 0 && now >= c.until {
		l.endCeiling(now, nil)
	}
}

// ceilings returns the ceiling that reads back on each policy, in kHz.
func (l *localLimits) ceilings() []int64 {
	f := l.machine.Freq
	if f == nil {
		return nil
	}
	all := make([]int64, 0, len(f.Set.Policies()))
	for _, p := range f.Set.Policies() {
		v, err := p.CeilingNow()
		if err != nil {
			v = 0
		}
		all = append(all, int64(v))
	}
	return all
}

// status returns the local limits for the status, nil without any.
func (l *localLimits) status(now time.Duration) *headroomv1.LocalLimit {
	p, f := l.lease.Local(now), l.control.caps.ceiling.at(now)
	if p == 0 && f == 0 {
		return nil
	}
	row := &headroomv1.LocalLimit{}
	var until time.Duration
	if f > 0 {
		row.CeilingKhz, until, row.Change = new(int64(f)), l.control.caps.ceiling.until, l.control.caps.ceiling.change
	}
	if p > 0 {
		row.CapUw, until, row.Change = new(int64(p)), l.lease.LocalUntil(), l.control.caps.local
	}
	row.RemainingMs = (until - now).Milliseconds()
	return row
}
